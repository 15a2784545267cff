"""FlexCFL's swaps: clients exchange all their data, or the samples of one label each."""

from __future__ import annotations

from itertools import chain

import numpy as np

from coterie.config.arguments import validated
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.data.shifts.shift import (
    Count,
    Pool,
    Probability,
    Round,
    RoundSchedule,
    Shift,
    eligible_clients,
    random_pairs,
    require_classes,
)
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

    The pool is paired at random. Each of its ``floor(n / 2)`` disjoint pairs is swapped
    independently, so that about ``p n`` clients move in a round. A planted group moves with the
    data.

    Args:
        pool: ``warm``: clients with a group; ``all``: all clients present.
        stop: the round before which it ends; ``None``: never.

    Source: Duan et al., FlexCFL (2022), section 5.3.
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


@validated
def swap_part(
    p: Probability = 0.05,
    pool: Pool = "warm",
    start: Round = 0,
    stop: Count | None = None,
    every: Count = 1,
) -> Shift:
    """Pairs of clients exchange all samples of one label each, each pair with probability p.

    Pairs are made as in `swap_all`. A label that only the first client has is exchanged for one
    that only the second has; a label counts if the client has it in training and in test. A pair
    without such labels is skipped; the authors' code ends the round's swaps there.

    Args:
        pool: ``warm``: clients with a group; ``all``: all clients present.
        stop: the round before which it ends; ``None``: never.

    Source: Duan et al., FlexCFL (2022), section 5.3.
    """
    schedule = RoundSchedule(start, stop, every)

    def shift(
        snapshot: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        if not schedule.due(round):
            return snapshot.without_events()
        before = snapshot.population
        require_classes("swap_part", before)
        train = list(before.train)
        test = list(before.test)
        # A stream apart from that of the pairs: `swap_all` with this key moves the same pairs.
        rng = key.of("labels").generator()
        pairs = []
        traded = []
        for a, b in random_pairs(eligible_clients(snapshot, warm, pool), p, key):
            labels = _labels_to_trade(before, a, b, rng)
            if labels is None:
                continue
            for held in (train, test):
                held[a], held[b] = _trade(before.labels, held[a], held[b], labels)
            pairs.append([a, b])
            traded.append(list(labels))
        if not pairs:
            return snapshot.without_events()
        event = {"shift": "swap_part", "pairs": pairs, "labels": traded}
        moved = before.with_parts(tuple(train), tuple(test))
        return snapshot.with_population(moved, chain.from_iterable(pairs), event)

    return shift


def _labels_to_trade(
    population: Population, a: int, b: int, rng: np.random.Generator
) -> tuple[int, int] | None:
    """A label of ``a`` that ``b`` has not, and one of ``b`` that ``a`` has not, or ``None``."""
    of_a = _labels_in_both_splits(population, a)
    of_b = _labels_in_both_splits(population, b)
    only_a = np.setdiff1d(of_a, of_b)
    only_b = np.setdiff1d(of_b, of_a)
    if not len(only_a) or not len(only_b):
        return None
    return int(rng.choice(only_a)), int(rng.choice(only_b))


def _labels_in_both_splits(population: Population, client: int) -> IntArray:
    labels = population.labels
    # In both, or a client could be tested on a label that it gave away, or has never seen.
    return np.intersect1d(labels[population.train[client]], labels[population.test[client]])


def _trade(
    y: IntArray, mine: IntArray, theirs: IntArray, labels: tuple[int, int]
) -> tuple[IntArray, IntArray]:
    """The rows of both clients after one label each has changed hands."""
    give = y[mine] == labels[0]
    take = y[theirs] == labels[1]
    after_mine = np.concatenate([mine[~give], theirs[take]])
    after_theirs = np.concatenate([theirs[~take], mine[give]])
    return after_mine, after_theirs
