"""A server from its backup: every byte compared with what the backup says, then put in place."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import IO

import tomli_w

from coterie.deploy.backup import MANIFEST, RUNS, Backup, not_a_backup
from coterie.deploy.server_folder import DATABASE
from coterie.deploy.settings import load_deployment
from coterie.deploy.submit import LAST_RUN
from coterie.errors import ConfigError
from coterie.runs.folder.files import sync_folder

LONGEST_MANIFEST = 1 << 26  # bytes: half a million files
_CHUNK = 1 << 20
_FOLDER = re.compile(r"""(?m)^folder\s*=\s*("(?:[^"\\\n]|\\.)*"|'[^'\n]*')""")


def restore_backup(file: Path, folder: Path) -> Backup:
    """Make the folder of a deployment from a backup; it appears whole or not at all.

    Where the folder has another path than it had, ``deploy.toml`` and ``last-run.json`` get the new
    one.
    """
    if folder.exists():
        raise ConfigError(f"--to: there already, got {folder}; expected a new folder")
    folder = folder.resolve()
    hidden = folder.with_name(f".{folder.name}.tmp-{os.getpid()}")
    try:
        hidden.mkdir(parents=True, mode=0o700)
        backup = _unpack(file, hidden)
        _check_database(file, hidden / DATABASE)
        _move_paths(file, hidden, folder)
        load_deployment(hidden)
        hidden.chmod(0o755)
        hidden.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        what = f"cannot be restored ({error.strerror or error}), got {error.filename or file}"
        raise ConfigError(f"{file}: {what}; expected a backup, and a disk with room") from None
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    return backup


def _unpack(file: Path, target: Path) -> Backup:
    try:
        with tarfile.open(file, "r:") as archive:
            members = iter(archive)
            backup = _manifest(archive, members, file)
            left = dict(backup.files)
            for member in members:
                # Names that the backup does not list are not written, wherever they lead.
                digest = left.pop(member.name, None)
                content = _content(archive, member)
                if digest is None or content is None:
                    raise _damaged(file, member.name)
                place = target / _inside(member.name, file)
                if _write(content, place, member.mode) != digest:
                    raise _damaged(file, member.name)
    except tarfile.TarError as error:
        raise not_a_backup(file, str(error)) from None
    if left:
        raise _damaged(file, min(left))
    return backup


def _manifest(archive: tarfile.TarFile, members: Iterator[tarfile.TarInfo], file: Path) -> Backup:
    """The first file of a backup, which says what the others are."""
    first = next(members, None)
    content = None if first is None else _content(archive, first)
    if first is None or first.name != MANIFEST or content is None:
        raise not_a_backup(file, "nothing" if first is None else first.name)
    return Backup.loads(content.read(LONGEST_MANIFEST), file)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes] | None:
    """The bytes of a file; ``None`` for anything else."""
    # A sparse file is as long as it says, and would fill the disk with zeros.
    if not member.isreg() or member.issparse():
        return None
    return archive.extractfile(member)


def _inside(name: str, file: Path) -> PurePosixPath:
    """A path that leads to no other folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise _damaged(file, name)
    return path


def _write(content: IO[bytes], place: Path, mode: int) -> str:
    """Write a file; returns its SHA-256."""
    place.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    # A private key has its rights before it has its bytes.
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & 0o644)
    with open(descriptor, "wb") as out:
        while chunk := content.read(_CHUNK):
            digest.update(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def _damaged(file: Path, name: str) -> ConfigError:
    expected = "the bytes that `coterie server backup` wrote; use another backup"
    return ConfigError(f"{file}: damaged, got {name[:80]!r}; expected {expected}")


def _check_database(file: Path, database: Path) -> None:
    if not database.exists():
        return
    try:
        with closing(sqlite3.connect(database)) as opened:
            (answer,) = opened.execute("PRAGMA integrity_check").fetchone()
    except sqlite3.Error as error:
        answer = str(error)
    if answer != "ok":
        raise _damaged(file, f"{DATABASE}: {answer}")


def _move_paths(file: Path, hidden: Path, folder: Path) -> None:
    """Write the folder's new path where files name it."""
    settings = hidden / "deploy.toml"
    try:
        text = settings.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise _damaged(file, settings.name) from None
    line = tomli_w.dumps({"folder": str(folder / RUNS)}).strip()
    settings.write_text(_FOLDER.sub(lambda _: line, text), encoding="utf-8")
    last = hidden / LAST_RUN
    if last.exists():
        try:
            name = Path(str(json.loads(last.read_bytes())["out"])).name
        except (ValueError, LookupError, TypeError, RecursionError):
            raise _damaged(file, LAST_RUN) from None
        last.write_text(json.dumps({"out": str(folder / RUNS / name)}) + "\n", encoding="utf-8")
