"""How far a step between groups can move a model."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.groups import Groups
from coterie.rules.inter_group import InterGroupStep, Rule

RULES = get_args(Rule)


def farthest(step: InterGroupStep, models: torch.Tensor) -> float:
    groups = Groups(models, np.zeros(3, np.int64))
    return float((step(groups).models.double() - models.double()).norm(dim=1).max())


@pytest.mark.filterwarnings("ignore:inter_group_rule")
@given(
    rule=st.sampled_from(RULES),
    eta=st.floats(0.01, 20),
    k=st.integers(2, 6),
    seed=st.integers(0, 10_000),
    spread=st.floats(0.0, 6.0),
)
def test_no_step_moves_a_model_farther_than_the_bound(
    rule: Rule, eta: float, k: int, seed: int, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    # Models of very different lengths, one of them zero now and then.
    lengths = np.exp(rng.normal(0, spread, (k, 1))) * (rng.random((k, 1)) > 0.1)
    models = torch.from_numpy((rng.normal(size=(k, 4)) * lengths).astype(np.float32))
    step = InterGroupStep(eta, rule)
    bound = step.largest_shift(models)
    rounding = 1e-6 * float(models.norm(dim=1).max() + eta * k)
    assert farthest(step, models) <= bound * (1 + 1e-6) + rounding


def test_the_printed_term_does_not_bound_the_convex_rule() -> None:
    models = torch.tensor([[10.0, 0.0], [-1.0, 0.0]])
    step = InterGroupStep(1.0, "convex")
    printed = 1.0 * (len(models) - 1)
    assert farthest(step, models) == pytest.approx(5.5)
    assert farthest(step, models) > printed
    # Models that point in opposite directions reach our bound.
    assert step.largest_shift(models) == pytest.approx(5.5)


@pytest.mark.parametrize("rule", ["normalized_difference", "normalized_model"])
def test_the_printed_term_bounds_the_rules_that_are_printed(rule: Rule) -> None:
    models = torch.tensor([[10.0, 0.0], [-1.0, 0.0], [0.0, 3.0]])
    assert InterGroupStep(0.5, rule).largest_shift(models) == 1.0
