"""The record of a run folder, ``digests.json``: which files it has, and the SHA-256 of each.

A file that is damaged, or of another run, is refused by its name, and a file that the record does
not know is not read. A new file is written before the record, and a file that is replaced is
written after it. So a kill at any moment leaves files that the record knows.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import tomli_w

from coterie.config.identity import differing_keys, relevant
from coterie.config.own_code import code_digests
from coterie.config.toml_text import read
from coterie.errors import CheckpointError, Code, ConfigError
from coterie.files import (
    MALFORMED,
    POPULATION,
    canonical_json,
    read_json,
    read_sealed,
    refuse_unwritable,
    replace_file,
    sealed,
    write_private,
    write_synced,
)

T = TypeVar("T")

FORMAT = 3  # of a run folder; goes up whenever another version could not read it
DIGESTS = "digests.json"
CONFIG = "config.toml"
ROWS = "rounds.jsonl"
PARTITION = "partition.npz"
NODES = "nodes.json"  # of a run of real clients: who they are and what they work on
RELEASES = "releases.json"  # of a private run of real clients: which rounds were released
HEADLINE = "headline.json"  # of a run that is not measured by accuracy
NEWCOMERS = "newcomers.npz"  # the samples of clients that joined a run in progress
COLUMNS = "columns.json"  # of a run of real clients with tables: what becomes of each column
# Of a regression: how targets are scaled. A run without it has targets as they are.
TARGETS = "targets.json"
# When clients can be reached, of a run that was given such a file.
AVAILABILITY = "availability.csv"
WEIGHTS = "initial.safetensors"  # the first weights of a network that was a Python object
# Of a private run: what its noise follows from. Only the owner may read it.
NOISE_KEY = "noise.key"
FIRST_FILES = (
    PARTITION,
    POPULATION,
    NEWCOMERS,
    NODES,
    RELEASES,
    HEADLINE,
    COLUMNS,
    TARGETS,
    AVAILABILITY,
    WEIGHTS,
    NOISE_KEY,
)
CHECKPOINT = re.compile(r"checkpoints/round-(\d{6,12})\.safetensors\Z")
SUMMARY = "summary.json"
GROUPS = "groups.csv"
SHARES = "shares.csv"
CLIENTS = "clients.csv"
REPORT = "report.html"
MODEL = re.compile(r"models/group-\d{1,9}\.safetensors\Z")
# What a run computes at its end; a resumed run writes them again.
RESULTS = (SUMMARY, GROUPS, SHARES, CLIENTS, REPORT)
# A run in progress may replace a file between two readings of another process.
TRIES = 5
PAUSE = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class Digests:
    """What a run folder holds, as the run wrote it.

    Args:
        files: path in the folder -> SHA-256, in hexadecimal; two of a file that is being replaced.
        rows: how many rounds ``rounds.jsonl`` has at least.
        planned: how many rounds the run has now, where that is not the number of ``config``; two
            numbers while it is being changed.
        code: file of the user's own code -> SHA-256 when the run began; empty where it is not known.
    """

    config: Mapping[str, Any]
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rows: int = 0
    chain: str = ""
    planned: tuple[int, ...] = ()
    code: Mapping[str, str] = field(default_factory=dict)

    def as_started(self, resolved: Mapping[str, Any]) -> dict[str, Any]:
        """A configuration with the number of rounds that the run was started with, if it has the
        one that is planned now."""
        train = resolved.get("train")
        if not isinstance(train, Mapping) or train.get("rounds") not in self.planned:
            return dict(resolved)
        return {**resolved, "train": {**train, "rounds": self.config["train"]["rounds"]}}

    def checkpoints(self) -> list[tuple[int, str]]:
        """The checkpoints by the rounds done, oldest first, and their names."""
        found = [(CHECKPOINT.match(name), name) for name in self.files]
        return sorted((int(match[1]), name) for match, name in found if match)

    def with_files(self, files: Mapping[str, tuple[str, ...]]) -> Digests:
        return replace(self, files={**self.files, **files})

    def without_results(self) -> Digests:
        """The same without the files that a run writes at its end."""
        return self.without({name for name in self.files if is_result(name)})

    def without(self, names: Collection[str]) -> Digests:
        left = {name: digests for name, digests in self.files.items() if name not in names}
        return replace(self, files=left)

    def data(self) -> bytes:
        """The bytes of ``digests.json``."""
        return sealed(
            {
                "format": FORMAT,
                "config": dict(self.config),
                "files": {name: list(digests) for name, digests in self.files.items()},
                "rows": self.rows,
                "chain": self.chain,
                "planned": list(self.planned),
                "code": dict(self.code),
            }
        )


def sha256(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def is_result(name: str) -> bool:
    """Whether a run writes this file at its end."""
    return name in RESULTS or MODEL.match(name) is not None


# --- the record -----------------------------------------------------------------------------------


def read_digests(folder: Path) -> Digests:
    """The record of a run folder; if the folder lost it, a record of the files as they are."""
    file = folder / DIGESTS
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return _as_found(folder)
    except OSError as error:
        raise CheckpointError(
            "cannot-be-read", file, found=error.strerror, allowed="the file as the run wrote it"
        ) from None
    body = read_sealed(data)
    if body is None:
        got = "bytes that do not match their own checksum"
        expected = f"the file as the run wrote it, or no file: then `coterie resume {folder}` creates it again"
        raise CheckpointError("damaged", file, found=got, allowed=expected)
    found = body.get("format", body.get("schema"))
    if found != FORMAT:
        expected = f"{FORMAT}, the format of this version"
        raise CheckpointError("differs", file, "a different format", got=found, allowed=expected)
    files = {name: tuple(digests) for name, digests in body["files"].items()}
    for name in files:
        # The names are those of a run's own files, so none of them leads out of the folder.
        if name not in FIRST_FILES and not is_result(name) and not CHECKPOINT.match(name):
            raise CheckpointError(
                "unknown-choice", file, "unknown file", got=name, allowed="a file of the run"
            )
    planned = tuple(body["planned"])
    # Folders of earlier versions have no digests of code.
    code = body.get("code", {})
    return Digests(body["config"], files, body["rows"], body["chain"], planned, code)


def _as_found(folder: Path) -> Digests:
    """A new record, without what a run computes at its end: it is computed again."""
    names = [*FIRST_FILES, *(f"checkpoints/{file.name}" for file in folder.glob("checkpoints/*"))]
    files = {
        name: (sha256((folder / name).read_bytes()),)
        for name in names
        if os.access(folder / name, os.R_OK) and (name in FIRST_FILES or CHECKPOINT.match(name))
    }
    found = Digests(read_config(folder), files)
    seals = [read_seal((folder / name).read_bytes(), round) for round, name in found.checkpoints()]
    settings = relevant(found.config)
    for sealed_settings in filter(None, seals):
        # How many rounds the run has may be changed, which only the record knew.
        keys = set(differing_keys(sealed_settings, settings)) - {"train.rounds"}
        if keys:
            raise changed_settings(folder / CONFIG, sorted(keys))
    return found


def changed_settings(place: Path, keys: Iterable[str]) -> CheckpointError:
    """The one line for a configuration that is not the one that the run was started with."""
    what = "the configuration was changed"
    got = f"other values of {', '.join(keys)}"
    expected = "those that the run was started with"
    return CheckpointError("differs", place, what, found=got, allowed=expected)


def with_seal(data: bytes, config: Mapping[str, Any], round: int) -> bytes:
    """Safetensors that also hold the SHA-256 of their tensors, the round, and the settings that can
    change results: a folder that lost its record is checked by them."""
    header, tensors = _split(data)
    seal = _seal(header, tensors, relevant(config), round)
    sealed_header = {**header, "__metadata__": {"seal": seal}}
    text = canonical_json(sealed_header)
    # Tensors begin at a multiple of eight bytes.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + tensors


def read_seal(data: bytes, round: int) -> dict[str, Any] | None:
    """The settings of `with_seal` by their key paths; ``None`` where the bytes are not those of the
    round."""
    try:
        header, tensors = _split(data)
        found = header.pop("__metadata__")["seal"]
        settings: dict[str, Any] = read_json(found)["settings"]
        if _seal(header, tensors, settings, round) == found:
            return settings
    except MALFORMED:
        return None
    return None


def _seal(
    header: Mapping[str, Any], tensors: bytes, settings: Mapping[str, Any], round: int
) -> str:
    digest = sha256(canonical_json(header) + tensors)
    return sealed({"tensors": digest, "round": round, "settings": dict(settings)}).decode()


def _split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of safetensors, and what follows it."""
    end = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = read_json(data[8:end])
    return header, data[end:]


def write_digests(folder: Path, digests: Digests) -> None:
    """Replace the record, in one step."""
    replace_file(folder / DIGESTS, digests.data())


def new_digests(folder: Path, config: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Write the first files of a folder that no other process sees yet, and their record."""
    for name, data in files.items():
        write = write_private if name == NOISE_KEY else write_synced
        write(folder / name, data)
    known = {name: (sha256(data),) for name, data in files.items()}
    digests = Digests(config, known, code=code_digests(config))
    write_synced(folder / DIGESTS, digests.data())


def read_config(folder: Path) -> dict[str, Any]:
    """What ``config.toml`` holds, unchecked but for numbers that no run writes."""
    tables = read(folder / CONFIG)
    try:
        canonical_json(tables)
    except (ValueError, TypeError) as error:
        what = "a value that a run never writes"
        expected = "the file as the run wrote it"
        raise ConfigError("damaged", folder / CONFIG, what, found=error, allowed=expected) from None
    return tables


def record_rows(folder: Path, count: int, chain: str) -> Digests:
    """Record how many rows there are, and their digest; results of a later round are no longer
    those of the run, and checkpoints neither."""
    digests = read_digests(folder)
    if count < digests.rows:
        digests = digests.without_results()
    later = [name for round, name in digests.checkpoints() if round > count]
    digests = replace(digests.without(later), rows=count, chain=chain)
    write_digests(folder, digests)
    return digests


def plan_rounds(folder: Path, rounds: int) -> None:
    """Change how many rounds a run has, in ``config.toml`` and in the record; results of an earlier
    end are no longer part of it."""
    resolved = read_config(folder)
    digests = read_digests(folder).without_results()
    before = resolved["train"]["rounds"]
    # A kill between two of these leaves a record that fits either number.
    write_digests(folder, replace(digests, planned=(before, rounds)))
    changed = {**resolved, "train": {**resolved["train"], "rounds": rounds}}
    replace_file(folder / CONFIG, tomli_w.dumps(changed).encode())
    write_digests(folder, replace(digests, planned=(rounds,)))


def consistent(folder: Path, read: Callable[[], T]) -> T:
    """What ``read`` returns; it is tried again where another process has just changed the record."""
    for _ in range(TRIES):
        before = read_digests(folder)
        try:
            return read()
        except CheckpointError:
            time.sleep(PAUSE)
            if read_digests(folder) == before:
                raise
    return read()


# --- files ----------------------------------------------------------------------------------------


def store_files(
    folder: Path,
    files: Mapping[str, bytes],
    finish: Callable[[Digests], Digests] = lambda digests: digests,
) -> None:
    """Write files of a run atomically and record their digests; ``finish`` changes the record just
    before it is written. A file that has the same bytes already is left as it is."""
    with refuse_unwritable(folder):
        digests = read_digests(folder)
        whole = {name: (sha256(data),) for name, data in files.items()}
        changed = [name for name in files if not _is_there(folder, name, digests, whole[name])]
        new = [name for name in changed if name not in digests.files]
        replaced = [name for name in changed if name in digests.files]
        _write(folder, files, new)
        if replaced:
            # Both digests first, since a kill leaves the old file or the new one, and so may the next.
            either = {name: (*digests.files[name], *whole[name]) for name in replaced}
            write_digests(folder, digests.with_files(either))
            _write(folder, files, replaced)
        now = finish(digests.with_files(whole))
        if now != digests:
            write_digests(folder, now)


def _is_there(folder: Path, name: str, digests: Digests, expected: tuple[str, ...]) -> bool:
    if digests.files.get(name) != expected:
        return False
    try:
        return (sha256((folder / name).read_bytes()),) == expected
    except OSError:
        return False


def _write(folder: Path, files: Mapping[str, bytes], names: Iterable[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        replace_file(folder / name, files[name])


def checked_file(folder: Path, name: str) -> bytes | None:
    """The bytes of a file that the run wrote, checked; ``None`` where it wrote none."""
    return consistent(folder, lambda: read_checked(folder, name, read_digests(folder)))


def read_checked(folder: Path, name: str, digests: Digests) -> bytes | None:
    """As `checked_file`, by a record that was read."""
    if name not in digests.files:
        return None
    try:
        data = (folder / name).read_bytes()
    except FileNotFoundError:
        raise _refused(folder, name, "missing", "no file") from None
    except OSError as error:
        raise _refused(folder, name, "cannot-be-read", error.strerror) from None
    if sha256(data) not in digests.files[name]:
        raise _refused(folder, name, "damaged", f"SHA-256 {sha256(data)[:12]}")
    return data


def _refused(folder: Path, name: str, code: Code, got: str | None) -> CheckpointError:
    if is_result(name):
        do = f"run `coterie resume {folder}` to write it again"
        return CheckpointError(code, folder / name, found=got, do=do)
    expected = "the file as the run wrote it"
    return CheckpointError(code, folder / name, found=got, allowed=expected)
