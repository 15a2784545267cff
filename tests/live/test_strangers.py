"""A stranger at the server of a federation: the attack itself, against real processes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.cli.main import invoke
from coterie.flower.keys import make_node_key
from coterie.flower.operate.local import LocalFederation, local_federation
from coterie.flower.operate.proxy import find_nginx
from coterie.flower.processes.flower_commands import (
    FEDERATION,
    environment,
    find_command,
    write_connection,
)
from tests.flower.conftest import write_deployment
from tests.live.federations import left_behind

pytestmark = [
    pytest.mark.flower,
    pytest.mark.skipif(find_nginx() is None, reason="nginx is not installed"),
]
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "evil"
version = "1.0.0"
license = { file = "LICENSE" }
dependencies = ["flwr>=1.41,<2"]
[tool.flwr.app]
publisher = "evil"
license = { file = "LICENSE" }
fab-include = ["*.py", "LICENSE"]
[tool.flwr.app.components]
serverapp = "evil:app"
clientapp = "evil:app"
"""


def evil_app(folder: Path, mark: Path) -> Path:
    """An app whose module writes a file where it is loaded."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "LICENSE").write_text("none\n")
    lines = [
        "from pathlib import Path",
        f"Path({str(mark)!r}).touch()",
        "from flwr.serverapp import ServerApp",
        "app = ServerApp()",
        "@app.main()",
        "def main(grid, context): pass",
    ]
    (folder / "evil.py").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("federation")
    with local_federation(write_deployment(folder), 0) as up:
        yield up
    assert not left_behind(folder)


def test_a_stranger_runs_and_lists_and_registers_nothing(
    federation: LocalFederation, tmp_path: Path
) -> None:
    mark = tmp_path / "executed"
    app = evil_app(tmp_path / "evil", mark)
    home = tmp_path / "stranger"
    make_node_key(home, "own")
    write_connection(home, federation.address, federation.keys / "ca.crt")
    attempts = (
        ["run", str(app), FEDERATION],
        ["list", FEDERATION],
        ["supernode", "register", str(home / "own.pub"), FEDERATION],
    )
    started = [
        subprocess.Popen(
            [find_command("flwr"), *words, "--format", "json"],
            env=environment(home),
            stdout=subprocess.PIPE,
            text=True,
        )
        for words in attempts
    ]
    answers = [process.communicate(timeout=120)[0] for process in started]
    worked = ['"success": true' in answer for answer in answers]
    if any(worked):
        # A run that should not have been accepted has the time to begin.
        time.sleep(15.0)
    assert not mark.exists()
    assert worked == [False, False, False]


def test_the_check_tells_an_open_address_from_a_closed_one(
    federation: LocalFederation, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["deploy", "check", str(federation.folder), "--superlink"]
    assert invoke([*command, federation.address]) == 0
    assert capsys.readouterr().out.count("closed: ") == 5
    # The address where runs are started, which is for the operator alone.
    assert invoke([*command, federation.control]) == 9
    seen = capsys.readouterr()
    assert seen.out.count("OPEN: ") == 5
    assert "open to outsiders (register a node, list the runs, run an app" in seen.err
