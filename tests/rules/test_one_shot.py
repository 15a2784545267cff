"""Grouping by one signature of every client: who is placed when, and newcomers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import fcluster

import coterie as ct
from coterie.core.engine import Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.methods.override import override
from coterie.objectives import proximal
from coterie.rules.server import adam
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.store import RunFolder
from tests.conftest import (
    blobs,
    round_of,
    same_memory,
    same_partition,
    two_classes_each,
)
from tests.faults import Faults
from tests.refusals import refuses
from tests.rules.one_shot_runs import Run, each, signatures
from tests.simulations import LossyEngine, RecordingEngine


@each
def test_newcomers_go_where_they_would_have_been(make: Callable[[], ct.Method]) -> None:
    population = two_classes_each()
    there = Run(make(), population)
    later = Run(make(), population)
    there.step([0, 1])
    later.step([0, 1], able=list(range(8)))
    assert later.member[8:] == [-1] * 4
    assert later.step([8, 9])["newcomers"] == 2
    notes = later.step([0, 10, 11])
    assert later.member == there.member == population.planted.tolist()
    assert notes["replies"] == 3
    assert later.state.k == 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "method",
    [
        ct.fedclust(threshold=1.0),
        ct.pacfl(vectors=1, angle="principal", threshold=30.0),
        ct.fedgroup(groups=3, alpha=8, pretrain_steps=20),
    ],
    ids=["fedclust", "pacfl", "fedgroup"],
)
def test_of_sixty_clients_half_come_later_and_are_placed_as_if_they_had_been_there(
    method: ct.Method, seed: int
) -> None:
    population = two_classes_each(60, 3, seed)
    everyone = np.arange(60)
    order = np.random.default_rng(seed).permutation(60)
    first = np.sort(order[:30])
    late = np.sort(order[30:])
    there = Run(method, population)
    later = Run(method, population)
    there.step(everyone.tolist())
    later.step(first.tolist(), able=first.tolist())
    assert (later.state.member[late] == -1).all()
    later.step(late.tolist())
    assert there.state.k == later.state.k == 3
    of = {int(later.state.member[i]): int(there.state.member[i]) for i in first}
    assert np.mean([of[int(later.state.member[i])] == there.state.member[i] for i in late]) >= 0.95


@each
def test_who_is_not_heard_has_no_group_until_asked_again(make: Callable[[], ct.Method]) -> None:
    run = Run(make(), two_classes_each())
    run.reach(LossyEngine(run.engine, "signatures", [2, 5]))
    notes = run.step([0, 2, 3])
    assert (notes["unsigned"], notes["replies"]) == (2, 2)
    assert [i for i, group in enumerate(run.member) if group < 0] == [2, 5]
    assert signatures(run).leaves.tolist() == [0, 1, 3, 4, 6, 7, 8, 9, 10, 11]
    run.step([2, 4])
    run.step([5])
    assert run.member == two_classes_each().planted.tolist()


@each
def test_without_signatures_the_round_is_skipped_and_tried_again(
    make: Callable[[], ct.Method],
) -> None:
    class Silent:
        def run(self, *_: Any, **__: Any) -> list[Reply]:
            return []

    run = Run(make(), two_classes_each())
    run.reach(Silent())
    notes = run.step([0, 1])
    assert notes["skipped"]
    assert notes["unclustered"] == 1
    assert set(run.member) == {-1}
    run.reach(run.engine)
    run.step([0, 1])
    assert run.member == two_classes_each().planted.tolist()


def test_a_client_that_sends_nothing_but_zeros_stays_without_a_group() -> None:
    run = Run(ct.fedclust(), two_classes_each(), Faults(hostile={3: "zeros", 4: "nan"}))
    assert run.step([3, 4, 5])["unsigned"] == 2
    assert [run.member[i] for i in (3, 4, 5)] == [-1, -1, 1]


@each
def test_newcomers_beyond_the_threshold_open_one_group_from_the_first_model(
    make: Callable[[], ct.Method],
) -> None:
    population = two_classes_each(12, groups=3)
    run = Run(replace(make(), server=adam(lr=0.01)), population)
    run.step([0, 1, 3], able=[0, 1, 3, 4, 6, 7, 9, 10])
    assert run.state.k == 2
    old = run.state.models
    rule = run.algorithm.method.assign
    opened, _ = rule(run.state, round_of(run.clients, [0, 2, 5], Key(0).at(1)))
    assert torch.equal(opened.models[2], run.w0)
    notes = run.step([0, 2, 5])
    assert notes["opened"] == 1
    assert run.state.k == 3
    assert (run.member[2], run.member[5]) == (2, 2)
    run.step([8])
    assert run.member[8] == 2
    assert torch.equal(run.state.models[1], old[1])
    assert run.state.optimiser["m"].shape == run.state.models.shape


def test_a_newcomer_with_few_samples_opens_no_group() -> None:
    """Its direction is mostly noise; at the beginning it would have joined the nearest cluster."""
    population = two_classes_each(12, groups=3)
    train = list(population.train)
    train[2] = train[2][:2]
    run = Run(ct.fedclust(), population.with_parts(tuple(train), population.test))
    run.step([0, 1, 3], able=[0, 1, 3, 4, 6, 7, 9, 10])
    assert "opened" not in run.step([2])
    assert run.member[2] in (0, 1)
    assert run.step([5, 8])["opened"] == 1
    assert run.member[5] == run.member[8] == 2


def test_clients_that_send_the_same_are_one_group_as_are_newcomers() -> None:
    class Alike:
        def run(self, *request: Any, key: Key) -> list[Reply]:
            replies = list(run.engine.run(*request, key=key))
            for reply in replies:
                reply.fields["delta"][:] = 1.0
            return replies

    run = Run(ct.fedclust(), two_classes_each())
    run.reach(Alike())
    run.step([0, 1], able=list(range(8)))
    run.step([8, 9, 10, 11])
    assert run.member == [0] * 12


@each
def test_auto_does_not_cluster_three_replies_of_many(make: Callable[[], ct.Method]) -> None:
    run = Run(make(), two_classes_each())
    run.reach(LossyEngine(run.engine, "signatures", list(range(3, 12))))
    assert run.step([0, 1])["unclustered"] == 1
    run.reach(run.engine)
    assert run.step([0, 1])["groups"] == 2
    few = Run(make(), two_classes_each())
    assert few.step([0, 1], able=[0, 1])["groups"] == 1
    numbered = Run(ct.fedclust(groups=2), two_classes_each())
    numbered.reach(LossyEngine(numbered.engine, "signatures", list(range(3, 12))))
    assert numbered.step([0, 1])["groups"] == 2


@pytest.mark.parametrize("make", [ct.fedclust, ct.pacfl, ct.flhc])
def test_groups_auto_leaves_it_to_the_threshold(make: Callable[..., ct.Method]) -> None:
    assert make(groups="auto").assign == make().assign


@each
@pytest.mark.parametrize("kind", [">f4", "longdouble", "<f2", "<f8"])
def test_any_floats_that_clients_send_raise_nothing(
    make: Callable[[], ct.Method], kind: str
) -> None:
    class Odd:
        def run(self, *request: Any, key: Key) -> list[Reply]:
            return [
                replace(
                    reply,
                    fields={
                        n: v.astype(kind) if n in ("delta", "subspace") else v
                        for n, v in reply.fields.items()
                    },
                )
                for reply in run.engine.run(*request, key=key)
            ]

    run = Run(make(), two_classes_each())
    run.reach(Odd())
    run.step([0, 1])
    assert run.state.models.dtype == torch.float32
    assert (set(run.member) == {-1}) == (kind in (">f4", "longdouble"))


@each
def test_a_signature_too_small_for_float32_is_none(make: Callable[[], ct.Method]) -> None:
    class Tiny:
        def run(self, *request: Any, key: Key) -> list[Reply]:
            for reply in (replies := run.engine.run(*request, key=key)):
                for name in {"delta", "subspace"} & set(reply.fields):
                    reply.fields[name] = reply.fields[name].astype(np.float64)
                    reply.fields[name][reply.ids == 3] = 1e-60
            return list(replies)

    run = Run(make(), two_classes_each())
    run.reach(Tiny())
    assert run.step([0, 3])["unsigned"] == 1
    assert run.member[3] == -1


def test_groups_start_from_the_first_model_and_train_apart() -> None:
    run = Run(ct.fedclust(), two_classes_each())
    run.step([0, 2])
    assert torch.equal(run.state.models[1], run.w0)
    assert not torch.equal(run.state.models[0], run.w0)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            lambda: ct.fedclust(threshold=0.0),
            "threshold: out of range, got 0.0; expected a number > 0 or one of 'auto', 'gap'",
        ),
        (
            lambda: ct.fedclust(threshold="atuo"),
            "expected a number > 0 or one of 'auto', 'gap'; did you mean 'auto'?",
        ),
        (
            lambda: ct.pacfl(threshold=181),
            "expected a number > 0 and <= 180 or one of 'auto', 'gap'",
        ),
        (lambda: ct.flhc(metric="l3"), "expected one of 'l1', 'l2', 'cosine'"),
        (
            lambda: ct.fedclust(linkage="weighted"),
            "expected one of 'average', 'complete', 'single', 'ward'",
        ),
        (
            lambda: ct.fedclust(groups=2, threshold=1.0),
            "a number of groups and a threshold (2 and 1.0",
        ),
    ],
)
def test_wrong_options_are_named(make: Callable[[], ct.Method], line: str) -> None:
    with pytest.raises(ct.ConfigError) as error:
        make()
    assert line in str(error.value)


def test_more_groups_than_clients_are_refused() -> None:
    with refuses(ct.ConfigError, "out-of-range", "algorithm.groups"):
        Run(ct.pacfl(groups=13), two_classes_each()).step([0])


def test_another_objective_is_that_of_the_signatures_too() -> None:
    for method in (ct.fedclust(), ct.flhc(migration="per_label")):
        run = Run(override(method, objective=proximal(0.5)), two_classes_each())  # type: ignore[arg-type]
        run.engine = RecordingEngine(run.engine)
        run.reach(run.engine)
        for _ in range(12):
            run.step([0, 1])
        trained = [work for work in run.engine.works if isinstance(work, ct.Train)]
        assert len({work.upload for work in trained} | {work.how for work in trained}) > 1
        assert {work.objective for work in trained} == {proximal(0.5)}


@each
def test_a_checkpoint_holds_groups_that_were_opened(
    make: Callable[[], ct.Method], tmp_path: Path
) -> None:
    from coterie.experiment import check

    tables = {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 12}},
        "model": {"name": "mclr"},
        "train": {"rounds": 4, "clients_per_round": 4},
        "algorithm": {"name": "fedclust", "threshold": 0.5},
    }
    folder = RunFolder.create(tmp_path / "run", check(tables).resolved())
    runs = [Run(make(), two_classes_each(12, groups=3)) for _ in range(2)]
    for run in runs:
        run.step([0, 1], able=[0, 1, 3, 4, 6, 7, 9, 10])
        run.step([2])
    assert runs[0].state.k == 3
    folder.checkpoints.save(Checkpoint(2, runs[1].state, {}))
    saved = folder.checkpoints.latest()
    assert saved is not None
    runs[1].state = saved.groups
    for run in runs:
        run.step([3, 5])
        run.step([1, 8, 11])
    a, b = (run.state for run in runs)
    assert torch.equal(a.models, b.models)
    assert np.array_equal(a.member, b.member)
    assert same_memory(a, b)


def test_proximities_are_kept_for_a_report_of_few_clients() -> None:
    memory = Run(ct.fedclust(), two_classes_each())
    memory.step([0])
    kept = signatures(memory)
    assert kept.tree.shape == (11, 4)
    assert kept.proximity is not None
    assert kept.proximity.shape == (12, 12)
    assert kept.signature.shape == (12, 36)
    many = Run(ct.pacfl(vectors=1), two_classes_each(502))
    many.step([0])
    assert signatures(many).proximity is None


def test_groups_of_a_state_are_those_of_the_tree() -> None:
    run = Run(ct.fedclust(), blobs(clients=12))
    run.step([0])
    memory = signatures(run)
    cut = fcluster(memory.tree, memory.threshold, "distance")
    assert same_partition(cut, run.state.member)
    assert isinstance(run.state, Groups)
