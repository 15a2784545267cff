"""A PostgreSQL server of a site, in the site's own network."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.live.machines import Machine

USER = "postgres"  # the package's own; the server refuses to run as root


def find_server() -> Path | None:
    """The folder of PostgreSQL's programs; ``None`` where it or its driver is missing."""
    if find_spec("psycopg") is None or find_spec("sqlalchemy") is None:
        return None
    # Debian keeps them away from the path.
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("initdb")
    if found is not None:
        places.insert(0, Path(found).parent)
    known = subprocess.run(["id", "-u", USER], capture_output=True).returncode == 0
    return next((place for place in places if (place / "postgres").exists() and known), None)


@contextmanager
def postgres(machine: Machine, statements: Sequence[str]) -> Iterator[None]:
    """A server on port 5432 of a machine, with the database ``clinic`` and the account ``reader``.

    Args:
        machine: of the site.
        statements: SQL that fills the database.
    """
    programs = find_server()
    assert programs is not None, "the caller asked"
    folder = Path(tempfile.mkdtemp(prefix="coterie-postgres-"))
    try:
        shutil.chown(folder, USER)
        as_user = ["runuser", "-u", USER, "--"]
        initdb = [*as_user, str(programs / "initdb"), "-D", str(folder / "data"), "-A", "trust"]
        subprocess.run([*initdb, "-U", USER], cwd=folder, check=True, capture_output=True)
        inside = ["ip", "netns", "exec", machine.namespace]
        server = [*as_user, str(programs / "postgres"), "-D", str(folder / "data"), "-k", ""]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([*inside, *server], cwd=folder, stdout=log, stderr=log)
        try:
            _fill(machine, statements)
            yield
        finally:
            # `runuser` passes SIGTERM on, which lets clients finish; the test has ended them.
            process.terminate()
            process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_SCRIPT = """
import json, sys, psycopg
for name, statements in json.load(sys.stdin):
    with psycopg.connect(f"host=127.0.0.1 user=postgres dbname={name}", autocommit=True) as server:
        for statement in statements:
            server.execute(statement)
"""


def _fill(machine: Machine, statements: Sequence[str]) -> None:
    """Make account and database, once the server answers."""
    first = ["CREATE ROLE reader LOGIN", "CREATE DATABASE clinic"]
    then = [*statements, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"]
    words = ["ip", "netns", "exec", machine.namespace, sys.executable, "-c", _SCRIPT]
    end = time.monotonic() + 60
    while True:
        text = json.dumps([["postgres", first], ["clinic", then]])
        done = subprocess.run(words, input=text, capture_output=True, text=True)
        if done.returncode == 0:
            return
        assert "refused" in done.stderr, done.stderr
        assert time.monotonic() < end, done.stderr
        time.sleep(0.5)
