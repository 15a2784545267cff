"""What ``coterie deploy run`` hands to the SuperLink."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.cli.main import invoke
from coterie.flower.operate import submit
from coterie.flower.settings import load_deployment
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The words that Flower's command is given."""
    given: list[list[str]] = []

    def answer(home: Path, arguments: Sequence[str], timeout: float = 0.0) -> dict[str, Any]:
        given.append(list(arguments))
        return {"run-id": "7"}

    monkeypatch.setattr(submit, "run_flwr", answer)
    return given


def test_the_app_of_a_relative_folder_has_an_absolute_path(
    deployment: Path, calls: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(deployment.parent)
    folder = Path(deployment.name)
    config, settings = load_deployment(folder)
    (folder / ".flwr").mkdir()
    assert submit.submit(folder, config, settings, "/runs/a", False) == 7
    assert calls[0][:2] == ["run", str(deployment)]
    assert Path(calls[0][-1]).is_absolute()


@pytest.fixture
def extended(deployment: Path) -> Path:
    """A deployment whose last run completed three rounds and was extended to five."""
    config, settings = load_deployment(deployment)
    out = Path(settings.folder) / "a"
    run_config(config, out)
    RunFolder.open(out).plan_rounds(5)
    (deployment / "last-run.json").write_text(json.dumps({"out": str(out), "clients": 3}))
    return deployment


def test_a_resumed_run_keeps_the_rounds_that_it_was_extended_to(extended: Path) -> None:
    def rounds(*assignments: str, resume: bool = True) -> int:
        return load_deployment(extended, assignments, resume=resume)[0].train.rounds

    assert rounds() == 5
    assert rounds("train.rounds=4") == 4
    assert rounds(resume=False) == 3
    text = (extended / "run.toml").read_text()
    (extended / "run.toml").write_text(text.replace("rounds = 3", "rounds = 9"))
    assert rounds() == 9


def test_fewer_rounds_than_are_complete_are_refused_before_anything_is_submitted(
    extended: Path, calls: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["deploy", "run", str(extended), "--resume", "--set", "train.rounds=2"]
    assert invoke(words) == 2
    assert "--set train.rounds: " in capsys.readouterr().err
    assert calls == []
