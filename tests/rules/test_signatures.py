"""One-shot grouping where a sample of the clients makes the tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.clients.clients import Clients
from coterie.core.engine import Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.rules.one_shot import OneShot
from coterie.rules.signatures import LargeFederation, SignatureMemory, TrainedUpdate
from tests.conftest import round_of, same_partition, two_classes_each
from tests.refusals import refuses
from tests.rules.one_shot_runs import Run, signatures

D = 400


class Planted:
    """Clients whose updates lie around one of three directions; the engine notes who was asked."""

    def __init__(self, noise: float = 1.0) -> None:
        self.noise = noise
        self.asked: list[int] = []
        self.most = 0

    def run(self, work: Any, ids: Any, models: Any, which: Any, *, key: Key) -> list[Reply]:
        self.asked += ids.tolist()
        self.most = max(self.most, len(ids))
        rows = [Key(7).client(i).generator().normal(size=D) * self.noise for i in ids.tolist()]
        delta = np.array(rows) + 4 * np.eye(3, D)[ids % 3] * np.sqrt(D)
        fields = {
            "delta": delta.astype(np.float32),
            "size": np.ones(len(ids)),
            "loss": np.ones(len(ids)),
        }
        return [Reply(key.round, ids, fields, key.purpose)]

    def close(self) -> None: ...


def assigned(rule: OneShot, engine: Planted, clients: int, cohort: list[int]) -> Groups:
    groups = Groups(torch.zeros(1, D), np.full(clients, -1), start=torch.zeros(D))
    reached = Clients(engine)  # type: ignore[arg-type]
    return rule(groups, round_of(reached, cohort, Key(0, round=0)))[0]


@pytest.mark.parametrize("sketch", [None, 16, 64])
@pytest.mark.parametrize("linkage", ["average", "complete", "ward"])
def test_clients_outside_the_tree_join_the_planted_groups(linkage: Any, sketch: Any) -> None:
    engine = Planted()
    rule = OneShot(TrainedUpdate(), linkage, large=LargeFederation(24, sketch))
    groups = assigned(rule, engine, 300, [0, 1])
    assert groups.k == 3
    assert same_partition(groups.member, np.arange(300) % 3)
    assert sorted(engine.asked) == list(range(300))
    memory = groups.memory.get(SignatureMemory)
    assert memory is not None
    assert len(memory.leaves) == len(memory.signature) == 24
    assert memory.signature.shape[1] == (sketch or D)


def test_a_client_far_from_all_of_the_tree_opens_a_group_whose_signature_is_kept() -> None:
    rule = OneShot(TrainedUpdate(), threshold=60.0, large=LargeFederation(16))
    groups = assigned(rule, Planted(), 40, [0])
    memory = groups.memory.get(SignatureMemory)
    assert memory is not None
    assert memory.kept is not None
    new = np.setdiff1d(np.arange(40), memory.kept)[:2]
    far = torch.zeros(2, D)
    far[:, -1] = 1000
    later = memory.with_clients(new, far, np.array([3, 3]), np.array([True, False]))
    assert later.kept is not None
    assert set(later.kept) - set(memory.kept) == {new[0]}
    rows, cluster = later.stored()
    assert torch.equal(rows[cluster == 3], far[:1])


def test_only_the_sample_is_asked_and_others_come_when_they_are_selected() -> None:
    engine = Planted()
    rule = OneShot(TrainedUpdate(), large=LargeFederation(24, ask="sample"))
    groups = assigned(rule, engine, 300, [])
    assert len(engine.asked) == 24
    assert groups.assigned == 24
    new = np.flatnonzero(groups.member < 0)[:5]
    reached = Clients(engine)  # type: ignore[arg-type]
    groups, plan = rule(groups, round_of(reached, new.tolist(), Key(0, round=1)))
    assert len(engine.asked) == 29
    known = groups.member >= 0
    assert same_partition(groups.member[known], np.flatnonzero(known) % 3)
    assert plan.notes["newcomers"] == 5


def test_many_clients_are_sampled_and_asked_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.rules.signatures.MOST", 40)
    monkeypatch.setattr("coterie.rules.signatures.SAMPLE", 20)
    monkeypatch.setattr("coterie.rules.signatures._BLOCK_CLIENTS", 32)
    for clients, tree in ((40, 40), (41, 20)):
        engine = Planted()
        groups = assigned(OneShot(TrainedUpdate()), engine, clients, [])
        memory = groups.memory.get(SignatureMemory)
        assert memory is not None
        assert len(memory.leaves) == tree
        assert same_partition(groups.member, np.arange(clients) % 3)
        assert (engine.most <= 32) is (clients > 40)


def test_a_run_with_a_sample_goes_on_as_one_without() -> None:
    population = two_classes_each()
    whole = Run(ct.fedclust(), population)
    sampled = Run(ct.fedclust(sample=16, sketch=16), population)
    assert population.clients <= 16
    for run in (whole, sampled):
        run.step([0, 1, 2])
    # As many clients as the sample has are all of them: nothing changes.
    assert sampled.member == whole.member
    assert signatures(sampled).kept is None


def test_more_groups_than_clients_in_the_tree_are_refused() -> None:
    rule = OneShot(TrainedUpdate(), groups=20, large=LargeFederation(16))
    with refuses(ct.ConfigError, "out-of-range", "algorithm.groups"):
        assigned(rule, Planted(), 300, [])
