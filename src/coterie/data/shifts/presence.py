"""Clients that join late, and clients that leave for good."""

from __future__ import annotations

import numpy as np

from coterie.config.arguments import validated
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.data.shifts.shift import (
    BEFORE,
    Count,
    PositiveShare,
    Round,
    RoundSchedule,
    Shift,
    clients_event,
    refuse_both,
    wave_size,
)
from coterie.data.shifts.snapshot import FederationSnapshot, Mask
from coterie.errors import ConfigError


@validated
def arrivals(
    round: Count = 50,
    count: Count | None = None,
    fraction: PositiveShare | None = None,
    waves: Count = 1,
    every: Count = 1,
) -> Shift:
    """Clients that join late: some are absent until a round, in one wave or several.

    Args:
        round: the round of the first wave.
        count: clients in each wave.
        fraction: share of all clients in each wave, instead of ``count``; default 0.1.
    """
    refuse_both(count, fraction)
    schedule = RoundSchedule(round, every=every, times=waves)

    def shift(
        snapshot: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        size = wave_size(count, fraction, initial.clients)
        if round and not schedule.due(round):
            return snapshot.without_events()
        if size * waves >= initial.clients:
            raise _nobody_left(f"{waves} of {size} clients", initial.clients)
        # `BEFORE` gives the same key in every round, so who is late is always drawn the same. A
        # resumed run needs no memory of it.
        order = key.at(BEFORE).of("late").generator().permutation(initial.clients)
        late = order[: size * waves]
        present = snapshot.present.copy()
        if round == 0:
            present[late] = False
            if not present.any():
                raise _nobody_left("the arrivals of several tables", initial.clients)
            return snapshot.with_present(present, clients_event("awaited", late))
        wave = schedule.wave(round)
        newcomers = late[wave * size : (wave + 1) * size]
        present[newcomers] = True
        return snapshot.with_present(present, clients_event("arrivals", newcomers))

    return shift


@validated
def departures(
    round: Round = 50,
    count: Count | None = None,
    fraction: PositiveShare | None = None,
    waves: Count = 1,
    every: Count = 1,
) -> Shift:
    """Clients that leave for good, in one wave or several.

    Args:
        round: the round of the first wave.
        count: clients in each wave; one client always stays.
        fraction: share of all clients in each wave, instead of ``count``; default 0.1.
    """
    refuse_both(count, fraction)
    schedule = RoundSchedule(round, every=every, times=waves)

    def shift(
        snapshot: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        # Computed in every round, so that a wave that is too large is refused in the first one.
        size = wave_size(count, fraction, initial.clients)
        candidates = np.flatnonzero(snapshot.present)
        if not schedule.due(round) or len(candidates) < 2:
            return snapshot.without_events()
        # A federation without clients could not go on.
        leaving = min(size, len(candidates) - 1)
        gone = key.generator().choice(candidates, leaving, replace=False)
        present = snapshot.present.copy()
        present[gone] = False
        return snapshot.with_present(present, clients_event("departures", gone))

    return shift


def _nobody_left(what: str, clients: int) -> ConfigError:
    left = f"{what} leave none of the {clients} clients for the first round"
    return ConfigError("out-of-range", "shift.waves", left, allowed="fewer or smaller waves")
