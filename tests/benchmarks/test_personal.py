"""The comparison of personalised methods: its data, its file of runs, and the figures of its page."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import coterie as ct
from benchmarks.personal import __main__ as command
from benchmarks.personal import files, pages
from benchmarks.personal.federations import FEDERATIONS, UNSEEN, Federation, with_samples
from benchmarks.personal.methods import METHODS
from coterie.core.keys import Key
from coterie.measures.unseen import unseen_clients

DIGITS = Federation(
    "Digits",
    "digits",
    {"kind": "shards", "clients": 10, "shards_per_client": 2},
    {"name": "mlp", "hidden": 8},
    samples=25,
    per_round=8,
    rounds=1,
)


def test_clients_have_at_most_so_many_samples_and_no_step_of_a_single_one():
    whole = ct.load("digits", partition={"kind": "iid", "clients": 4})
    found = with_samples(whole, most=21, batch=20, key=Key(0))
    assert found.sizes("train").tolist() == [20] * 4
    for some, rows in zip(found.train, whole.train, strict=True):
        assert set(some) < set(rows)
    assert with_samples(whole, most=25, batch=20, key=Key(0)).sizes("train").tolist() == [25] * 4


def test_a_run_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FEDERATIONS, "digits", DIGITS)
    methods = ["FedPer", "FedEM"]
    end = time.monotonic() + 3600
    command.measure("digits", methods, [0], tmp_path, end)
    done = files.read(tmp_path, "digits")
    assert [one["method"] for one in done] == methods
    assert set(done[0]["scores"]) == {"accuracy", "adapted", "unseen", "unseen adapted"}
    assert set(done[1]["scores"]) == {"accuracy"}
    command.measure("digits", methods, [0], tmp_path, end)
    assert files.read(tmp_path, "digits") == done
    command.measure("digits", methods, [1], tmp_path, time.monotonic())
    assert files.read(tmp_path, "digits") == done


def test_a_method_of_several_models_trains_the_same_clients() -> None:
    data = DIGITS.population(0)
    found = DIGITS.seen(data, seed=0)
    unseen = unseen_clients(UNSEEN, data, Key(0)).tolist()
    assert len(unseen) == 2
    assert set(found.names) == set(data.names) - {str(client) for client in unseen}
    first = int(found.names[0])
    np.testing.assert_array_equal(found.train[0], data.train[first])


def test_a_page_has_the_seeds_in_which_all_methods_were_run() -> None:
    scores = {"accuracy": {"value": 0.5, "mean": 0.4, "worst tenth": None}}
    runs = [
        {"method": method, "seed": seed, "scores": scores, "groups": 1, "rounds": 2}
        for seed in (1, 0, 2)
        for method in METHODS
    ]
    del runs[-1]
    whole = pages.of_whole_seeds(runs)
    assert {one["seed"] for one in whole} == {0, 1}
    found = list(pages.figures("femnist", whole))
    assert (found[0].metric, found[0].values, found[0].seeds) == ("seen", (50.0, 50.0), (0, 1))
    assert found[1].values == (None, None)
    (groups,) = [one for one in found if one.metric == "groups"]
    assert (groups.subject, groups.values) == ("FedClust", (1, 1))
