"""Random rebalancing: clients of large groups train the models of groups that noise would drown.

Source: Yang et al., Differentially Private Federated Clustering with Random Rebalancing (2025), here
with clients that move independently of each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from coterie.clients.round import Round
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.rules.assigning import Assign, PlacesClients
from coterie.rules.private_sums import PrivateMemory


@dataclass(frozen=True)
class Rebalanced(PlacesClients):
    """An assign rule after which some clients train a smaller group's model for one round.

    How many clients each group had in the round before is known from noised counts. A client of a
    group with more than ``least`` trains the model of a group with fewer with a probability that
    follows from these counts, see `moving_shares`. Clients stay members of their own group.

    The paper moves exactly as many clients as are missing. There one client more changes which others
    move, and so the sums by more than its own update. Here each client moves by itself.

    Args:
        least: clients of a round that each group should have.
        secret: the stream of the draws, ``None``: the run's own.
    """

    assign: Assign
    least: float
    secret: Key | None = None

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        groups, plan = self.assign(groups, round)
        memory = groups.memory.get(PrivateMemory)
        if memory is None or memory.counts is None:
            return groups, plan
        key = round.key.of("rebalance")
        if self.secret is not None:
            key = self.secret.at(round.number).of("rebalance")
        row = _moved(plan, moving_shares(memory.counts, self.least), key)
        notes = {**plan.notes, "rebalanced": int((row != plan.row).sum())}
        return groups, replace(plan, row=row, notes=notes)


def _moved(plan: Plan, shares: FloatArray, key: Key) -> IntArray:
    """The group whose model each client trains, int64 ``[n]``."""
    row = plan.row.copy()
    for at, (client, group) in enumerate(zip(plan.ids.tolist(), plan.row.tolist(), strict=True)):
        # A stream for each client: whether it moves does not depend on who else is there.
        draw = key.client(client).generator().random()
        place = int(np.searchsorted(shares[group].cumsum(), draw, "right"))
        # The shares of a group may sum up to a little less than 1.
        row[at] = min(place, len(shares) - 1)
    return row


def moving_shares(counts: FloatArray, least: float) -> FloatArray:
    """The probability that a client of group ``i`` trains the model of group ``j``, ``[k, k]``.

    With ``n_i`` the counts, groups with fewer than ``least`` miss ``least - n_i`` clients, and the
    others can spare ``n_i - least``. As many leave as are missed, but no more than can be spared,
    from each group in proportion to what it can spare.

    Args:
        counts: float64 ``[k]``, noised; below 0 counts as 0.
        least: clients that each group should have.

    Example:
        >>> moving_shares(np.array([90.0, 10.0]), 20.0).round(3).tolist()
        [[0.889, 0.111], [0.0, 1.0]]
    """
    n = np.maximum(counts, 0.0)
    missing = np.maximum(least - n, 0.0)
    spare = np.maximum(n - least, 0.0)
    stay = np.eye(len(n))
    if not missing.any() or not spare.any():
        return stay
    leaving = min(missing.sum(), spare.sum()) * spare / spare.sum()
    share = np.divide(leaving, n, out=np.zeros_like(n), where=n > 0)
    moving: FloatArray = stay * (1 - share)[:, None] + np.outer(share, missing / missing.sum())
    return moving
