"""FlexCFL: drifted clients migrate, and its runs resume."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

import coterie as ct
from coterie.core.keys import Key
from coterie.data.shifts import SHIFTS, FederationSnapshot
from coterie.runs.loop import StartingPoint
from tests.conftest import blobs, disjoint_neighbours
from tests.simulations import play_covering


def test_a_shifted_run_resumes_from_its_snapshot() -> None:
    population = blobs()
    shift = SHIFTS["swap_all"](p=0.8, pool="all")
    method = ct.flexcfl(groups=2, alpha=2)
    straight = play_covering(method, population, 5, shift=shift)
    resumed = play_covering(
        method,
        population,
        5,
        shift=shift,
        start=StartingPoint(3, straight[2].groups, straight[2].snapshot),
    )
    for a, b in zip(straight[3:], resumed, strict=True):
        assert torch.equal(a.groups.models, b.groups.models)
        assert a.row["drifted"] == b.row["drifted"]


def swapped(
    snapshot: FederationSnapshot, initial: ct.Population, round: int, warm: np.ndarray, key: Key
) -> FederationSnapshot:
    """In round 3 the clients of two populations exchange their data pairwise."""
    if round != 3:
        return replace(snapshot, events=(), changed=np.empty(0, np.int64))
    order = np.arange(initial.clients) ^ 1
    train = tuple(initial.train[i] for i in order)
    test = tuple(initial.test[i] for i in order)
    moved = initial.with_parts(train, test)
    return FederationSnapshot(
        moved, snapshot.present, ({"shift": "exchange"},), np.arange(initial.clients)
    )


def test_drifted_clients_migrate_and_static_groups_do_not() -> None:
    population = disjoint_neighbours()
    moving = play_covering(ct.flexcfl(groups=2, alpha=3), population, 5, shift=swapped)
    static = play_covering(
        ct.flexcfl(groups=2, alpha=3, migration="none"), population, 5, shift=swapped
    )
    assert moving[2].row["drifted"] == 0
    assert (moving[3].row["drifted"], moving[3].row["migrations"], moving[3].row["missed"]) == (
        12,
        12,
        0,
    )
    assert np.array_equal(moving[3].groups.member, 1 - moving[2].groups.member)
    assert static[3].row["missed"] == 12
    assert np.array_equal(static[3].groups.member, static[2].groups.member)
    assert moving[4].row["accuracy"] > static[4].row["accuracy"] + 0.3


def test_random_assignment_is_for_newcomers_not_for_migration() -> None:
    population = disjoint_neighbours()
    rows = play_covering(
        ct.flexcfl(groups=2, alpha=3, ablation="rac"), population, 5, shift=swapped
    )
    clustered_ones = np.flatnonzero(rows[0].groups.member >= 0)[:6]
    assert rows[3].row["drifted"] == 12
    groups = {(int(i) % 2, int(rows[3].groups.member[i])) for i in clustered_ones}
    assert len({parity for parity, _ in groups}) == len(groups) <= 2
