"""FlexCFL's "swap all": clients exchange all their data."""

from __future__ import annotations

from itertools import chain

import numpy as np

from coterie.config.arguments import validated
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.data.shifts.selection import (
    Count,
    Pool,
    Probability,
    Round,
    RoundSchedule,
    eligible_clients,
    random_pairs,
)
from coterie.data.shifts.shift import Shift
from coterie.data.shifts.snapshot import FederationSnapshot, Mask


@validated
def swap_all(
    p: Probability = 0.05,
    pool: Pool = "warm",
    start: Round = 0,
    stop: Count | None = None,
    every: Count = 1,
) -> Shift:
    """Pairs of clients exchange all their data, training and test, each pair with probability p.

    The pool is paired off at random. Of its ``floor(n / 2)`` disjoint pairs each is swapped
    independently, so that about ``p n`` clients move in a round. A planted group moves with the
    data.

    Args:
        p: probability of a pair.
        pool: ``warm``: clients with a group; ``all``: all clients present.
        start: first round.
        stop: the round before which it ends; ``None``: never.
        every: rounds from one time to the next.

    Source: Duan et al., FlexCFL (2022), section 5.3.

    Example:
        >>> import torch
        >>> y = torch.tensor([0, 1])
        >>> p = Population(torch.zeros(2, 1), y, ([0], [1]), ([], []), classes=2)
        >>> swap = swap_all(p=1.0, pool="all")
        >>> start = FederationSnapshot.start(p)
        >>> snapshot = swap(start, p, 0, np.zeros(2, bool), Key(0, round=0))
        >>> [rows.tolist() for rows in snapshot.population.train], snapshot.changed.tolist()
        ([[1], [0]], [0, 1])
    """
    schedule = RoundSchedule(start, stop, every)

    def shift(
        snapshot: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        if not schedule.due(round):
            return snapshot.without_events()
        # Each pair by itself, not one pair with probability p: of the two readings of the paper
        # only this one gives the transfers of its Fig. 6.
        pairs = random_pairs(eligible_clients(snapshot, warm, pool), p, key)
        if not pairs:
            return snapshot.without_events()
        before = snapshot.population
        # The client whose data each client has from now on.
        source = np.arange(before.clients)
        for a, b in pairs:
            source[a] = b
            source[b] = a
        train = tuple(before.train[i] for i in source)
        test = tuple(before.test[i] for i in source)
        planted = before.planted
        if planted is not None:
            planted = planted[source]
        moved = before.with_parts(train, test, planted)
        event = {"shift": "swap_all", "pairs": [list(pair) for pair in pairs]}
        return snapshot.with_population(moved, chain.from_iterable(pairs), event)

    return shift
