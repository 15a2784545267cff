"""One-shot grouping: clustering of distances, angles between data subspaces, FedClust, PACFL and
FL+HC."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.linalg import subspace_angles
from scipy.spatial.distance import cdist, squareform
from torch import Tensor, nn

import coterie as ct
from coterie.clients.clients import Clients
from coterie.core.engine import Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.vectors import Layout, flatten
from coterie.core.work import Describe, Work
from coterie.engines import Faults, FaultyEngine, SerialEngine
from coterie.local import LocalRunner
from coterie.local.subspace import leading, subspaces
from coterie.math.clustering import agglomerate, largest_gap, linkage_distance
from coterie.math.distances import cosine_distance, l1, l2
from coterie.math.subspaces import entry_min, principal_angles
from coterie.measures.scoring import agreement
from coterie.methods.algorithm import as_algorithm
from coterie.methods.override import override
from coterie.models import MODELS
from coterie.objectives import proximal
from coterie.rules.one_shot import SignatureMemory, span
from coterie.rules.server import adam
from coterie.runs.store import RunFolder
from tests.conftest import blobs, round_of, same_memory, small_net

ROOT = Path(os.environ.get("COTERIE_DATA") or Path(__file__).parents[2] / "shared" / "data")
SOLVER = ct.Solver(epochs=3, batch_size=5, lr=0.1)
LINKAGES = ("average", "complete", "single", "ward", "weighted")


def points(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3))


# --- clustering -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", LINKAGES)
def test_cuts_are_those_of_scipy(method: str) -> None:
    distance = cdist(points(40), points(40))
    tree = linkage(squareform(distance, checks=False), method)
    for level in (*tree[[3, 20, 35], 2], 0.05, 99.0):
        found = agglomerate(distance, method, float(level))
        np.testing.assert_array_equal(found.tree, tree)
        assert same_partition(found.labels, fcluster(tree, level, "distance"))
    for count in (1, 2, 7, 40):
        found = agglomerate(distance, method, count=count)
        assert found.count == count
        assert same_partition(found.labels, fcluster(tree, count, "maxclust"))


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    return (
        len(set(zip(a.tolist(), b.tolist(), strict=True)))
        == len(set(a.tolist()))
        == len(set(b.tolist()))
    )


def test_upgma_counts_clients_and_wpgma_clusters() -> None:
    """A and B merge at 2, C joins them at 4; D is 10, 10 and 7 away: 27/3 by clients, (10 + 7)/2 by
    clusters."""
    distance = np.array([[0, 2, 4, 10], [2, 0, 4, 10], [4, 4, 0, 7], [10, 10, 7, 0]], float)
    assert agglomerate(distance, "average").tree[:, 2].tolist() == [2, 4, 9]
    assert agglomerate(distance, "weighted").tree[:, 2].tolist() == [2, 4, 8.5]


@pytest.mark.parametrize(
    ("heights", "level"),
    [
        ([1, 1, 1, 9, 9.5], 5.0),  # n = 6, the gap after z_3
        ([1, 7, 7.5, 8, 8.5], 8.5 / 0.9),  # the widest gap is before z_3: not looked at
        ([1, 1, 5, 7, 9], 6.0),  # the first of two equal gaps
        ([9, 9, 9, 10], 9.5),  # a gap of a tenth is enough
        ([9, 9, 9.1, 10], 10 / 0.9),  # less is not
        ([4, 8], 8 / 0.9),  # three clients have no gap to judge by
        ([4], 4 / 0.9),
        ([], np.inf),
        ([0, 0, 0], np.inf),
    ],
)
def test_the_auto_rule(heights: list[float], level: float) -> None:
    assert largest_gap(np.array(heights, float)) == pytest.approx(level)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.sampled_from(LINKAGES))
def test_clustering_takes_any_distances(x: list[float], method: Any) -> None:
    distance = np.abs(np.subtract.outer(x, x))
    for options in ({}, {"threshold": 5.0}, {"count": 3}):
        found = agglomerate(distance, method, **options)
        first = [found.labels.tolist().index(j) for j in range(found.count)]
        assert first == sorted(first)
        assert set(found.labels) == set(range(found.count))
    assert found.count == min(3, len(x))


def test_ties_still_give_the_number_asked_for() -> None:
    assert [agglomerate(1 - np.eye(5), count=k).count for k in (1, 2, 3, 4, 5, 9)] == [
        1,
        2,
        3,
        4,
        5,
        5,
    ]


@pytest.mark.parametrize("method", ["average", "complete", "single", "ward"])
def test_a_new_point_is_as_far_as_its_merge_would_be_high(method: Any) -> None:
    old = points(6)
    new = points(1, 1) + 20
    tree = agglomerate(cdist(np.vstack([old, new]), np.vstack([old, new])), method).tree
    far = linkage_distance(cdist(new, old), cdist(old, old), np.zeros(6, int), 2, method)
    assert far[0, 0] == pytest.approx(tree[-1, 2])
    assert far[0, 1] == np.inf


# --- proximities ----------------------------------------------------------------------------------


def test_proximities_are_those_of_scipy() -> None:
    a = torch.randn(9, 5)
    b = torch.randn(4, 5)
    for ours, name in ((l2, "euclidean"), (l1, "cityblock"), (cosine_distance, "cosine")):
        np.testing.assert_allclose(ours(a, b), cdist(a, b, name), atol=1e-12)
        itself = ours(a)
        np.testing.assert_allclose(itself, cdist(a, a, name), atol=1e-7)
        assert (itself == itself.T).all()
        assert not np.diag(itself).any()


def test_equal_rows_are_at_distance_zero() -> None:
    assert not l2((torch.randn(1, 850) * 100).repeat(5, 1)).any()


def bases(n: int, features: int = 12, q: int = 4) -> Tensor:
    rng = torch.Generator().manual_seed(1)
    u = torch.randn(n, features, q, generator=rng)
    u[1, :, 2:] = 0
    u[3] = 0
    return u


def test_entry_min_by_brute_force() -> None:
    u = bases(5)
    for found, b in ((entry_min(u), u), (entry_min(u, u[2:]), u[2:])):
        for i, j in np.ndindex(found.shape):
            columns = [[c / c.norm() for c in one.T.double() if c.any()] for one in (u[i], b[j])]
            angles = [
                np.degrees(np.arccos(min(1, float(x @ y)))) for x in columns[0] for y in columns[1]
            ]
            expected = 0 if b is u and i == j else min(angles, default=90)
            assert found[i, j] == pytest.approx(expected, abs=1e-5)


def test_principal_angles_are_those_of_scipy() -> None:
    u = bases(5)
    found = principal_angles(u)
    np.testing.assert_allclose(found[:, 3:4], [[90], [90], [90], [0], [90]])
    np.testing.assert_allclose(principal_angles(u, u[:2])[2:], found[2:, :2])
    for i, j in ((0, 1), (0, 2), (1, 2), (2, 4)):
        spans = [one[:, one.any(dim=0)].double().numpy() for one in (u[i], u[j])]
        assert (
            found[i, j]
            == found[j, i]
            == pytest.approx(np.degrees(subspace_angles(*spans).min()), abs=1e-6)
        )


def test_angles_do_not_depend_on_the_length_of_what_was_sent() -> None:
    u = bases(5)
    for angle in (entry_min, principal_angles):
        np.testing.assert_allclose(angle(u), angle(u * torch.logspace(-6, 6, 4)), atol=1e-3)
    doubled = torch.cat([u, u], dim=2)
    np.testing.assert_allclose(principal_angles(u), principal_angles(doubled), atol=1e-4)


def test_equal_directions_are_at_angle_zero() -> None:
    """Whatever their lengths, and for spans that meet somewhere: 34 + 34 directions in 64
    dimensions."""
    rng = torch.Generator().manual_seed(0)
    length = torch.rand(50, 1, 9, generator=rng, dtype=torch.float64) + 0.1
    same = torch.randn(1, 64, 9, generator=rng) * length
    meeting = torch.randn(60, 64, 34, generator=torch.Generator().manual_seed(34))
    for angle in (
        entry_min(same),
        entry_min(same, same),
        principal_angles(same),
        principal_angles(meeting),
    ):
        assert not angle.any()
        assert agglomerate(angle, "weighted").count == 1
    rows = torch.randn(1, 3000, generator=rng) * length[:, :, 0]
    assert not cosine_distance(rows).any()
    assert agglomerate(cosine_distance(rows), "complete").count == 1


def test_entry_min_holds_no_more_than_one_client_against_all() -> None:
    u = torch.randn(100, 20, 30)
    tracemalloc.start()
    entry_min(u)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 100 * 30 * 100 * 30 / 10


def test_a_client_without_directions_is_at_right_angles_to_all() -> None:
    u = bases(5)
    assert (entry_min(u, torch.zeros(2, 12, 4)) == 90).all()
    assert (entry_min(torch.zeros(2, 12, 4), u) == 90).all()


@pytest.mark.parametrize("shape", [(3, 20), (20, 6), (2, 5)])
def test_leading_vectors_are_those_of_the_svd(shape: tuple[int, int]) -> None:
    samples = np.random.default_rng(0).random(shape)
    rank = min(*shape, 3)
    found = leading(samples, 3)
    left = np.linalg.svd(samples.T, full_matrices=False)[0][:, :rank]
    np.testing.assert_allclose(np.abs((found[:, :rank] * left).sum(axis=0)), 1, atol=1e-9)
    assert (found.sum(axis=0) >= 0).all()
    assert not found[:, rank:].any()
    assert not leading(0 * samples, 3).any()


def test_a_subspace_has_columns_for_the_classes_that_are_held() -> None:
    population = halves(4)
    u = subspaces(population, np.array([0, 1]), 2)
    assert u.shape == (2, 6, 8)
    assert u.any(axis=1).tolist() == [[True] * 4 + [False] * 4, [False] * 4 + [True] * 4]
    mine = population.train[1][population.labels[population.train[1]] == 2]
    np.testing.assert_allclose(u[1, :, 4:6], leading(population.x[mine].numpy(), 2), atol=1e-6)


# --- rounds ---------------------------------------------------------------------------------------

METHODS: dict[str, Callable[[], ct.Method]] = {
    "fedclust": ct.fedclust,
    "pacfl": lambda: ct.pacfl(vectors=1, angle="principal"),
    "flhc": lambda: ct.flhc(warmup_rounds=0),
}
each = pytest.mark.parametrize("make", METHODS.values(), ids=METHODS.keys())


def halves(clients: int = 12, groups: int = 2, seed: int = 0) -> ct.Population:
    """A federation of clients that hold two classes each, classes ``2 g`` and ``2 g + 1`` in group
    ``g``."""
    rng = np.random.default_rng(seed)
    centres = 3 * np.eye(6)
    planted = np.arange(clients) % groups
    size = 24
    y = 2 * np.repeat(planted, size) + rng.integers(2, size=clients * size)
    y[::size], y[1::size] = 2 * planted, 2 * planted + 1
    x = centres[y] + rng.normal(size=(len(y), 6)) * 0.3
    parts = np.arange(len(y)).reshape(clients, size)
    return ct.Population(
        torch.tensor(x, dtype=torch.float32),
        torch.tensor(y),
        tuple(parts[:, :18]),
        tuple(parts[:, 18:]),
        2 * groups,
        planted=planted,
    )


class Run:
    """A method that goes on round by round with whoever is there."""

    def __init__(
        self, method: ct.Method, population: ct.Population, faults: Faults | None = None
    ) -> None:
        self.net = small_net(population.classes)
        self.key = Key(3)
        self.round = 0
        self.algorithm: Any = as_algorithm(method)
        engine: Any = SerialEngine(LocalRunner(population, self.net, SOLVER))
        self.engine = engine if faults is None else FaultyEngine(engine, faults)
        self.door = Clients(
            self.engine, classes=population.classes, layout=Layout.of(self.net), features=6
        )
        self.w0 = flatten(self.net)
        self.state = self.algorithm.init(lambda j: self.w0, population.clients)

    def step(self, cohort: list[int], able: list[int] | None = None) -> Any:
        self.door.able = None if able is None else np.array(able)
        now = round_of(self.door, cohort, self.key.at(self.round))
        self.state, notes = self.algorithm.step(self.state, now)
        self.round += 1
        return notes

    @property
    def member(self) -> list[int]:
        return self.state.member.tolist()


def signatures(run: Run) -> SignatureMemory:
    memory = run.state.memory.get(SignatureMemory)
    assert memory is not None
    return memory


class Recording:
    """Passes on what clients are asked, and keeps it."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.works: list[Work] = []

    def run(
        self, work: Work, ids: np.ndarray, models: Tensor, which: np.ndarray, *, key: Key
    ) -> Any:
        self.works.append(work)
        return self.engine.run(work, ids, models, which, key=key)


class Deaf:
    """Nobody hears what some clients answer to one kind of request."""

    def __init__(self, engine: Any, what: str, unheard: list[int]) -> None:
        self.engine = engine
        self.what = what
        self.unheard = unheard

    def run(
        self, work: Work, ids: np.ndarray, models: Tensor, which: np.ndarray, *, key: Key
    ) -> list[Reply]:
        what = (
            "histogram"
            if isinstance(work, Describe) and work.statistic == "histogram"
            else key.what
        )
        heard = ~np.isin(ids, self.unheard) | (what != self.what)
        return list(self.engine.run(work, ids[heard], models, which[heard], key=key))

    def set_population(self, population: ct.Population) -> None:
        self.engine.set_population(population)


@each
def test_newcomers_go_where_they_would_have_been(make: Callable[[], ct.Method]) -> None:
    population = halves()
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
    population = halves(60, 3, seed)
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
    run = Run(make(), halves())
    run.door.engine = Deaf(run.engine, "signatures", [2, 5])
    notes = run.step([0, 2, 3])
    assert (notes["unsigned"], notes["replies"]) == (2, 2)
    assert [i for i, group in enumerate(run.member) if group < 0] == [2, 5]
    assert signatures(run).leaves.tolist() == [0, 1, 3, 4, 6, 7, 8, 9, 10, 11]
    run.step([2, 4])
    run.step([5])
    assert run.member == halves().planted.tolist()


@each
def test_without_signatures_the_round_is_skipped_and_tried_again(
    make: Callable[[], ct.Method],
) -> None:
    class Silent:
        def run(self, *_: Any, **__: Any) -> list[Reply]:
            return []

    run = Run(make(), halves())
    run.door.engine = Silent()
    notes = run.step([0, 1])
    assert notes["skipped"]
    assert notes["unclustered"] == 1
    assert set(run.member) == {-1}
    run.door.engine = run.engine
    run.step([0, 1])
    assert run.member == halves().planted.tolist()


def test_a_client_that_sends_nothing_but_zeros_stays_without_a_group() -> None:
    run = Run(ct.fedclust(), halves(), Faults(hostile={3: "zeros", 4: "nan"}))
    assert run.step([3, 4, 5])["unsigned"] == 2
    assert [run.member[i] for i in (3, 4, 5)] == [-1, -1, 1]


@each
def test_newcomers_beyond_the_threshold_open_one_group_from_the_first_model(
    make: Callable[[], ct.Method],
) -> None:
    population = halves(12, groups=3)
    run = Run(replace(make(), server=adam(lr=0.01)), population)
    run.step([0, 1, 3], able=[0, 1, 3, 4, 6, 7, 9, 10])
    assert run.state.k == 2
    old = run.state.models
    rule = run.algorithm.method.assign
    opened, _ = rule(run.state, round_of(run.door, [0, 2, 5], Key(0).at(1)))
    assert torch.equal(opened.models[2], run.w0)
    notes = run.step([0, 2, 5])
    assert notes["opened"] == 1
    assert run.state.k == 3
    assert (run.member[2], run.member[5]) == (2, 2)
    run.step([8])
    assert run.member[8] == 2
    assert torch.equal(run.state.models[1], old[1])
    assert run.state.optimiser["m"].shape == run.state.models.shape


@each
def test_auto_does_not_cluster_three_replies_of_many(make: Callable[[], ct.Method]) -> None:
    run = Run(make(), halves())
    run.door.engine = Deaf(run.engine, "signatures", list(range(3, 12)))
    assert run.step([0, 1])["unclustered"] == 1
    run.door.engine = run.engine
    assert run.step([0, 1])["groups"] == 2
    few = Run(make(), halves())
    assert few.step([0, 1], able=[0, 1])["groups"] == 1
    numbered = Run(ct.fedclust(groups=2), halves())
    numbered.door.engine = Deaf(numbered.engine, "signatures", list(range(3, 12)))
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
        def run(self, *asked: Any, key: Key) -> list[Reply]:
            return [
                replace(
                    reply,
                    fields={
                        n: v.astype(kind) if n in ("delta", "subspace") else v
                        for n, v in reply.fields.items()
                    },
                )
                for reply in run.engine.run(*asked, key=key)
            ]

    run = Run(make(), halves())
    run.door.engine = Odd()
    run.step([0, 1])
    assert run.state.models.dtype == torch.float32
    assert (set(run.member) == {-1}) == (kind in (">f4", "longdouble"))


@each
def test_a_signature_too_small_for_float32_is_none(make: Callable[[], ct.Method]) -> None:
    class Tiny:
        def run(self, *asked: Any, key: Key) -> list[Reply]:
            for reply in (replies := run.engine.run(*asked, key=key)):
                for name in {"delta", "subspace"} & set(reply.fields):
                    reply.fields[name] = reply.fields[name].astype(np.float64)
                    reply.fields[name][reply.ids == 3] = 1e-60
            return list(replies)

    run = Run(make(), halves())
    run.door.engine = Tiny()
    assert run.step([0, 3])["unsigned"] == 1
    assert run.member[3] == -1


def test_a_number_of_groups_is_kept_to() -> None:
    run = Run(ct.fedclust(groups=2), halves(12, groups=3))
    run.step([0, 1], able=[0, 1, 3, 4, 6, 7, 9, 10])
    run.step([2, 5])
    assert run.state.k == 2
    assert min(run.member[2], run.member[5]) >= 0


def exchanged(population: ct.Population) -> ct.Population:
    """Clients 0 and 1 hold each other's training data."""
    return population.with_parts(
        (population.train[1], population.train[0], *population.train[2:]), population.test
    )


MOVING = {
    "fedclust": ct.fedclust(migration="per_label"),
    "pacfl": ct.pacfl(vectors=1, angle="principal", migration="per_label"),
    "flhc": ct.flhc(warmup_rounds=0, migration="per_label"),
}
each_moving = pytest.mark.parametrize("method", MOVING.values(), ids=MOVING)


@pytest.mark.parametrize("name", METHODS)
def test_drifted_clients_send_a_new_signature(name: str) -> None:
    population = halves()
    for one, expected in ((METHODS[name](), [0, 1]), (MOVING[name], [1, 0])):
        run = Run(one, population)
        run.step([0, 1])
        run.door.set_population(exchanged(population))
        notes = run.step([2])
        assert run.member[:2] == expected
        assert run.member[2:] == population.planted[2:].tolist()
    assert (notes["drifted"], notes["migrations"], run.state.k) == (2, 2, 2)


@each_moving
def test_a_drifted_client_that_is_not_heard_is_asked_until_it_is(method: ct.Method) -> None:
    population = halves()
    run = Run(method, population)
    run.step([0, 1], able=list(range(10)))
    run.door.engine = deaf = Deaf(run.engine, "newcomers", [0])
    run.door.set_population(exchanged(population))
    notes = run.step([10, 11])
    assert (notes["drifted"], notes["migrations"], notes["newcomers"], run.member[:2]) == (
        2,
        1,
        2,
        [0, 0],
    )
    deaf.unheard = []
    assert [run.step([2])["drifted"] for _ in range(2)] == [1, 0]
    assert run.member[:2] == [1, 0]


@each_moving
def test_a_client_that_has_left_is_not_asked_whether_its_data_drifted_or_not(
    method: ct.Method,
) -> None:
    population = halves()
    run = Run(method, population)
    run.step([0, 1])
    run.door.set_population(exchanged(population))
    assert run.step([2], able=list(range(1, 12)))["drifted_ids"].tolist() == [1]
    assert run.step([2])["drifted_ids"].tolist() == [0]


@pytest.mark.parametrize("lost_in", [0, 1])
def test_a_histogram_that_is_lost_is_no_drift(lost_in: int) -> None:
    run = Run(MOVING["fedclust"], halves())
    run.door.engine = deaf = Deaf(run.engine, "", [3])
    drifted = []
    for round in range(4):
        deaf.what = "histogram" if round == lost_in else ""
        drifted.append(run.step([0, 1])["drifted"])
    assert drifted == [0, 0, 0, 0]


def test_the_number_of_a_group_from_before_the_clustering_is_not_given_back() -> None:
    population = halves()
    run = Run(ct.flhc(warmup_rounds=1, migration="per_label"), population)
    run.step([0, 1])
    run.door.engine = Deaf(run.engine, "signatures", [0])
    run.door.set_population(exchanged(population))
    run.step([2, 3])
    assert run.member[:2] == [-1, 0]
    run.step([0])
    assert run.member[:2] == [1, 0]


@each_moving
def test_when_all_drift_at_once_groups_stay(method: ct.Method) -> None:
    """More of the same data is a drift by counts, but no reason to begin anew."""
    population = halves()
    early = population.with_parts(tuple(part[:8] for part in population.train), population.test)
    run = Run(method, early)
    run.step([0, 1])
    run.door.set_population(population)
    assert run.step([0, 1])["drifted"] == 12
    assert (run.state.k, run.member) == (2, population.planted.tolist())


def test_groups_start_from_the_first_model_and_train_apart() -> None:
    run = Run(ct.fedclust(), halves())
    run.step([0, 2])
    assert torch.equal(run.state.models[1], run.w0)
    assert not torch.equal(run.state.models[0], run.w0)


def test_flhc_is_fedavg_before_it_groups_and_goes_on_from_the_joint_model() -> None:
    population = halves()
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


def test_fedclust_by_hand() -> None:
    """Everybody trains w_0 for an epoch; the distances are those between final layers."""
    run = Run(ct.fedclust(warmup_epochs=1, linkage="complete"), halves())
    run.step([0])
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    work = ct.Train(ct.fedclust().local.objective, epochs=1)
    asked = np.arange(12)
    reply = run.door.measure(
        work, asked, run.w0[None], 0 * asked, key=run.key.at(0).of("assign").of("signatures")
    )
    final = np.stack(
        [flatten_final(net, run.w0 + torch.from_numpy(d)) for d in reply.fields["delta"]]
    )
    np.testing.assert_allclose(signatures(run).proximity, cdist(final, final), atol=1e-5)
    np.testing.assert_allclose(
        signatures(run).tree[:, 2],
        linkage(squareform(cdist(final, final), checks=False), "complete")[:, 2],
        atol=1e-5,
    )


def flatten_final(net: nn.Module, vector: Tensor) -> np.ndarray:
    views = Layout.of(net).views(vector)
    return torch.cat([views["2.weight"].ravel(), views["2.bias"]]).numpy()


@pytest.mark.parametrize(("bias", "values"), [(True, 850), (False, 840)])
def test_what_fedclust_uploads_of_lenet(bias: bool, values: int) -> None:
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(40, 3, 32, 32, generator=rng)
    y = torch.arange(40) % 10
    parts = tuple(np.arange(40).reshape(4, 10))
    population = ct.Population(x, y, parts, parts, 10)
    method = ct.fedclust(bias=bias, warmup_epochs=1, threshold=1.0)
    net = MODELS["lenet5"]().build((3, 32, 32), 10)
    door = Clients(
        SerialEngine(LocalRunner(population, net, SOLVER)),
        classes=10,
        layout=Layout.of(net),
        features=3072,
    )
    w0 = flatten(net)
    algorithm = as_algorithm(method)
    algorithm.step(algorithm.init(lambda j: w0, 4), round_of(door, [0], Key(0).at(0)))
    down, up = (b for b in door.ledger.blocks if b.what == "signatures")
    assert down.bytes.tolist() == [4 * 62006] * 4
    assert up.bytes.tolist() == [4 * values + 8] * 4  # and two numbers: samples and loss
    assert (down.models.tolist(), up.models.tolist()) == ([1] * 4, [0] * 4)


def test_pacfl_sends_no_model_for_a_signature() -> None:
    run = Run(ct.pacfl(vectors=2), halves())
    run.step([0])
    down, up = (b for b in run.door.ledger.blocks if b.what == "signatures")
    assert not down.bytes.any()
    assert up.bytes.tolist() == [4 * 6 * 2 * 4 + 4] * 12


def test_any_layer_can_be_named() -> None:
    layout = Layout.of(small_net())
    assert span(layout, "final", True) == span(layout, "2", True) == (56, 92)
    assert span(layout, "final", False) == span(layout, "2.weight", True) == (56, 88)
    assert span(layout, "2.bias", False) == (88, 92)
    with pytest.raises(
        ct.ConfigError,
        match=r"algorithm.layer: unknown layer, got 'fc'; expected 'final' or one of 0, 2",
    ):
        Run(ct.fedclust(layer="fc"), halves()).step([0])


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            lambda: ct.fedclust(threshold=0.0),
            "threshold: out of range, got 0.0; expected a number > 0 or 'auto'",
        ),
        (
            lambda: ct.fedclust(threshold="atuo"),
            "expected a number > 0 or 'auto'; did you mean 'auto'?",
        ),
        (lambda: ct.pacfl(threshold=181), "expected a number > 0 and <= 180 or 'auto'"),
        (lambda: ct.flhc(metric="l3"), "expected one of 'l1', 'l2', 'cosine'"),
        (
            lambda: ct.fedclust(linkage="weighted"),
            "expected one of 'average', 'complete', 'single', 'ward'",
        ),
        (
            lambda: ct.fedclust(groups=2, threshold=1.0),
            "a number of groups and a threshold, got 2 and 1.0",
        ),
    ],
)
def test_wrong_options_are_named(make: Callable[[], ct.Method], line: str) -> None:
    with pytest.raises(ct.ConfigError) as error:
        make()
    assert line in str(error.value)


def test_more_groups_than_clients_are_refused() -> None:
    with pytest.raises(ct.ConfigError, match="got 13; expected 1 to 12"):
        Run(ct.pacfl(groups=13), halves()).step([0])


def test_another_objective_is_that_of_the_signatures_too() -> None:
    for method in (ct.fedclust(), ct.flhc(migration="per_label")):
        run = Run(override(method, objective=proximal(0.5)), halves())  # type: ignore[arg-type]
        run.engine = Recording(run.engine)
        run.door.engine = run.engine
        for _ in range(12):
            run.step([0, 1])
        trained = [work for work in run.engine.works if isinstance(work, ct.Train)]
        assert len({work.upload for work in trained} | {work.epochs for work in trained}) > 1
        assert {work.objective for work in trained} == {proximal(0.5)}


@each
def test_a_checkpoint_holds_groups_that_were_opened(
    make: Callable[[], ct.Method], tmp_path: Path
) -> None:
    from coterie.config import check

    tables = {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 12}},
        "model": {"name": "mclr"},
        "train": {"rounds": 4, "clients_per_round": 4},
        "algorithm": {"name": "fedclust", "threshold": 0.5},
    }
    folder = RunFolder.create(tmp_path / "run", check(tables).resolved())
    runs = [Run(make(), halves(12, groups=3)) for _ in range(2)]
    for run in runs:
        run.step([0, 1], able=[0, 1, 3, 4, 6, 7, 9, 10])
        run.step([2])
    assert runs[0].state.k == 3
    folder.save_checkpoint(runs[1].state, 2, {})
    saved = folder.latest_checkpoint()
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
    memory = Run(ct.fedclust(), halves())
    memory.step([0])
    kept = signatures(memory)
    assert kept.tree.shape == (11, 4)
    assert kept.proximity is not None
    assert kept.proximity.shape == (12, 12)
    assert kept.signature.shape == (12, 36)
    many = Run(ct.pacfl(vectors=1), halves(502))
    many.step([0])
    assert signatures(many).proximity is None


# --- real data, and speed -------------------------------------------------------------------------


def cifar(**partition: Any) -> ct.Population:
    if not (ROOT / "cifar10" / "train.parquet").is_file():
        pytest.skip("no cifar10 under COTERIE_DATA")
    return ct.load("cifar10", root=str(ROOT), pixels="unit", partition=partition)


def test_planted_label_groups_of_cifar10_are_found_in_one_round() -> None:
    data = cifar(kind="planted", clients=10, groups=2, size=250)
    solver = ct.Solver(epochs=3, batch_size=10, lr=0.01, momentum=0.5)
    result = ct.run(
        ct.fedclust(),
        data=data,
        model="lenet5",
        local=solver,
        rounds=1,
        clients_per_round=1,
        engine="serial",
    )
    assert result.rows[0]["agreement"]["ari"] == 1.0
    assert result.rows[0]["notes"]["groups"] == 2


def test_pacfl_describes_and_clusters_100_clients_of_cifar10_in_time() -> None:
    data = cifar(kind="dirichlet", clients=100, beta=0.1)
    begun = time.process_time()
    u = torch.from_numpy(subspaces(data, np.arange(100), 3))
    for angle in (entry_min, principal_angles):
        agglomerate(angle(u), "weighted")
    assert time.process_time() - begun < 20


@pytest.mark.parametrize("metric", [l1, l2, cosine_distance])
def test_2000_clients_are_clustered_in_time(metric: Callable[[Tensor], np.ndarray]) -> None:
    planted = np.arange(2000) % 4
    rows = torch.randn(2000, 850) + 3 * torch.randn(4, 850)[torch.from_numpy(planted)]
    begun = time.process_time()
    found = agglomerate(metric(rows))
    assert time.process_time() - begun < 3
    assert agreement(found.labels, planted) == {"ari": 1.0, "nmi": 1.0}


def test_groups_of_a_state_are_those_of_the_tree() -> None:
    run = Run(ct.fedclust(), blobs(clients=12))
    run.step([0])
    memory = signatures(run)
    cut = fcluster(memory.tree, memory.threshold, "distance")
    assert same_partition(cut, run.state.member)
    assert isinstance(run.state, Groups)
