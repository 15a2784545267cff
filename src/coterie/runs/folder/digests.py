"""Which files a run folder has, and the SHA-256 of each: ``digests.json``.

A file that is damaged, or of another run, is refused by its name. The record is written before a
file is replaced and after a new one appeared. So a kill at any moment leaves files that the record
knows, or a new one that it does not know yet. Files that the record does not know are not read.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import tomli_w

from coterie.config.toml_text import read
from coterie.errors import CheckpointError, ConfigError
from coterie.files import POPULATION
from coterie.runs.folder.files import (
    canonical_json,
    read_sealed,
    refuse_unwritable,
    replace_file,
    sealed,
    write_synced,
)

T = TypeVar("T")

DIGESTS = "digests.json"
CONFIG = "config.toml"
ROWS = "rounds.jsonl"
SCHEMA = 1
PARTITION = "partition.npz"
NODES = "nodes.json"  # of a run of real clients: who they are and what they work on
RELEASES = "releases.json"  # of a private run of real clients: which rounds were released
HEADLINE = "headline.json"  # of a run that is not measured by accuracy
NEWCOMERS = "newcomers.npz"  # the samples of clients that joined a run that was going on
COLUMNS = "columns.json"  # of a run of real clients with tables: what becomes of each column
AVAILABILITY = (
    "availability.csv"  # when clients can be reached, of a run that was given such a file
)
FIRST_FILES = (
    PARTITION,
    POPULATION,
    NEWCOMERS,
    NODES,
    RELEASES,
    HEADLINE,
    COLUMNS,
    AVAILABILITY,
)
SUMMARY = "summary.json"
GROUPS = "groups.csv"
SHARES = "shares.csv"
CLIENTS = "clients.csv"
REPORT = "report.html"
MODEL = re.compile(r"models/group-\d{1,9}\.safetensors\Z")
# What a run computes at its end; a resumed run writes them anew.
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
        chain: digest of its chain after that many.
        checkpoint: rounds of the newest checkpoint, 0 without any.
        planned: how many rounds the run has now, where that is not the number of ``config``; two
            numbers while it is being changed.
    """

    config: Mapping[str, Any]
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rows: int = 0
    chain: str = ""
    checkpoint: int = 0
    planned: tuple[int, ...] = ()

    def as_started(self, resolved: Mapping[str, Any]) -> dict[str, Any]:
        """A configuration with the number of rounds that the run was started with, if it has the
        one that is planned now."""
        train = resolved.get("train")
        if not isinstance(train, Mapping) or train.get("rounds") not in self.planned:
            return dict(resolved)
        return {**resolved, "train": {**train, "rounds": self.config["train"]["rounds"]}}

    def without_results(self) -> Digests:
        """The same without the files that a run writes at its end."""
        kept = {name: digests for name, digests in self.files.items() if not is_result(name)}
        return replace(self, files=kept)

    def data(self) -> bytes:
        """The bytes of ``digests.json``."""
        body = {
            "schema": SCHEMA,
            "config": dict(self.config),
            "files": {name: list(digests) for name, digests in self.files.items()},
            "rows": self.rows,
            "chain": self.chain,
            "checkpoint": self.checkpoint,
        }
        # Not in every folder, so that one that never changed reads as before.
        if self.planned:
            body["planned"] = list(self.planned)
        return sealed(body)


def sha256(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def is_result(name: str) -> bool:
    """Whether a file is one that a run writes at its end."""
    return name in RESULTS or MODEL.match(name) is not None


def read_digests(folder: Path) -> Digests | None:
    """The record of a run folder; ``None`` for a folder that has none."""
    file = folder / DIGESTS
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(
            f"{file}: cannot be read, got {error.strerror}; expected the file as the run wrote it"
        ) from None
    body = read_sealed(data)
    if body is None:
        raise CheckpointError(
            f"{file}: damaged, got bytes that do not match their own checksum; expected the file "
            f"as the run wrote it, or none: then `coterie resume {folder}` makes it anew"
        )
    if body.get("schema") != SCHEMA:
        found = f"another format, got {body.get('schema')!r}"
        raise CheckpointError(f"{file}: {found}; expected {SCHEMA}, that of this version")
    files = {name: tuple(digests) for name, digests in body["files"].items()}
    for name in files:
        # The names are those of a run's own files, so none of them leads out of the folder.
        if name not in FIRST_FILES and not is_result(name):
            raise CheckpointError(f"{file}: unknown file, got {name!r}; expected a run's own")
    planned = tuple(body.get("planned", ()))
    return Digests(body["config"], files, body["rows"], body["chain"], body["checkpoint"], planned)


def write_digests(folder: Path, digests: Digests) -> None:
    """Replace the record, in one step."""
    replace_file(folder / DIGESTS, digests.data())


def new_digests(folder: Path, config: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Write the first files of a folder that no other process sees yet, and their record."""
    for name, data in files.items():
        write_synced(folder / name, data)
    known = {name: (sha256(data),) for name, data in files.items()}
    write_synced(folder / DIGESTS, Digests(config, known).data())


def settings(folder: Path) -> Mapping[str, Any]:
    """The configuration that a run was started with."""
    digests = read_digests(folder)
    if digests is None:
        return read_config(folder)
    return digests.config


def read_config(folder: Path) -> dict[str, Any]:
    """What ``config.toml`` holds, unchecked but for numbers that no run writes."""
    tables = read(folder / CONFIG)
    try:
        canonical_json(tables)
    except (ValueError, TypeError) as error:
        what = f"no value that a run writes, got one that is no JSON ({error})"
        raise ConfigError(
            f"{folder / CONFIG}: {what}; expected the file as the run wrote it"
        ) from None
    return tables


def record_progress(folder: Path, rows: tuple[int, str], checkpoint: int) -> None:
    """Record how far a run is; results of a later round are no longer those of the run.

    Args:
        rows: how many there are, and the digest of their chain.
        checkpoint: rounds of the newest one.
    """
    count, chain = rows
    digests = read_digests(folder)
    if digests is None:
        digests = _first_record(folder)
    if count < digests.rows:
        digests = digests.without_results()
    now = replace(digests, rows=count, chain=chain, checkpoint=checkpoint)
    write_digests(folder, now)


def forget_results(folder: Path) -> None:
    """What the run wrote at an earlier end is no longer a result of it."""
    digests = read_digests(folder)
    if digests is not None:
        write_digests(folder, digests.without_results())


def plan_rounds(folder: Path, rounds: int) -> None:
    """Change how many rounds a run has, in ``config.toml`` and in the record.

    What the run wrote at an earlier end is no longer a result of it.
    """
    resolved = read_config(folder)
    # A folder that lost its record gets a new one now.
    digests = (read_digests(folder) or _first_record(folder)).without_results()
    before = resolved["train"]["rounds"]
    # A kill between two of these leaves a record that fits either number.
    write_digests(folder, replace(digests, planned=(before, rounds)))
    changed = {**resolved, "train": {**resolved["train"], "rounds": rounds}}
    replace_file(folder / CONFIG, tomli_w.dumps(changed).encode())
    planned = () if rounds == digests.config["train"]["rounds"] else (rounds,)
    write_digests(folder, replace(digests, planned=planned))


def _first_record(folder: Path) -> Digests:
    """A new record of a folder that lost its own, of the files as they are."""
    known = {}
    for name in FIRST_FILES:
        file = folder / name
        if file.exists():
            known[name] = (sha256(file.read_bytes()),)
    return Digests(read_config(folder), known)


def consistent(folder: Path, read: Callable[[], T]) -> T:
    """What ``read`` returns; it is tried again where another process has just changed the record.

    Raises:
        CheckpointError: what ``read`` raised, with a record that did not change.
    """
    for _ in range(TRIES):
        before = read_digests(folder)
        try:
            return read()
        except CheckpointError:
            time.sleep(PAUSE)
            if read_digests(folder) == before:
                raise
    return read()


def store_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files of a run, each whole at any moment, and record their digests.

    A file that is there already with the same bytes is left as it is.
    """
    with refuse_unwritable(folder):
        _store(folder, files)


def _store(folder: Path, files: Mapping[str, bytes]) -> None:
    digests = read_digests(folder)
    changed = {name: data for name, data in files.items() if not _is_whole(folder, name, data)}
    if digests is None:
        _write_all(folder, changed)
        return
    recorded = dict(digests.files)
    # A file that the record does not know is not read, so it is written first; of a file that it
    # knows it has both digests first, since a kill leaves the old one or the new one.
    new = [name for name in files if name not in recorded]
    for name, data in files.items():
        digest = sha256(data)
        if name in new:
            recorded[name] = (digest,)
        elif digest not in recorded[name]:
            recorded[name] = (recorded[name][-1], digest)
    _write_all(folder, {name: data for name, data in changed.items() if name in new})
    if recorded != dict(digests.files):
        write_digests(folder, replace(digests, files=recorded))
    _write_all(folder, {name: data for name, data in changed.items() if name not in new})


def _is_whole(folder: Path, name: str, data: bytes) -> bool:
    try:
        return (folder / name).read_bytes() == data
    except OSError:
        return False


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        replace_file(folder / name, data)


def checked_file(folder: Path, name: str) -> bytes | None:
    """The bytes of a file that the run wrote; ``None`` where it wrote none.

    In a folder that lost its record, the file as it is.

    Raises:
        CheckpointError: if the file is missing or has other bytes.
    """
    return consistent(folder, lambda: _checked(folder, name, read_digests(folder)))


def _checked(folder: Path, name: str, digests: Digests | None) -> bytes | None:
    if digests is not None and name not in digests.files:
        return None
    file = folder / name
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        if digests is None:
            return None
        raise _refused(folder, name, "missing, got no file") from None
    except OSError as error:
        raise _refused(folder, name, f"cannot be read, got {error.strerror}") from None
    if digests is not None and sha256(data) not in digests.files[name]:
        raise _refused(folder, name, f"damaged, got SHA-256 {sha256(data)[:12]}")
    return data


def _refused(folder: Path, name: str, what: str) -> CheckpointError:
    expected = "the file as the run wrote it"
    if is_result(name):
        expected += f", which `coterie resume {folder}` writes anew"
    return CheckpointError(f"{folder / name}: {what}; expected {expected}")


def damaged_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Those of some recorded files that are missing or damaged, with the line that says so."""
    found = {}
    for name in names:
        try:
            checked_file(folder, name)
        except CheckpointError as error:
            found[name] = str(error)
    return found
