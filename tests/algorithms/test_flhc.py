"""FL+HC: plain averaging until the clients are grouped."""

from __future__ import annotations

import torch

import coterie as ct
from tests.conftest import two_classes_each
from tests.rules.one_shot_runs import Run, exchanged, signatures
from tests.simulations import LossyEngine


def test_the_number_of_a_group_from_before_the_clustering_is_not_given_back() -> None:
    population = two_classes_each()
    run = Run(ct.flhc(warmup_rounds=1, migration="per_label"), population)
    run.step([0, 1])
    run.reach(LossyEngine(run.engine, "signatures", [0]))
    run.hold(exchanged(population))
    run.step([2, 3])
    assert run.member[:2] == [-1, 0]
    run.step([0])
    assert run.member[:2] == [1, 0]


def test_flhc_is_fedavg_before_it_groups_and_goes_on_from_the_joint_model() -> None:
    population = two_classes_each()
    ours = Run(ct.flhc(warmup_rounds=2), population)
    theirs = Run(ct.fedavg(), population)
    for _ in range(2):
        for run in (ours, theirs):
            run.step([0, 1, 2])
        assert torch.equal(ours.state.models, theirs.state.models)
        assert set(ours.member) == {0}
    ours.step([0])
    assert ours.member == population.planted.tolist()
    assert torch.equal(ours.state.models[1], theirs.state.models[0])
    assert torch.equal(signatures(ours).origin, theirs.state.models[0])
