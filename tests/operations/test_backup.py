"""``operations/coterie-backup``: a server that goes on elsewhere as it was."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.cli.main import invoke
from coterie.config.toml_text import read
from coterie.experiment import check
from coterie.flower.operate.server_folder import DATABASE
from coterie.runs.run import run_config
from tests.conftest import PATIENCE
from tests.flower.conftest import write_deployment

SCRIPT = Path(__file__).resolve().parents[2] / "operations" / "coterie-backup"


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A deployment with a run of three rounds, and what processes left."""
    deployment = write_deployment(tmp_path)
    tables = read(deployment / "run.toml") | {"engine": {"name": "serial"}}
    run_config(check(tables), deployment / "runs" / "fedavg-1")
    (deployment / "last-run.json").write_text("{}\n")
    (deployment / ".flwr").mkdir()
    (deployment / ".flwr" / "nodes-added.json").write_text("{}")
    (deployment / "logs").mkdir()
    (deployment / "logs" / "superlink.log").write_text("long")
    return deployment


def backup(
    folder: Path, file: Path, path: str = "", *more: Path
) -> subprocess.CompletedProcess[str]:
    """Run the script.

    Args:
        path: looked through for commands before all others.
    """
    env = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    # Relative paths, as a reader of the page gives them.
    place = folder.parent
    words = [os.path.relpath(one, place) for one in (folder, file, *more)]
    return subprocess.run([SCRIPT, *words], capture_output=True, text=True, env=env, cwd=place)


def restore(file: Path, folder: Path) -> None:
    """As the page says."""
    subprocess.run(["sha256sum", "-c", f"{file.name}.sha256"], cwd=file.parent, check=True)
    folder.mkdir()
    subprocess.run(["tar", "-xpf", str(file), "-C", str(folder)], check=True)


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(folder)): one.read_bytes()
        for one in folder.rglob("*")
        if one.is_file() and not one.name.startswith(".lock")
    }


def test_a_backup_is_restored_byte_by_byte(server: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.tar"
    done = backup(server, file)
    assert (done.returncode, done.stderr) == (0, "")
    assert file.stat().st_mode & 0o777 == 0o600
    before = files_of(server)
    shutil.rmtree(server)
    restore(file, server)
    del before["logs/superlink.log"]
    assert files_of(server) == before
    assert (server / "keys" / "server.key").stat().st_mode & 0o777 == 0o600
    assert invoke(["show", str(server / "runs" / "fedavg-1")]) == 0
    left = sorted(one.name for one in tmp_path.iterdir())
    assert left == ["backup.tar", "backup.tar.sha256", "c.toml", "d"]


def test_the_database_is_of_one_moment_while_it_is_written(server: Path, tmp_path: Path) -> None:
    database = server / DATABASE
    with closing(sqlite3.connect(database)) as made:
        made.execute("PRAGMA journal_mode=wal")
        made.execute("CREATE TABLE pairs (one INTEGER, other INTEGER)")
        made.commit()
    stopped = threading.Event()
    written = threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(database, timeout=PATIENCE)) as connection:
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
            assert backup(server, tmp_path / f"{number}.tar").returncode == 0
    finally:
        stopped.set()
        thread.join()
    for number in range(3):
        restore(tmp_path / f"{number}.tar", tmp_path / f"r{number}")
        copy_file = tmp_path / f"r{number}" / DATABASE
        assert copy_file.stat().st_mode & 0o777 == 0o600
        with closing(sqlite3.connect(copy_file)) as copy:
            sizes = copy.execute("SELECT count(*) FROM pairs GROUP BY one").fetchall()
        assert sizes
        assert set(sizes) == {(2,)}


def test_a_run_that_goes_on_is_packed_with_its_newest_checkpoint(
    server: Path, tmp_path: Path
) -> None:
    """A checkpoint that is written while the files are read makes it begin anew."""
    run = server / "runs" / "fedavg-1"
    record = run / "digests.json"
    # In place of tar: it reads the files, and then the record changes, twice.
    tar = tmp_path / "bin" / "tar"
    tar.parent.mkdir()
    tar.write_text(
        f'#!/bin/sh\n{shutil.which("tar")} "$@" || exit $?\n'
        f"echo >>{tmp_path}/calls\n"
        f"case $(wc -l <{tmp_path}/calls) in 1|2) echo ' ' >>{record} ;; esac\n"
    )
    tar.chmod(0o755)
    whole = record.read_bytes()
    done = backup(server, tmp_path / "b.tar", str(tar.parent))
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "calls").read_text().splitlines()) == 3
    record.write_bytes(whole)
    assert backup(server, tmp_path / "b2.tar").returncode == 0
    restore(tmp_path / "b2.tar", tmp_path / "r")
    assert invoke(["resume", str(tmp_path / "r" / "runs" / "fedavg-1"), "--rounds", "4"]) == 0


def test_runs_elsewhere_are_in_it(server: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.move(server / "runs", elsewhere)
    assert backup(server, tmp_path / "b.tar", "", elsewhere).returncode == 0
    restore(tmp_path / "b.tar", tmp_path / "r")
    assert (tmp_path / "r" / "elsewhere" / "fedavg-1" / "rounds.jsonl").exists()


def test_what_is_wrong_is_said_and_leaves_nothing(server: Path, tmp_path: Path) -> None:
    (tmp_path / "b.tar").write_text("mine")
    done = backup(server, tmp_path / "b.tar")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "there already" in done.stderr
    assert (tmp_path / "b.tar").read_text() == "mine"
    assert backup(tmp_path, tmp_path / "c.tar").returncode == 2
    assert backup(server, tmp_path / "none" / "c.tar").returncode != 0
    (server / DATABASE).write_text("no database")
    assert backup(server, tmp_path / "c.tar").returncode != 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["b.tar", "c.toml", "d"]
