"""FlexCFL's incremental data: training samples are released by and by."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from coterie.config.arguments import validated
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.data.shifts.shift import BEFORE, Count, PositiveShare, Round, Shift
from coterie.data.shifts.snapshot import FederationSnapshot, Mask
from coterie.errors import ConfigError

Release = Literal["cumulative", "flexcfl_code"]

# A client's rows now, its rows before any shift, the share, the stage, the client's stream -> its
# rows after the release; the identical array where nothing changes.
Step = Callable[[IntArray, IntArray, float, int, Key], IntArray]


@validated
def incremental(
    share: PositiveShare = 0.25,
    every: Count = 50,
    # What the text says. The code takes the share of what is left, so that data shrink; the printed
    # column of the paper fits the code.
    release: Release = "cumulative",
    start: Round = 0,
) -> Shift:
    """Training data are released gradually: first a share, later more, until all are available.

    Each client's training samples are put in a random order once. At round ``start + s * every`` it
    has the first ``ceil(min(1, (s + 1) share) n)`` of them. Test samples are unchanged. With other
    shifts, list this one first: samples that have not been released stay with the client, whatever
    it swaps in the meantime. Planted groups and tests then describe a mixture until the swapped
    data are outweighed. The data of all clients together differ from round to round.

    Args:
        release: ``cumulative``: as above, 25, 50, 75, 100 of 100. ``flexcfl_code``: as in the
            authors' code, where the share is one of what the client has *left*, so that data
            shrink: 25, 13, 10, 10 of 100.
        start: round of the first release; before it, clients have all their data, and no other
            shift may move training data. With 1, groups form on all data, as in FlexCFL's code,
            whose cold start comes before round 0.

    Source: Duan et al., FlexCFL (2022), section 5.3.
    """
    step = _STEPS[release]

    def shift(
        snapshot: FederationSnapshot, initial: Population, round: int, warm: Mask, key: Key
    ) -> FederationSnapshot:
        stage, rest = divmod(round - start, every)
        # The last release leaves nothing for later stages.
        if stage < 0 or rest or _released(share, stage) == _released(share, stage - 1):
            return snapshot.without_events()
        before = snapshot.population
        if stage == 0 and start:
            _refuse_moved_data(before, initial, start)
        # Clients that are absent or without a group get theirs, too: data come in by the clock.
        train = tuple(
            step(rows, initial.train[i], share, stage, key.client(i))
            for i, rows in enumerate(before.train)
        )
        changed = [i for i, rows in enumerate(before.train) if train[i] is not rows]
        if not changed:
            return snapshot.without_events()
        event = {
            "shift": "incremental",
            "share": _released(share, stage),
            "samples": sum(map(len, train)),
        }
        return snapshot.with_population(before.with_parts(train, before.test), changed, event)

    return shift


def _refuse_moved_data(now: Population, initial: Population, start: int) -> None:
    # The first release replaces what a client has by a share of its first data. Samples that it
    # swapped in before would vanish from the federation.
    if not all(map(np.array_equal, now.train, initial.train)):
        what = "another shift moved training data before the first release"
        expected = "0, or other shifts that start later"
        raise ConfigError("in-conflict", "shift.start", what, found=start, allowed=expected)


def _released(share: float, stage: int) -> float:
    """The share that is released at a stage, counted from 0."""
    return min(1.0, share * (stage + 1))


def _released_count(share: float, stage: int, n: int) -> int:
    """The samples of ``n`` that are released at a stage, rounded up."""
    # 0.1 * 3 * 10 is 3.0000000000000004 in floating point, which would round up to 4.
    return math.ceil(round(_released(share, stage) * n, 9))


def _release_order(rows: IntArray, key: Key) -> IntArray:
    """The rows in the order in which they are released, the same in every round of a run."""
    return rows[key.at(BEFORE).of("order").generator().permutation(len(rows))]


def _release_more(now: IntArray, initial: IntArray, share: float, stage: int, key: Key) -> IntArray:
    """What a client has now, and the samples of this stage."""
    order = _release_order(initial, key)
    last = _released_count(share, stage, len(order))
    if stage == 0:
        return _same_or(order[:last], now)
    first = _released_count(share, stage - 1, len(order))
    if first == last:
        return now
    return np.concatenate([now, order[first:last]])


def _keep_less(now: IntArray, initial: IntArray, share: float, stage: int, key: Key) -> IntArray:
    """The first samples of what a client has now, as the reference code cuts them."""
    rows = now
    if stage == 0:
        # At the first stage alone: later ones cut what is left, in the order that it has.
        rows = _release_order(now, key)
    return _same_or(rows[: _released_count(share, stage, len(rows))], now)


def _same_or(rows: IntArray, now: IntArray) -> IntArray:
    # The identical array says that nothing changed: engines compare by identity and not by value.
    if np.array_equal(rows, now):
        return now
    return rows


_STEPS: Mapping[Release, Step] = {"cumulative": _release_more, "flexcfl_code": _keep_less}
