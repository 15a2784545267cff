"""Evaluation of a sample of the clients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from coterie.core.keys import Key
from coterie.measures.sampling import (
    EvaluationSample,
    Stratum,
    mean_estimate,
    ratio_estimate,
    sampling_errors,
)
from coterie.tasks import CLASSIFICATION
from tests.conftest import blobs
from tests.lazy_federations import run_small

ACCURACY = CLASSIFICATION.metrics[0]


def scored(sample: EvaluationSample, correct: Any, size: Any, known: Any) -> dict[str, Any]:
    ids = sample.draw(size > 0, known)
    inside = int(((size > 0) & known).sum())
    sums = {"correct": correct[ids], "size": size[ids]}
    found = sampling_errors(ACCURACY, sums, known[ids], (inside, int((size > 0).sum()) - inside))
    mine = ids[known[ids]]
    each = correct[mine] / size[mine]
    return {
        **found,
        "accuracy": correct[mine].sum() / size[mine].sum(),
        "accuracy_mean": each.mean(),
    }


def test_the_stated_error_is_the_error() -> None:
    rng = np.random.default_rng(0)
    n = 4000
    size = np.where(rng.random(n) < 0.1, 0, 5 + rng.lognormal(3, 1, n).astype(np.int64)).astype(
        float
    )
    known = np.arange(n) < 1000
    correct = rng.binomial(
        size.astype(np.int64), np.where(known, 0.9, 0.5) * rng.beta(8, 2, n)
    ).astype(float)
    draws = [
        scored(EvaluationSample.of(300, n, Key(seed)), correct, size, known) for seed in range(400)
    ]
    has = size > 0
    truth = {
        "accuracy": correct[known].sum() / size[known].sum(),
        "accuracy_all": correct.sum() / size.sum(),
        "accuracy_mean": (correct[known & has] / size[known & has]).mean(),
    }
    for name, true in truth.items():
        found = np.array([draw[name] for draw in draws])
        stated = np.array([draw[f"{name}_error"] for draw in draws])
        assert abs(found.mean() - true) < 4 * found.std() / math.sqrt(len(draws)) + 1e-3, name
        assert 0.85 < math.sqrt((stated**2).mean()) / found.std() < 1.15, name
    assert {draw["evaluated"] for draw in draws} == {300}


def test_a_sample_of_everybody_has_no_error_and_changes_nothing() -> None:
    whole, sampled = (run_small(blobs(), train={"evaluate_clients": size}) for size in (None, 100))
    assert torch.equal(whole.state.models, sampled.state.models)
    for one, other in zip(whole.rows, sampled.rows, strict=True):
        assert other["evaluated"] == 12
        assert {
            other[name] for name in ("accuracy_error", "accuracy_all_error", "accuracy_mean_error")
        } == {0.0}
        for name in ("accuracy", "accuracy_all", "accuracy_mean", "accuracy_groups"):
            assert one[name] == pytest.approx(other[name], abs=1e-12)
        assert "accuracy_error" not in one


def test_samples_are_drawn_in_one_order_and_fill_up_where_a_kind_is_short() -> None:
    sample = EvaluationSample.of(40, 1000, Key(3))
    there = np.ones(1000, bool)
    few = np.arange(1000) < 5
    many = np.arange(1000) < 990
    assert len(sample.draw(there, few)) == len(sample.draw(there, many)) == 40
    assert (sample.draw(there, few) < 5).sum() == 5, "all of the few"
    assert (sample.draw(there, many) >= 990).sum() == 10
    assert (sample.draw(there, ~there) >= 0).sum() == 40
    assert np.array_equal(
        sample.draw(there, few), EvaluationSample.of(40, 1000, Key(3)).draw(there, few)
    )
    assert not np.array_equal(
        sample.draw(there, few), EvaluationSample.of(40, 1000, Key(4)).draw(there, few)
    )
    assert len(sample.draw(~there, few)) == 0
    larger = EvaluationSample(80, sample.order).draw(there, few)
    assert np.isin(sample.draw(there, few), larger).all(), (
        "more clients are asked besides the same ones"
    )


def test_an_error_that_cannot_be_known_is_none() -> None:
    alone = Stratum(7, np.array([1.0]), np.array([2.0]))
    assert ratio_estimate([alone]) == (0.5, None)
    assert mean_estimate(alone) == (0.5, None)
    assert ratio_estimate([]) == (None, None)
    sums = {"correct": np.array([1.0, 2.0]), "size": np.array([2.0, 3.0])}
    one = sampling_errors(ACCURACY, sums, np.array([True, True]), (5, 7))
    assert one["accuracy_error"] is not None
    assert one["accuracy_all_error"] is None, "nothing is known of those without a group"
    nothing = {"correct": np.empty(0), "size": np.empty(0)}
    found = sampling_errors(ACCURACY, nothing, np.empty(0, bool), (0, 0))
    assert found == {
        "evaluated": 0,
        "accuracy_all": None,
        "accuracy_error": None,
        "accuracy_all_error": None,
        "accuracy_mean_error": None,
    }
