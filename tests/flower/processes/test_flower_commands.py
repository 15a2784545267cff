"""Flower's own commands, with a script in the place of ``flwr``."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.flower.operate import submit
from coterie.flower.operate.submit import log_lines
from coterie.flower.processes import flower_commands
from coterie.flower.processes.flower_commands import run_flwr

# As Flower does: it takes the name of a connection for the folder of an app.
FLWR = """#!/bin/sh
if [ -e coterie/pyproject.toml ]; then echo "Invalid Flower App configuration" >&2; exit 1; fi
echo '{"success": true, "nodes": []}'
"""


@pytest.fixture
def flwr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script as ``flwr``, and a current folder with a clone of Coterie."""
    script = tmp_path / "flwr"
    script.write_text(FLWR)
    script.chmod(0o755)
    for module in (flower_commands, submit):
        monkeypatch.setattr(module, "find_command", lambda name: str(script))
    clone = tmp_path / "work" / "coterie"
    clone.mkdir(parents=True)
    (clone / "pyproject.toml").write_text("[project]\nname = 'coterie'\n")
    monkeypatch.chdir(clone.parent)


@pytest.mark.usefixtures("flwr")
def test_commands_do_not_depend_on_the_current_folder(tmp_path: Path) -> None:
    assert run_flwr(tmp_path / "home", ["list", "coterie"])["nodes"] == []
    assert '{"success": true, "nodes": []}' in list(log_lines(tmp_path / "home", 7))
