"""A backup of somebody else, whose digests fit: restored, or refused in one line."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.cli.main import invoke
from coterie.deploy.operate import backup
from coterie.deploy.operate.backup import MANIFEST, restore_backup, write_backup
from coterie.deploy.operate.server_folder import DATABASE
from coterie.errors import ConfigError

LARGEST = 50_000_000  # bytes that a small backup may become


def forge(
    file: Path, out: Path, changed: Mapping[str, bytes], said: Mapping[str, Any] | None = None
) -> Path:
    """A backup with other files, whose manifest has their digests.

    Args:
        file: a backup.
        out: the forged one.
        changed: files by name, in place of those or beside them.
        said: fields of the manifest.
    """
    with tarfile.open(file) as archive:
        found = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    manifest = json.loads(found.pop(MANIFEST))
    found |= changed
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}
    text = json.dumps({**manifest, "files": digests, **(said or {})}).encode()
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in {MANIFEST: text, **found}.items():
            member = tarfile.TarInfo(name.replace("\0", "0"))
            if "\0" in name:
                member.pax_headers = {"path": name}
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"last-run.json": b"[]"}, {}),
        ({"last-run.json": b"{"}, {}),
        ({"last-run.json": b"[" * 100_000}, {}),
        ({"last-run.json": b"\xff"}, {}),
        ({"deploy.toml": b"\xff"}, {}),
        ({"deploy.toml": b"clients = 3"}, {}),
        ({"run.toml/x": b"under a file"}, {}),
        ({".": b"the folder"}, {}),
        ({"a\0b": b"no name of a file"}, {}),
        ({DATABASE: b"no database"}, {}),
        ({}, {"files": [1]}),
        ({}, {"files": None}),
        ({}, {"files": {"run.toml": 1}}),
        ({}, {"runs": 3}),
        ({}, {"made": 3}),
        # Shown in a terminal, whose cursor they would move.
        ({}, {"made": "2026\x1b[2J"}),
        ({}, {"coterie": "\x1b]0;x\x07"}),
        ({}, {"folder": []}),
    ],
)
def test_a_backup_that_says_anything_is_refused_in_one_line(
    changed: Mapping[str, bytes],
    said: Mapping[str, Any],
    deployment: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_backup(deployment, tmp_path / "b.tar")
    forged = forge(tmp_path / "b.tar", tmp_path / "forged.tar", changed, said)
    assert invoke(["server", "restore", str(forged), "--to", str(tmp_path / "r")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert not list(tmp_path.glob("r")) + list(tmp_path.glob(".r*"))


def test_a_small_backup_does_not_fill_the_disk(
    deployment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sparse file of an archive is as long as it says, and holds nothing."""
    write_backup(deployment, tmp_path / "b.tar")
    forged = forge(tmp_path / "b.tar", tmp_path / "forged.tar", {"large": b""})
    data = bytearray(forged.read_bytes())
    with tarfile.open(forged) as archive:
        at = archive.getmember("large").offset
    header = tarfile.TarInfo("large")
    header.type = tarfile.GNUTYPE_SPARSE
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[483:495] = b"%011o\0" % (2 * LARGEST)
    block[148:156] = b"        "
    block[148:156] = b"%06o\0 " % sum(block)
    data[at : at + 512] = block
    forged.write_bytes(data)
    written: list[int] = []
    write = backup._write

    def count(content: Any, place: Path, mode: int) -> str:
        if place.name != "large":
            return write(content, place, mode)
        written.append(sum(map(len, iter(lambda: content.read(1 << 20), b""))))
        return hashlib.sha256(b"").hexdigest()

    monkeypatch.setattr(backup, "_write", count)
    with pytest.raises(ConfigError, match="damaged"):
        restore_backup(forged, tmp_path / "r")
    assert sum(written) < LARGEST


def test_the_database_of_a_backup_is_private(deployment: Path, tmp_path: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(deployment / DATABASE)) as made:
        made.execute("CREATE TABLE nodes (key TEXT)")
    (deployment / DATABASE).chmod(0o600)
    write_backup(deployment, tmp_path / "b.tar")
    restore_backup(tmp_path / "b.tar", tmp_path / "r")
    assert (tmp_path / "r" / DATABASE).stat().st_mode & 0o777 == 0o600
