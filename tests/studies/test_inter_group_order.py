"""The inter-group step before a round: where it stands, and that scores do not see it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

import coterie as ct
from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.rules.inter_group import InterGroupStep
from coterie.studies.reproduce.inter_group_order import StepFirst, flexcfl

STEP = InterGroupStep(5.0, "convex")
GROUPS = Groups(torch.tensor([[3.0, 4.0], [0.0, 2.0]]), np.zeros(2, np.int64))


def seen(number: int) -> torch.Tensor:
    """The models that the rule behind the step sees in a round."""
    models = []

    def assign(groups: Groups, round: Round) -> tuple[Groups, Plan]:
        models.append(groups.models)
        return groups, Plan(np.empty(0, np.int64), np.empty(0, np.int64))

    StepFirst(assign, STEP)(GROUPS, Round(number, Key(0), np.arange(2), clients=None))
    return models[0]


def test_models_pull_on_each_other_before_every_round_but_the_first() -> None:
    assert torch.equal(seen(0), GROUPS.models)
    assert torch.equal(seen(1), STEP(GROUPS).models)
    assert not torch.equal(seen(1), seen(0))


def test_scores_and_final_models_are_those_before_the_step() -> None:
    data = ct.load("digits", partition={"kind": "planted", "clients": 12, "groups": 2})
    options = {"groups": 2, "alpha": 6}
    first = flexcfl(**options, eta_g=5.0)
    last = ct.flexcfl(**options, eta_g=5.0, migration="none")
    asked = {"data": data, "model": "mclr", "clients_per_round": 12, "engine": "serial"}
    # One round: the same training, then the step or not.
    before = ct.run(first, rounds=1, **asked).state
    after = ct.run(last, rounds=1, **asked).state
    moved = STEP(replace(GROUPS, models=before.models)).models
    assert torch.allclose(moved, after.models, atol=1e-6)
    # Later rounds begin with the step, so that they are the same but for the last step.
    before = ct.run(first, rounds=3, **asked).state
    after = ct.run(last, rounds=3, **asked).state
    moved = STEP(replace(GROUPS, models=before.models)).models
    assert torch.allclose(moved, after.models, atol=1e-5)
