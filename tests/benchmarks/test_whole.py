"""Whole experiments beside other frameworks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.whole import run


def test_a_program_without_its_python_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # An environment that was made before is used whatever its Python was called.
    monkeypatch.setattr(run, "BUILD", tmp_path)
    broken = tmp_path / "python3.13"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    for interpreter in (str(broken), str(tmp_path / "none")):
        found = run.interpreters(["coterie", "blazefl, threads"], interpreter)
        assert found == {"coterie": sys.executable}
        assert f"blazefl, threads: left out, {interpreter} does not run" in capsys.readouterr().out
