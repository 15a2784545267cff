"""Concepts that clients see in turn, and streams whose concepts differ in where the border lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import coterie as ct
from coterie.core.keys import Key
from coterie.data.loading import populate
from coterie.data.partitions import PARTITIONS
from coterie.data.population import Population
from coterie.data.shifts import SHIFTS, FederationSnapshot, Shift
from coterie.data.sources import SOURCES
from coterie.errors import Code, DataError
from tests.conftest import blobs
from tests.refusals import refuses
from tests.simulations import play_covering

MATRIX = ((0, 0, 0), (0, 1, 0), (0, 1, 1))


def stream(function: str = "sine", clients: int = 6, samples: int = 240) -> Population:
    """Every client has its samples as each concept sees them."""
    source = SOURCES["drift_stream"](None, function=function, samples=samples)
    groups = len(source.columns)
    parts = PARTITIONS["planted"](
        source,
        Key(0),
        clients=clients,
        groups=groups,
        how="columns",
        columns=tuple(source.columns),
        copies=True,
    )
    return populate(source, parts)


def steps(shift: Shift, population: Population, rounds: int) -> Iterator[FederationSnapshot]:
    snapshot = FederationSnapshot.start(population)
    for t in range(rounds):
        snapshot = shift(snapshot, population, t, np.ones(population.clients, bool), Key(0, t))
        yield snapshot


def concepts_of(population: Population, rows: Sequence[np.ndarray]) -> list[set[int]]:
    samples = len(population.y) // population.copies
    return [set((held // samples).tolist()) for held in rows]


def test_clients_see_the_concepts_of_the_matrix() -> None:
    first = stream()
    shift = SHIFTS["concepts"](matrix=MATRIX, every=2)
    for t, snapshot in enumerate(steps(shift, first, 8)):
        now = snapshot.population
        # The last row holds to the end, and three columns serve six clients.
        wanted = np.tile(MATRIX[min(t // 2, 2)], 2)
        assert now.planted is not None
        assert now.planted.tolist() == wanted.tolist()
        for rows, before in ((now.train, first.train), (now.test, first.test)):
            assert concepts_of(now, rows) == [{int(c)} for c in wanted]
            for held, old in zip(rows, before, strict=True):
                assert (held % 240).tolist() == (old % 240).tolist()
    reversed_labels = 1 - first.y[first.train[0]]
    twin = first.train[0] + 240
    assert torch.equal(first.y[twin], reversed_labels)


def test_unchanged_clients_keep_the_identical_arrays() -> None:
    first = stream()
    before = FederationSnapshot.start(first)
    for t, snapshot in enumerate(steps(SHIFTS["concepts"](matrix=MATRIX, every=2), first, 6)):
        for client in np.setdiff1d(np.arange(6), snapshot.changed):
            assert snapshot.population.train[client] is before.population.train[client]
        # At the start every second client leaves the concept that the partition gave it.
        assert snapshot.changed.tolist() == {0: [1, 3, 5], 2: [1, 4], 4: [2, 5]}.get(t, [])
        before = snapshot


def test_fresh_samples_are_never_seen_again() -> None:
    first = stream()
    seen: list[set[int]] = [set() for _ in range(6)]
    snapshots = list(steps(SHIFTS["concepts"](matrix=MATRIX, fresh=True, every=1), first, 3))
    for snapshot in snapshots:
        for client, rows in enumerate(snapshot.population.train):
            held = set((rows % 240).tolist())
            assert held
            assert not held & seen[client]
            seen[client] |= held
        for rows, old in zip(snapshot.population.test, first.test, strict=True):
            assert (rows % 240).tolist() == (old % 240).tolist()
    assert [len(s) for s in seen] == [len(rows) for rows in first.train]


def test_resuming_in_the_middle_is_the_same() -> None:
    first = stream()
    shift = SHIFTS["concepts"](matrix=MATRIX, every=2, fresh=True)
    straight = list(steps(shift, first, 6))
    held = straight[2].population
    copied = FederationSnapshot(
        replace(held, train=tuple(rows.copy() for rows in held.train)), straight[2].present.copy()
    )
    for t in range(3, 6):
        copied = shift(copied, first, t, np.ones(6, bool), Key(0, t))
        assert copied.events == straight[t].events
        for rows, wanted in zip(copied.population.train, straight[t].population.train, strict=True):
            assert rows.tolist() == wanted.tolist()


def test_what_cannot_be_is_said_before_the_first_round() -> None:
    shift = SHIFTS["concepts"](matrix=MATRIX)
    with refuses(DataError, "does-not-fit", "shift.matrix"):
        list(steps(shift, blobs(), 1))
    shift = SHIFTS["concepts"](matrix=[[0, 2]])
    with refuses(DataError, "out-of-range", "shift.matrix"):
        list(steps(shift, stream(), 1))


@pytest.mark.parametrize(
    ("function", "point", "labels"),
    [
        # 10 (0.5 + 0.35) = 8.5 is above 8 and 7 alone.
        ("sea", (0.5, 0.35, 0.9), (0, 1, 0, 1)),
        ("sea", (0.1, 0.1, 0.9), (1, 1, 1, 1)),
        # sin(0.5) = 0.479.
        ("sine", (0.5, 0.47), (1, 0)),
        ("sine", (0.5, 0.49), (0, 1)),
        # 0.1 from the centre of the first circle, 0.3 from that of the second.
        ("circle", (0.3, 0.5), (0, 1)),
        ("circle", (0.6, 0.7), (1, 0)),
    ],
)
def test_borders_by_hand(function: str, point: tuple[float, ...], labels: tuple[int, ...]) -> None:
    from coterie.data.sources.generated import concept_labels

    found = concept_labels(function, np.array([point]))  # type: ignore[arg-type]
    assert [int(of_concept[0]) for of_concept in found] == list(labels)


@pytest.mark.parametrize("kind", ["serial", "pool"])
def test_feddrift_follows_a_stream_that_turns(kind: str) -> None:
    """Under the second concept of ``sine`` all labels are reversed."""
    population = stream(clients=12, samples=1200)
    # The small network of the tests has six inputs.
    population = replace(population, x=F.pad(population.x - 0.5, (0, 4)))
    matrix = ((0,), (0, 0, 1))
    shift = SHIFTS["concepts"](matrix=matrix, every=6)
    method = ct.feddrift(every=3, delta=0.2)
    last = play_covering(method, population, 13, kind, shift=shift)[-1]
    drifted = np.arange(12) % 3 == 2
    assert len(set(last.groups.member[drifted])) == len(set(last.groups.member[~drifted])) == 1
    assert last.row["agreement"]["ari"] == 1


def test_columns_that_are_no_labels_are_refused() -> None:
    source = SOURCES["drift_stream"](None, samples=100)
    cases: list[tuple[tuple[str, str], Code]] = [
        (("concept_0", "concept_9"), "unknown-choice"),
        (("concept_0", "far"), "does-not-fit"),
    ]
    for columns, code in cases:
        wrong = replace(source, columns={**source.columns, "far": np.full(100, 7)})
        with refuses(DataError, code, "data.partition.columns"):
            PARTITIONS["planted"](
                wrong, Key(0), clients=4, groups=2, how="columns", columns=columns
            )
