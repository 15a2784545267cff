"""Rounds whose updates never stand side by side: each block of clients is folded into its groups'
sums and let go.

It takes weights that are known when a reply comes (by samples, evenly) and groups that the replies
do not change. The sums run in float64 and in client order, as those of a whole round do, but are
divided at their end instead of weighing each update by its share: results agree to about 1e-15
before they are rounded to float32, so nearly always to the bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from coterie.clients.clients import Clients
from coterie.core.arrays import FloatArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.threads import one_torch_thread
from coterie.core.updates import Updates
from coterie.core.work import Train
from coterie.rules.weighing import by_size, evenly

LARGE = 2**29  # bytes of updates above which a round is folded
BLOCK = 2**27  # bytes of updates that are held at once
KNOWN: dict[Callable[..., object], Callable[[FloatArray], FloatArray]] = {
    by_size: lambda size: size,
    evenly: np.ones_like,
}  # what each reply counts, before it is divided by the sum over its group


def streamable(local: Train, weigh: Callable[..., object], plan: Plan, d: int) -> bool:
    """Whether the updates of a plan are too large to be held together and can be folded.

    Args:
        local: what clients do.
        weigh: the weighing rule.
        plan: who trains.
        d: parameters.

    Example:
        >>> plan = Plan(np.arange(20_000), np.zeros(20_000, np.int64))
        >>> from coterie.objectives import plain
        >>> streamable(Train(plain), by_size, plan, 7850), streamable(Train(plain), by_size, plan, 610)
        (True, False)
    """
    alone = plan.chain is None and plan.spent is None and local.upload is None
    return alone and weigh in KNOWN and 4 * len(plan.ids) * d > LARGE


def fold(
    local: Train, groups: Groups, plan: Plan, door: Clients, key: Key, weigh: Callable[..., object]
) -> tuple[Tensor, Updates]:
    """Train the clients of a plan block by block.

    Args:
        local: what they do.
        groups: their models.
        plan: who trains from which model, everybody alone.
        door: the clients.
        key: random stream, the same for every block: a client's training does not depend on its
            block.
        weigh: a rule of ``KNOWN``.

    Returns:
        ``(W delta) [k, d]`` in float64, and what came home without the updates themselves
        (``delta`` is ``[n, 0]``).
    """
    k, d = groups.models.shape
    order = np.argsort(plan.ids)
    ids = plan.ids[order]
    row = plan.row[order]
    size = max(1, BLOCK // (4 * d))
    total = torch.zeros(k, d, dtype=torch.float64)
    counted = np.zeros(k)
    parts: list[Updates] = []
    for at in range(0, len(ids), size):
        asked = ids[at : at + size]
        reply = door.run(local, asked, groups.models, row[at : at + size], key=key)
        mine = row[at + np.searchsorted(asked, reply.ids)]
        each = KNOWN[weigh](reply.fields["size"])
        delta = torch.from_numpy(reply.fields["delta"])
        with one_torch_thread():
            for i, (j, weight) in enumerate(zip(mine.tolist(), each.tolist(), strict=True)):
                total[j].add_(delta[i], alpha=weight)
        counted += np.bincount(mine, each, k)
        nothing = torch.empty(len(mine), 0)  # not a view of the updates, which would keep them
        parts.append(Updates(reply.ids, mine, nothing, reply.fields["size"], reply.fields["loss"]))
        del reply, delta
    columns = zip(*((p.ids, p.row, p.size, p.loss) for p in parts), strict=True)
    home, rows, sizes, losses = (np.concatenate(column) for column in columns)
    some = torch.from_numpy(np.where(counted > 0, counted, 1.0))
    return total / some[:, None], Updates(home, rows, torch.empty(len(home), 0), sizes, losses)
