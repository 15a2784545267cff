"""What labels mean changes: concepts that clients see in turn, or labels that turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from coterie.config.arguments import validated
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.data.shifts.shift import (
    Count,
    Pool,
    PositiveShare,
    Round,
    RoundSchedule,
    Shift,
    clients_event,
    eligible_clients,
    refuse_both,
    require_classes,
    wave_size,
)
from coterie.data.shifts.snapshot import FederationSnapshot, Mask
from coterie.errors import DataError

Concept = Annotated[int, Field(ge=0)]
Row = Annotated[tuple[Concept, ...], Field(min_length=1)]

WHOLE = (0, 1)


@validated
def concepts(
    matrix: Annotated[tuple[Row, ...], Field(min_length=1)], every: Count = 10, fresh: bool = False
) -> Shift:
    """In time step ``t``, client ``i`` has its samples as concept ``matrix[t][i]`` sees them.

    For federations in which every group has a copy of all samples (`planted` with ``copies``): a
    concept is one of the copies. The true group of a client is its concept.

    Args:
        matrix: a row for each time step, with a concept for each client. A row with fewer entries
            than clients is repeated. The last row is used until the end.
        every: number of rounds in a time step.
        fresh: whether a client's training samples are divided among the time steps, so that none is
            used in two of them.

    Source: the experiments of Jothimurugesan et al., Federated Learning under Distributed Concept
    Drift (2023).
    """

    def shift(
        snapshot: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        if round == 0:
            _check(initial, matrix)
        if round % every or round // every >= len(matrix):
            return snapshot.without_events()
        step = round // every
        clients = np.arange(initial.clients)
        concept = np.array(matrix[step])[clients % len(matrix[step])]
        before = snapshot.population
        portion = (step, len(matrix)) if fresh else WHOLE
        now = replace(
            before,
            train=_seen(before.train, initial.train, initial, concept, portion),
            test=_seen(before.test, initial.test, initial, concept, WHOLE),
            planted=concept,
        )
        changed = [
            client
            for client in range(initial.clients)
            if now.train[client] is not before.train[client]
            or now.test[client] is not before.test[client]
        ]
        if not changed:
            return snapshot.without_events()
        return snapshot.with_population(now, changed, clients_event("concepts", np.array(changed)))

    return shift


def _check(initial: Population, matrix: tuple[Row, ...]) -> None:
    largest = max(max(row) for row in matrix)
    if initial.copies < 2 or initial.planted is None:
        what = "every group must have a copy of all samples"
        expected = "the partition 'planted' with copies = true"
        raise DataError("does-not-fit", "shift.matrix", what, allowed=expected)
    if largest >= initial.copies:
        expected = f"concepts from 0 to {initial.copies - 1}, one for each group of the federation"
        raise DataError("out-of-range", "shift.matrix", found=largest, allowed=expected)


def _seen(
    before: tuple[IntArray, ...],
    first: tuple[IntArray, ...],
    initial: Population,
    concept: IntArray,
    portion: tuple[int, int],
) -> tuple[IntArray, ...]:
    """The rows of each client as its concept sees them; ``portion`` says which of how many portions
    it has."""
    samples = len(initial.y) // initial.copies
    held = []
    for client, rows in enumerate(first):
        number, portions = portion
        now = concept[client] * samples + np.array_split(rows % samples, portions)[number]
        # A client whose data did not change keeps the identical array.
        held.append(before[client] if np.array_equal(now, before[client]) else now)
    return tuple(held)


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

    This holds for training and test samples, and for samples that a client has not received yet
    (`incremental`). If the federation has planted groups, the clients form new ones, one for each
    group that they came from.

    Args:
        count: clients in each wave.
        fraction: share of the pool in each wave, instead of ``count``; default 0.1.
        by: the number that is added to a label.
        pool: ``warm``: clients with a group; ``all``: all clients present.
        waves: number of waves; a client can be chosen again.
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
        what = f"rotate_labels needs samples that no two clients share, but {shared} are shared"
        raise DataError("does-not-fit", "shift.kind", what, allowed="a partition without overlap")


def _rows_of(now: Population, initial: Population, clients: IntArray) -> IntArray:
    """The samples that these clients hold, or will receive."""
    # If no client holds a sample of the first round now, `incremental` has yet to release it. If
    # another client holds it, it was swapped away.
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
