"""The files of a run folder, written and read by its record (`coterie.runs.digests`).

A file that is damaged, or of another run, is refused by its name. The record is written before a
file is replaced and after a new one appeared. So a kill at any moment leaves files that the record
knows, or a new one that it does not know yet. Files that the record does not know are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from coterie.errors import CheckpointError
from coterie.runs.digests import Digests, consistent, is_result, read_digests, sha256, write_digests
from coterie.runs.files import refuse_unwritable, replace_file


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
