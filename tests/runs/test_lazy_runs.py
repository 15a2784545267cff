"""Runs over federations larger than memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.errors import ConfigError
from coterie.experiment import check
from coterie.measures.theory import Constants
from coterie.runs.compose import compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import Stopped, execute, make_folder, run_config
from tests.lazy_federations import clients_made, federation, run_small
from tests.refusals import refuses


@pytest.mark.parametrize(
    "method", [ct.fedgroup(groups=2, alpha=3), ct.flexcfl(groups=2, alpha=3), ct.ifca(groups=2)]
)
def test_a_lazy_federation_is_the_same_federation(method: ct.Method) -> None:
    lazy, whole = (run_small(federation(lazy=lazy), method) for lazy in (True, False))
    assert torch.equal(lazy.state.models, whole.state.models)
    assert np.array_equal(lazy.groups, whole.groups)
    rows = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in result.rows]
        for result in (lazy, whole)
    ]
    assert rows[0] == rows[1]


def test_only_the_clients_that_are_asked_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    data = federation(100_000, lazy=True)
    clients = clients_made(monkeypatch)
    result = run_small(data, rounds=3, train={"evaluate_clients": 10})
    assert len(set(clients)) <= 6 + 3 * 4 + 3 * 10, "cold start, cohorts, evaluation"
    assert len(clients) <= 2 * 6 + 2 * 3 * 4 + 2 * 3 * 10, "training and test rows once each"
    assert result.rows[-1]["evaluated"] == 10
    assert result.groups.shape == (100_000,)


def tables(**train: Any) -> dict[str, Any]:
    return {
        "data": {
            "source": "synthetic",
            "clients": 200,
            "lazy": True,
            "partition": {"kind": "given"},
        },
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "batch_size": 20},
        "train": {"rounds": 4, "clients_per_round": 6, "evaluate_clients": 20, **train},
        "algorithm": {"name": "fedgroup", "groups": 2, "alpha": 4},
        "engine": {"name": "serial"},
        "checkpoint": {"seconds": 0.0},
    }


def test_a_lazy_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    summary = run_config(check(tables()), tmp_path / "straight")
    assert summary["clients"] == 200
    assert not (tmp_path / "straight" / "clients.csv").exists(), "nobody scores everybody here"
    composed = compose(check(tables()))
    folder = make_folder(composed, tmp_path / "torn")
    stops = iter([0, 15])
    with pytest.raises(Stopped):
        execute(composed, folder, stop=lambda: next(stops))
    folder = RunFolder.open(tmp_path / "torn")
    checkpoint = folder.checkpoints.latest()
    assert checkpoint is not None
    assert checkpoint.extra["since"].dtype == np.int64
    again = compose(check(tables()), folder.path / "partition.npz")
    execute(again, folder, checkpoint=checkpoint, resume=True)
    one, other = (sorted((tmp_path / name / "models").iterdir()) for name in ("straight", "torn"))
    assert [a.read_bytes() for a in one] == [b.read_bytes() for b in other]
    same = [(tmp_path / name / "groups.csv").read_text() for name in ("straight", "torn")]
    assert same[0] == same[1]
    row = json.loads((tmp_path / "torn" / "rounds.jsonl").read_text().splitlines()[-1])
    assert row["evaluated"] == 20
    assert row["accuracy_error"] > 0


def test_the_bounds_of_a_lazy_run_are_those_of_the_same_samples_at_once() -> None:
    population = compose(check(tables())).population
    assert population.lazy
    everything = torch.arange(len(population.y))
    held = replace(population, x=population.x[everything], y=population.y[everything])
    assert not held.lazy
    assert Constants.of(population) == Constants.of(held)


def test_what_needs_all_samples_is_refused_in_one_line(tmp_path: Path) -> None:
    moved = tables() | {"shift": {"kind": "swap_all"}}
    with refuses(ConfigError, "in-conflict", "shift") as caught:
        run_config(check(moved), tmp_path / "shift")
    assert "\n" not in str(caught.value)
    path = tables() | {"engine": {"name": "ray", "samples": "path"}}
    with refuses(ConfigError, "in-conflict", "engine.samples"):
        run_config(check(path), tmp_path / "path")
    with refuses(ConfigError, "out-of-range", "train.evaluate_clients"):
        check(tables(evaluate_clients=0))
