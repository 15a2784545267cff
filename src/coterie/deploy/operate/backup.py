"""A backup of a federation's server in one file, made while the server and a run go on, and the way
back: a folder from a backup.

The file is a tar archive: first `backup.json`, which names all other files with their SHA-256, then
these, as in the folder of the deployment. It holds the server's private key, so only its owner may
read it. On the way back every byte is compared with
what the backup says, before the folder is put in place.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

import tomli_w

from coterie.deploy.operate.proxy import installed_version
from coterie.deploy.operate.server_folder import DATABASE, SERVER_PROCESS
from coterie.deploy.operate.submit import LAST_RUN
from coterie.deploy.settings import load_deployment
from coterie.errors import CheckpointError, ConfigError, CoterieError
from coterie.files import sync_file, sync_folder
from coterie.runs.copying import copy_files, copy_run
from coterie.runs.folder.digests import CONFIG
from coterie.terminal import warn

SCHEMA = 1
MANIFEST = "backup.json"
RUNS = "runs"
# Logs are long and tell nothing that a server needs; the others belong to processes that run.
_LEFT_OUT = re.compile(rf"logs|runs|\.nginx-.*|{re.escape(DATABASE)}.*|\..*\.tmp.*")


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup has, as its file `backup.json` says.

    Args:
        made: when, in UTC.
        folder: of the runs, as ``deploy.toml`` named it.
        runs: names of the runs, and the rounds of the checkpoint that each goes on from.
        files: path -> SHA-256, in hexadecimal.
    """

    coterie: str
    flower: str
    made: str
    folder: str
    runs: Mapping[str, int]
    files: Mapping[str, str]

    def dumps(self) -> bytes:
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1).encode()

    @classmethod
    def loads(cls, text: bytes, file: Path) -> Backup:
        try:
            values: dict[str, Any] = json.loads(text)
            schema = int(values.pop("schema"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise not_a_backup(file, text[:40]) from None
        if schema != SCHEMA:
            what = f"a backup of another format, got {schema}"
            raise ConfigError(f"{file}: {what}; expected {SCHEMA} (use the Coterie that made it)")
        try:
            backup = cls(**values)
        except TypeError:
            raise not_a_backup(file, sorted(values)) from None
        if not backup._has_right_types():
            raise not_a_backup(file, "fields of other types")
        return backup

    def _has_right_types(self) -> bool:
        """Whether every field is what its annotation says: JSON may hold anything."""
        # What is shown in a terminal must not move its cursor.
        shown = (self.coterie, self.flower, self.made)
        if not all(isinstance(text, str) and text.isprintable() for text in shown):
            return False
        if not isinstance(self.folder, str):
            return False
        return _maps_to(self.runs, int) and _maps_to(self.files, str)


def _maps_to(value: Any, kind: type) -> bool:
    """Whether a value of JSON is an object that has values of one kind."""
    return isinstance(value, dict) and all(type(one) is kind for one in value.values())


def not_a_backup(file: Path, got: Any) -> ConfigError:
    expected = "the file that `coterie server backup` wrote"
    return ConfigError(f"{file}: no backup, got {got!r}; expected {expected}")


def write_backup(folder: Path, out: Path) -> Backup:
    """Write a backup of a deployment; the file appears whole or not at all."""
    _, settings = load_deployment(folder)
    if out.exists():
        raise ConfigError(f"--to: there already, got {out}; expected a new file")
    try:
        with _staging(out) as stage:
            _copy_deployment(folder, stage)
            _copy_database(folder / DATABASE, stage / DATABASE)
            runs = _copy_runs(folder / settings.folder, stage / RUNS)
            backup = Backup(
                installed_version("coterie"),
                installed_version("flwr"),
                time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                settings.folder,
                runs,
                {name: _sha256(stage / name) for name in _names(stage)},
            )
            _pack(stage, backup, out)
    except OSError as error:
        what = f"cannot be written ({error.strerror}), got {error.filename or out}"
        raise ConfigError(f"--to: {what}; expected a file on a disk with room") from None
    return backup


@contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """A folder for the copies, which only this user may enter; beside the file, whose disk has room
    for it."""
    stage = Path(tempfile.mkdtemp(prefix=f".{out.name}.tmp-", dir=out.parent))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _copy_deployment(folder: Path, stage: Path) -> None:
    """Configuration, keys, and what Flower's commands keep."""
    for one in sorted(folder.iterdir()):
        if _LEFT_OUT.fullmatch(one.name) or one.is_symlink():
            continue
        if one.is_dir():
            shutil.copytree(one, stage / one.name, symlinks=True)
        else:
            shutil.copy2(one, stage / one.name)
    # Of a process that may have ended when the backup is restored.
    (stage / ".flwr" / SERVER_PROCESS).unlink(missing_ok=True)


def _copy_database(source: Path, target: Path) -> None:
    """The SuperLink's database, as of one moment, while the SuperLink may write it."""
    if not source.exists():
        return
    try:
        # To read a database in use, SQLite writes into the files beside it, so not `mode=ro`.
        with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(target)) as copy:
            live.backup(copy)
        shutil.copymode(source, target)
    except sqlite3.Error as error:
        raise CheckpointError(f"{source}: cannot be read, got {error}; expected SQLite") from None


def _copy_runs(parent: Path, target: Path) -> dict[str, int]:
    """All runs, and the rounds that each goes on from."""
    found: dict[str, int] = {}
    target.mkdir()
    for run in sorted(parent.glob(f"*/{CONFIG}")):
        name = run.parent.name
        if name.startswith("."):
            continue
        try:
            found[name] = copy_run(run.parent, target / name)
        except CoterieError as error:
            # One run that is damaged must not leave the others without a backup.
            warn(f"{error}; it is in the backup as it is")
            shutil.rmtree(target / name, ignore_errors=True)
            copy_files(run.parent, target / name)
            found[name] = 0
    return found


def _names(stage: Path) -> list[str]:
    """The files of a folder, relative to it; links are none."""
    files = [one for one in stage.rglob("*") if one.is_file() and not one.is_symlink()]
    return sorted(str(one.relative_to(stage)) for one in files)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _pack(stage: Path, backup: Backup, out: Path) -> None:
    """Write the archive under another name, and give it its own when it is on the disk."""
    hidden = stage.with_name(f"{stage.name}.tar")
    text = backup.dumps()
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
            head = tarfile.TarInfo(MANIFEST)
            head.size = len(text)
            archive.addfile(head, io.BytesIO(text))
            for name in backup.files:
                archive.add(stage / name, arcname=name, recursive=False)
        sync_file(hidden)
        hidden.rename(out)
        sync_folder(out.parent)
    finally:
        hidden.unlink(missing_ok=True)


# --- back again -----------------------------------------------------------------------------------

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
