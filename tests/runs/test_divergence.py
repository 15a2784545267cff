"""A run that diverges says so, once."""

from __future__ import annotations

from typing import Any

import pytest

import coterie as ct
from coterie.engines.attacks import sign_flip
from coterie.runs.divergence import DivergenceWatch
from coterie.tasks import regression
from tests.conftest import blobs

FAST = ct.Solver(epochs=2, batch_size=5, lr=30.0)


def numbers() -> ct.Population:
    """A regression whose loss has no upper end."""
    data = blobs()
    return ct.Population(data.x * 3, data.x.sum(dim=1), data.train, data.test)


def test_replies_that_are_not_finite_are_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"local": FAST, "rounds": 2, "engine": "serial", "task": regression()}
    ct.run(ct.fedavg(), data=numbers(), model="mclr", **options)
    said = capsys.readouterr().err
    assert said.count("diverges") == 1
    assert "lower local.lr, now 30" in said


def test_a_loss_that_grows_is_a_warning() -> None:
    watch = DivergenceWatch(0.1)
    losses = [2.0, 19.0, None, 21.0, 400.0]
    found = [watch.line({"round": t, "loss": at, "refused": {}}) for t, at in enumerate(losses)]
    assert [line is None for line in found] == [True, True, True, False, True]
    lost = {"round": 0, "loss": float("nan"), "refused": {}}
    assert "is not finite; lower local.lr" in str(DivergenceWatch(0.1).line(lost))


def test_a_run_that_learns_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    calm = ct.Solver(epochs=1, batch_size=5, lr=0.05)
    for attack in (None, sign_flip(share=0.2)):
        options: dict[str, Any] = {"local": calm, "rounds": 3, "engine": "serial", "attack": attack}
        ct.run(ct.fedavg(), data=blobs(), model="mclr", **options)
    assert capsys.readouterr().err == ""
