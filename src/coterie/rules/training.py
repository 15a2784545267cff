"""The local training of a round: clients side by side, in chains, or block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from coterie.clients.bounds import CLAIMED
from coterie.clients.round import Round
from coterie.core import ClientShares, Groups, Plan, Reply, Train, Updates, one_torch_thread
from coterie.core.arrays import FloatArray, IntArray, places_of
from coterie.core.own_model import SendsSecondVector

WeightOf = Callable[[FloatArray], FloatArray]

LARGE = 2**29  # bytes of updates above which a round is streamed
BLOCK = 2**27  # bytes of updates that are held at once


def train(local: Train, groups: Groups, plan: Plan, round: Round) -> Updates:
    """What the clients of a plan make of the models they are sent, side by side or in chains."""
    if plan.shares is not None:
        return _train_mixtures(local, groups, plan, plan.shares, round)
    if plan.chain is None and plan.spent is None:
        return _train_side_by_side(local, groups, plan, round)
    return _train_in_waves(local, groups, plan, round)


def trained_row(sent: IntArray, reply: Reply) -> IntArray:
    """The model ``[n]`` that each client trained: the one it was sent, or of several the one in the
    column ``reply.choice``."""
    if sent.ndim == 1:
        return sent
    choice = reply.choice.astype(np.int64)
    return sent[np.arange(len(sent)), choice]


def _train_side_by_side(local: Train, groups: Groups, plan: Plan, round: Round) -> Updates:
    starts = plan.start_models(groups.models)
    models = starts
    which = plan.row
    if isinstance(local.own_model, SendsSecondVector):
        # Every client is sent this row, too, behind the row of its model.
        models = torch.cat([starts, local.own_model.second_vector(groups)[None]])
        which = np.stack([plan.row, np.full(len(plan.ids), len(starts))], axis=1)
    reply = round.clients.run(local, plan.ids, models, which, key=round.key)
    # Some clients may not have answered.
    row = trained_row(plan.row[places_of(reply.ids, plan.ids)], reply)
    updates = Updates(
        reply.ids,
        row,
        reply.delta,
        reply.size,
        reply.loss,
        clipped=reply.fields.get("clipped"),
        claimed=reply.fields.get(CLAIMED),
    )
    if plan.mixtures is None:
        return updates
    return replace(updates, started=row, starts=starts)


def _train_mixtures(
    local: Train, groups: Groups, plan: Plan, shares: FloatArray, round: Round
) -> Updates:
    """Each client trains all models on weighted samples; a row for each of its updates."""
    assert local.mixture is not None, "clients with shares train a mixture"
    sent = ClientShares(plan.ids, shares, plan.label_prior)
    work = replace(local, how=replace(local.mixture, shares=sent))
    reply = round.clients.run(work, plan.ids, groups.models, plan.row, key=round.key)
    n, r, d = reply.fields["delta"].shape
    row = plan.row[places_of(reply.ids, plan.ids)]
    return Updates(
        np.repeat(reply.ids, r),
        row.reshape(n * r),
        reply.delta.reshape(n * r, d),
        np.repeat(reply.size, r),
        np.repeat(reply.loss, r),
        shares=ClientShares(reply.ids, reply.fields["shares"].astype(np.float64)),
        label_sums=reply.fields.get("label_sums"),
    )


@dataclass(slots=True)
class _Chains:
    """How far the chains of a round have come; one row for each chain.

    Args:
        start: float32 ``[m, d]``, the model that each chain began with.
        moved: float32 ``[m, d]``, the sum of its clients' updates.
        last: int64 ``[m]``, its last client that replied, -1 for none.
        size: float64 ``[m]``, samples of its clients.
        loss: float64 ``[m]``, their summed loss, weighted by samples.
    """

    start: np.ndarray
    moved: np.ndarray
    last: IntArray
    size: FloatArray
    loss: FloatArray

    @classmethod
    def begin(cls, start: np.ndarray) -> _Chains:
        """Chains none of whose clients has trained yet."""
        n = len(start)
        return cls(start, np.zeros_like(start), np.full(n, -1), np.zeros(n), np.zeros(n))

    def add(self, reply: Reply, chain: IntArray) -> None:
        """The replies of one client of some chains."""
        self.moved[chain] += reply.fields["delta"]
        self.last[chain] = reply.ids
        self.size[chain] += reply.size
        self.loss[chain] += reply.loss * reply.size

    def updates(self, row: IntArray) -> Updates:
        """The updates of the chains in which a client replied; ``row`` is the model of each chain."""
        replied = np.flatnonzero(self.last >= 0)
        # In client order, as the updates of clients side by side.
        replied = replied[np.argsort(self.last[replied])]
        return Updates(
            self.last[replied],
            row[replied],
            torch.from_numpy(self.moved[replied]),
            self.size[replied],
            self.loss[replied] / self.size[replied],
        )


def _train_in_waves(local: Train, groups: Groups, plan: Plan, round: Round) -> Updates:
    """Waves of chains: the first client of every chain, then the second from where the first ended,
    and so on. A client that does not answer is skipped."""
    assert local.choose is None, "a client of a chain trains what the one before it left"
    n = len(plan.ids)
    numbers = plan.chain
    if numbers is None:
        numbers = np.arange(n)
    spent = plan.spent
    if spent is None:
        spent = np.zeros(n, np.int64)
    _, first, chain = np.unique(numbers, return_index=True, return_inverse=True)
    place = _places_in_chain(chain)
    row = plan.row[first]
    starts = plan.start_models(groups.models)
    chains = _Chains.begin(starts.numpy()[row])
    for wave in range(int(place.max(initial=-1)) + 1):
        models = torch.from_numpy(chains.start + chains.moved)
        # The first wave has the stream of a round without chains, so a chain of one client is that
        # client alone to the bit.
        key = round.key
        if wave:
            key = round.key.of(str(wave))
        posted = []
        # A request has one budget, and clients that pre-trained in this round have less of it left.
        for budget in np.unique(spent[place == wave]):
            asked = np.flatnonzero((place == wave) & (spent == budget))
            work = local.after(int(budget))
            read = round.clients.post(work, plan.ids[asked], models, chain[asked], key=key)
            posted.append((asked, read))
        for asked, read in posted:
            reply = read()
            chains.add(reply, chain[asked[places_of(reply.ids, plan.ids[asked])]])
    updates = chains.updates(row)
    if plan.mixtures is None:
        return updates
    return replace(updates, started=updates.row, starts=starts)


def _places_in_chain(chain: IntArray) -> IntArray:
    """How many clients of the same chain come before each one."""
    # Stable: the order of the plan inside a chain is the order of training.
    order = np.argsort(chain, kind="stable")
    first = np.searchsorted(chain[order], chain[order], side="left")
    places = np.empty_like(chain)
    places[order] = np.arange(len(chain)) - first
    return places


# --- rounds whose updates are not held together --------------------------------------------------


def is_large(local: Train, groups: Groups, plan: Plan) -> bool:
    """Whether clients train side by side and send more than can be held together."""
    one_by_one = plan.chain is None and plan.spent is None
    one_model = plan.mixtures is None and plan.shares is None
    whole_updates = local.upload is None and local.keep is None
    size = 4 * len(plan.ids) * groups.models.shape[1]
    return one_by_one and one_model and whole_updates and size > LARGE


def train_by_blocks(
    local: Train, weight_of: WeightOf, groups: Groups, plan: Plan, round: Round
) -> Updates:
    """The replies of a plan with their weighted means, and without the updates themselves: each block
    of clients is added to its groups' sums and let go.

    The sums run in float64 and in client order, as those of a whole round do, but they are divided at
    their end, where a whole round weighs each update by its share. Results agree to about 1e-15 before
    they are rounded to float32, so nearly always to the bit.

    Args:
        weight_of: the training samples behind each update -> what it counts, as a rule `WeighsAlone`
            says when a reply arrives.
    """
    k, d = groups.models.shape
    # Blocks of ascending clients, so that the sums run in client order.
    order = np.argsort(plan.ids)
    ids = plan.ids[order]
    rows = plan.row[order]
    block = max(1, BLOCK // (4 * d))
    total = torch.zeros(k, d, dtype=torch.float64)
    counted = np.zeros(k)
    parts: list[Updates] = []
    for at in range(0, len(ids), block):
        some = Plan(ids[at : at + block], rows[at : at + block])
        # The round's stream is the same for every block: training does not depend on the block.
        updates = train(local, groups, some, round)
        weight = weight_of(updates.size)
        _add(total, updates, weight)
        counted += np.bincount(updates.row, weight, k)
        parts.append(updates.without_values())
        # Before the next block is asked for, or two blocks would be held.
        del updates
    # Divided at the end, since the sum of the weights is known only then.
    divisor = torch.from_numpy(np.where(counted > 0, counted, 1.0))
    return Updates(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.row for part in parts]),
        torch.empty(sum(len(part) for part in parts), 0),
        np.concatenate([part.size for part in parts]),
        np.concatenate([part.loss for part in parts]),
        summed=total / divisor[:, None],
    )


@one_torch_thread()
def _add(total: Tensor, updates: Updates, weight: FloatArray) -> None:
    """Add a block's weighted updates to the sums of their groups, in client order."""
    for i, (j, share) in enumerate(zip(updates.row.tolist(), weight.tolist(), strict=True)):
        total[j].add_(updates.delta[i], alpha=share)
