"""Clients that join late."""

from __future__ import annotations

from coterie.config.arguments import validated
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.data.shifts.selection import (
    BEFORE,
    Count,
    PositiveShare,
    RoundSchedule,
    clients_event,
    refuse_both,
    wave_size,
)
from coterie.data.shifts.shift import Shift
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
        round: of the first wave.
        count: clients in each wave.
        fraction: share of all clients in each wave, instead of ``count``; default 0.1.
        waves: number of waves.
        every: rounds from one wave to the next.

    Raises:
        ConfigError: in round 0, where no client would be left to begin with.

    Example:
        >>> import numpy as np, torch
        >>> y = torch.zeros(3).long()
        >>> p = Population(torch.zeros(3, 1), y, ([0], [1], [2]), ([],) * 3, classes=1)
        >>> snapshot, shift = FederationSnapshot.start(p), arrivals(round=2, count=1, waves=2)
        >>> present = []
        >>> for t in range(5):
        ...     snapshot = shift(snapshot, p, t, np.zeros(3, bool), Key(0, round=t))
        ...     present.append(int(snapshot.present.sum()))
        >>> present
        [1, 1, 2, 3, 3]
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
            raise ConfigError(
                f"shift.waves: {waves} of {size} clients leave no clients for the first round, "
                f"got {initial.clients} clients; expected fewer or smaller waves"
            )
        # `BEFORE` gives the same key in every round, so who is late is always drawn the same. A
        # resumed run needs no memory of it.
        order = key.at(BEFORE).of("late").generator().permutation(initial.clients)
        late = order[: size * waves]
        present = snapshot.present.copy()
        if round == 0:
            present[late] = False
            if not present.any():
                raise ConfigError(
                    "shift.waves: the arrivals of several tables leave no clients for the first "
                    f"round, got {initial.clients} clients; expected fewer or smaller waves"
                )
            return snapshot.with_present(present, clients_event("awaited", late))
        wave = schedule.wave(round)
        newcomers = late[wave * size : (wave + 1) * size]
        present[newcomers] = True
        return snapshot.with_present(present, clients_event("arrivals", newcomers))

    return shift
