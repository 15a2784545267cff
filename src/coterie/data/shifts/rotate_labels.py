"""A planted change of concept: what labels mean changes for some clients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from coterie.config.arguments import validated
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.data.shifts.selection import (
    Count,
    Pool,
    PositiveShare,
    Round,
    RoundSchedule,
    clients_event,
    eligible_clients,
    refuse_both,
    wave_size,
)
from coterie.data.shifts.shift import Shift, require_classes
from coterie.data.shifts.snapshot import FederationSnapshot, Mask
from coterie.errors import DataError


@validated
def rotate_labels(
    round: Round = 50,
    count: Count | None = None,
    fraction: PositiveShare | None = None,
    by: Count = 1,
    pool: Pool = "all",
    waves: Count = 1,
    every: Count = 1,
) -> Shift:
    """A planted change of concept: for some clients every label y becomes (y + by) mod c.

    That holds for training and test. Samples that a client has yet to receive (`incremental`) turn
    with it. Where the federation has planted groups, the clients form new ones, one for each group
    they came from.

    Args:
        round: of the first wave.
        count: clients in each wave.
        fraction: share of the pool in each wave, instead of ``count``; default 0.1.
        by: how far labels turn.
        pool: ``warm``: clients with a group; ``all``: all clients present.
        waves: number of waves; a client can be chosen again.
        every: rounds from one wave to the next.

    Raises:
        DataError: in round 0, if two clients share a sample: it would turn at both.

    Example:
        >>> y = torch.tensor([0, 2])
        >>> p = Population(torch.zeros(2, 1), y, ([0], [1]), ([], []), classes=3)
        >>> rotate = rotate_labels(0, fraction=1.0)
        >>> start = FederationSnapshot.start(p)
        >>> snapshot = rotate(start, p, 0, np.zeros(2, bool), Key(0, round=0))
        >>> snapshot.population.y.tolist(), p.y.tolist()
        ([1, 0], [0, 2])
    """
    refuse_both(count, fraction)
    schedule = RoundSchedule(round, every=every, times=waves)

    def shift(
        snapshot: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        candidates = eligible_clients(snapshot, warm, pool)
        if round == 0:
            # What a later wave would refuse is refused before anything is computed.
            require_classes("rotate_labels", initial)
            wave_size(count, fraction, initial.clients)
            _refuse_shared_samples(initial)
        if not schedule.due(round) or not len(candidates):
            return snapshot.without_events()
        # A count is held against all clients, since a pool of warm ones may be small at first.
        whole = len(candidates) if count is None else initial.clients
        size = min(len(candidates), wave_size(count, fraction, whole))
        clients = np.sort(key.generator().choice(candidates, size, replace=False))
        before = snapshot.population
        rows = torch.from_numpy(_rows_of(before, initial, clients))
        # The labels are the only data that a shift copies; those of the round before stay as they
        # were.
        y = before.y.clone()
        y[rows] = (y[rows] + by) % before.classes
        event = {**clients_event("rotate_labels", clients), "by": by}
        turned = replace(before, y=y, planted=_regrouped(before.planted, clients))
        return snapshot.with_population(turned, clients, event)

    return shift


def _refuse_shared_samples(initial: Population) -> None:
    # A client that holds a sample twice, as Ditto's recipe allows, shares it with no other client.
    held = [
        np.union1d(train, test) for train, test in zip(initial.train, initial.test, strict=True)
    ]
    shared = int((np.bincount(np.concatenate(held)) > 1).sum())
    if shared:
        raise DataError(
            "shift: rotate_labels needs samples that no two clients share, "
            f"got {shared} shared samples; expected a partition without overlap"
        )


def _rows_of(now: Population, initial: Population, clients: IntArray) -> IntArray:
    """The samples that these clients hold, or will receive."""
    # A sample of the first round that no client holds now is one that `incremental` has yet to
    # release; one that another client holds was swapped away.
    holders = np.bincount(np.concatenate([*now.train, *now.test]), minlength=len(now.y))
    held = np.concatenate([parts[i] for parts in (now.train, now.test) for i in clients])
    first = np.concatenate([initial.train[i] for i in clients])
    to_come = first[holders[first] == 0]
    return np.union1d(held, to_come)


def _regrouped(planted: IntArray | None, clients: IntArray) -> IntArray | None:
    """The true groups after these clients left theirs, numbered from 0 without gaps."""
    if planted is None:
        return None
    group = planted.copy()
    group[clients] += int(planted.max()) + 1
    return np.unique(group, return_inverse=True)[1].astype(np.int64)
