"""What ``coterie deploy run`` hands to the SuperLink."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.flower.operate import submit
from coterie.flower.settings import load_deployment


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
