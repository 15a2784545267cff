"""``coterie server backup`` and ``restore``: a server that goes on elsewhere as it was."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import tarfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.cli.main import invoke
from coterie.config.toml_text import read
from coterie.deploy.operate.backup import MANIFEST, restore_backup, write_backup
from coterie.deploy.operate.server_folder import DATABASE
from coterie.deploy.settings import load_deployment
from coterie.errors import ConfigError
from coterie.experiment import check
from coterie.runs.run import run_config


def stored_run(deployment: Path, name: str) -> Path:
    """A run of three rounds."""
    tables = read(deployment / "run.toml") | {"engine": {"name": "serial"}}
    run_config(check(tables), deployment / "runs" / name)
    return deployment / "runs" / name


@pytest.fixture
def server(deployment: Path) -> Path:
    """A deployment with a run, a database in use, and what processes left."""
    stored_run(deployment, "fedavg-1")
    (deployment / "last-run.json").write_text(
        json.dumps({"out": str(deployment / "runs" / "fedavg-1")}) + "\n"
    )
    (deployment / ".flwr").mkdir()
    (deployment / ".flwr" / "nodes-added.json").write_text("{}")
    (deployment / ".flwr" / "server.json").write_text("{}")
    (deployment / "logs").mkdir()
    (deployment / "logs" / "superlink.log").write_text("long")
    return deployment


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(folder)): one.read_bytes()
        for one in folder.rglob("*")
        if one.is_file() and not one.name.startswith(".lock")
    }


def test_a_backup_is_restored_byte_by_byte(
    server: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "backup.tar"
    assert invoke(["server", "backup", str(server), "--to", str(file)]) == 0
    assert "fedavg-1: goes on after round 3" in capsys.readouterr().out
    assert file.stat().st_mode & 0o777 == 0o600
    before = files_of(server)
    shutil.rmtree(server)
    assert invoke(["server", "restore", str(file), "--to", str(server)]) == 0
    gone = {"logs/superlink.log", ".flwr/server.json"}
    assert files_of(server) == {name: text for name, text in before.items() if name not in gone}
    assert (server / "keys" / "server.key").stat().st_mode & 0o777 == 0o600
    assert invoke(["show", str(server / "runs" / "fedavg-1")]) == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["backup.tar", "c.toml", "d"]


def test_another_folder_gets_its_own_paths(server: Path, tmp_path: Path) -> None:
    write_backup(server, tmp_path / "backup.tar")
    other = tmp_path / "else where" / "d2"
    restore_backup(tmp_path / "backup.tar", other)
    assert load_deployment(other)[1].folder == str(other / "runs")
    last = json.loads((other / "last-run.json").read_bytes())
    assert last == {"out": str(other / "runs" / "fedavg-1")}
    text = (other / "deploy.toml").read_text()
    assert text.count("# ") == (server / "deploy.toml").read_text().count("# ")


def test_the_database_is_of_one_moment_while_it_is_written(server: Path, tmp_path: Path) -> None:
    database = server / DATABASE
    with closing(sqlite3.connect(database)) as made:
        made.execute("PRAGMA journal_mode=wal")
        made.execute("CREATE TABLE pairs (one INTEGER, other INTEGER)")
        made.commit()
    stopped = threading.Event()
    written = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(database, timeout=30)) as connection:
            number = 0
            while not stopped.is_set():
                # Two rows of a transaction: half of it must never be seen.
                with connection:
                    connection.execute("INSERT INTO pairs VALUES (?, 0)", (number,))
                    connection.execute("INSERT INTO pairs VALUES (?, 1)", (number,))
                number += 1
                written.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        written.wait(10)
        for number in range(3):
            write_backup(server, tmp_path / f"{number}.tar")
    finally:
        stopped.set()
        thread.join()
    for number in range(3):
        restore_backup(tmp_path / f"{number}.tar", tmp_path / f"r{number}")
        with closing(sqlite3.connect(tmp_path / f"r{number}" / DATABASE)) as copy:
            sizes = copy.execute("SELECT count(*) FROM pairs GROUP BY one").fetchall()
        assert sizes
        assert set(sizes) == {(2,)}


def test_a_run_that_goes_on_is_copied_with_its_newest_checkpoint(
    server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that is written during the copy makes it begin anew."""
    from coterie.runs import copying

    monkeypatch.setattr(copying, "PAUSE", 0.0)
    run = server / "runs" / "fedavg-1"
    copies: list[int] = []
    plain = copying.copy_files

    def copy_while_writing(source: Path, target: Path) -> None:
        plain(source, target)
        if source == run and len(copies) < 2:
            copies.append(1)
            assert invoke(["resume", str(run), "--rounds", str(3 + len(copies))]) == 0

    monkeypatch.setattr(copying, "copy_files", copy_while_writing)
    assert write_backup(server, tmp_path / "b.tar").runs == {"fedavg-1": 5}
    assert len(copies) == 2
    restore_backup(tmp_path / "b.tar", tmp_path / "r")
    assert invoke(["resume", str(tmp_path / "r" / "runs" / "fedavg-1"), "--rounds", "6"]) == 0


def test_a_damaged_run_does_not_stop_a_backup(
    server: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored_run(server, "b")
    damaged = server / "runs" / "fedavg-1" / "groups.csv"
    for state in (server / "runs" / "fedavg-1" / "checkpoints").iterdir():
        state.write_bytes(b"none")
    assert damaged.exists()
    assert write_backup(server, tmp_path / "b.tar").runs == {"b": 3, "fedavg-1": 0}
    seen = " ".join(capsys.readouterr().err.split())
    assert "it is in the backup as it is" in seen
    assert ".tmp-" not in seen
    restore_backup(tmp_path / "b.tar", tmp_path / "r")
    assert (tmp_path / "r" / "runs" / "fedavg-1" / "rounds.jsonl").exists()


def change(file: Path, edit: Callable[[str, bytes], tuple[str, bytes] | None]) -> Path:
    """Write an archive anew with other files."""
    out = file.with_name("changed.tar")
    with tarfile.open(file) as source, tarfile.open(out, "w") as target:
        for member in source:
            content = source.extractfile(member)
            assert content is not None
            changed = edit(member.name, content.read())
            if changed is None:
                continue
            member.name, data = changed
            member.size = len(data)
            target.addfile(member, io.BytesIO(data))
    return out


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda name, data: (name, data[:-1] + b"!" if name == "run.toml" else data), "run.toml"),
        (lambda name, data: None if name == "run.toml" else (name, data), "run.toml"),
        (lambda name, data: ("../x" if name == "run.toml" else name, data), "'../x'"),
        (
            lambda name, data: ("/elsewhere/x" if name == "run.toml" else name, data),
            "'/elsewhere/x'",
        ),
        (lambda name, data: None if name == MANIFEST else (name, data), "no backup"),
        (lambda name, data: (name, b"[]" if name == MANIFEST else data), "no backup"),
        (
            lambda name, data: (name, data.replace(b'"schema": 1', b'"schema": 2')),
            "another format, got 2",
        ),
    ],
)
def test_a_changed_backup_is_refused_and_leaves_nothing(
    server: Path, tmp_path: Path, edit: Callable[..., tuple[str, bytes] | None], message: str
) -> None:
    write_backup(server, tmp_path / "b.tar")
    with pytest.raises(ConfigError, match=message):
        restore_backup(change(tmp_path / "b.tar", edit), tmp_path / "r")
    assert not list(tmp_path.glob("r")) + list(tmp_path.glob(".r*"))
    assert not (tmp_path.parent / "x").exists()


def test_what_is_there_is_not_replaced(server: Path, tmp_path: Path) -> None:
    write_backup(server, tmp_path / "b.tar")
    with pytest.raises(ConfigError, match="there already"):
        write_backup(server, tmp_path / "b.tar")
    with pytest.raises(ConfigError, match="there already"):
        restore_backup(tmp_path / "b.tar", server)
    for text in (b"", b"no archive", (tmp_path / "b.tar").read_bytes()[:20_000]):
        (tmp_path / "cut.tar").write_bytes(text)
        with pytest.raises(ConfigError, match=r"no backup|damaged"):
            restore_backup(tmp_path / "cut.tar", tmp_path / "r")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_backup(server, tmp_path / "none" / "b.tar")
    with pytest.raises(ConfigError, match="cannot be restored"):
        restore_backup(tmp_path / "none.tar", tmp_path / "r")
