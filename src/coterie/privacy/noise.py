"""Differential privacy of updates: of a round the server uses noised sums alone.

A client's update is clipped, so that it moves the sum of its group by a known length at most, and
Gaussian noise of that scale is added to each group's sum. Sources: McMahan et al., Learning
Differentially Private Recurrent Language Models (2018); the clip that adapts: Andrew et al.,
Differentially Private Learning with Adaptive Clipping (2021). Clients of large groups that train the
models of small ones: Yang et al., Differentially Private Federated Clustering with Random Rebalancing
(2025), here with clients that move independently of each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.core import FloatArray, Groups, IntArray, Key, Plan, Train, Updates, one_torch_thread
from coterie.math.similarity import Matrix
from coterie.rules.assigning import Assign, PlacesClients
from coterie.rules.hooks import call
from coterie.rules.training import train
from coterie.rules.weighing import Aggregate, Aggregated, Weigh

# Of the clip that adapts, eta_C of Andrew et al. (sec. 3).
CLIP_RATE = 0.2
# Noise of a count of clients, as a share of a cohort: sigma_b = n / 20 of Andrew et al. (sec. 3.1).
COUNT_NOISE = 1 / 20


@dataclass(frozen=True, slots=True)
class PrivateMemory:
    """What the noised sums of earlier rounds said: the clip of the next round, and how many clients
    of each group replied in the last one, ``[k]``."""

    record_name: ClassVar[str] = "private"
    clip: float
    counts: FloatArray | None = None


@dataclass(frozen=True)
class PrivateSums:
    """Each group's sum of clipped updates with Gaussian noise, divided by a fixed number.

    With ``C_t`` the clip of round ``t``, ``n`` the clients of a round and ``k`` the number of groups,
    the model of group ``j`` is moved by

        (k / n) (sum_{i in j} delta_i min(1, C_t / |delta_i|) + N(0, (z' C_t)^2 I)).

    All clients count the same. The divisor is not the number of replies, which one client changes.
    With a ``quantile`` each client also tells whether its update was longer than the clip. The noised
    count of these moves the clip, ``C_{t+1} = C_t exp(-0.2 (share - quantile))``, where ``share`` is
    that of the updates within the clip. The noise of both is such that one client more or less
    changes them together as it would change a sum with noise ``z C_t``.

    Args:
        clip: ``C_0``, or of all rounds without a quantile.
        noise: ``z``, the noise multiplier of a round.
        clients: ``n``, of a round, on average.
        quantile: quantile of update norms that the clip follows; ``None``: it is fixed.
        counts: whether the clients of each group are counted, too.
        secret: the stream of the noise, ``None``: the run's own.
    """

    clip: float
    noise: float
    clients: float
    quantile: float | None = None
    counts: bool = False
    secret: Key | None = None

    @property
    def count_noise(self) -> float:
        """Standard deviation of the noise of every count of clients."""
        # Not less than 1.5 z: of the budget at most 5/9 is spent on counts.
        return max(COUNT_NOISE * self.clients, 1.5 * self.noise)

    @property
    def sum_noise(self) -> float:
        """``z'``: standard deviation of the sums' noise, in multiples of the clip."""
        if self.noise == 0:
            return 0.0
        # A client changes the centred count of clipped updates by 1/2, and that of its group by 1.
        # 1/z'^2 + sum of (change / sigma)^2 = 1/z^2 (Andrew et al., theorem 1).
        changes = 0.0
        if self.quantile is not None:
            changes += 1 / 4
        if self.counts:
            changes += 1.0
        return (self.noise**-2 - changes * self.count_noise**-2) ** -0.5

    def stream(self, round: Round) -> Key:
        """The random stream of a round's noise."""
        if self.secret is None:
            return round.key.of("noise")
        return self.secret.at(round.number).of("noise")

    def collect(
        self, local: Train, weigh: Weigh, groups: Groups, plan: Plan, round: Round
    ) -> Updates:
        """The clients train. Real ones send no longer update than counts; the server clips those of
        the others."""
        if round.clients.are_real:
            local = replace(local, clip=self.clip_in(groups))
        return train(local, groups, plan, round)

    def __call__(
        self, groups: Groups, updates: Updates, weights: Matrix, plan: Plan, round: Round
    ) -> Aggregated:
        clip = self.clip_in(groups)
        key = self.stream(round)
        lengths = lengths_of(updates.delta)
        total = clipped_sums(updates.delta, lengths, updates.row, groups.k, clip)
        # Without noise the clip may be infinite.
        if self.noise > 0:
            total += gaussian(total.shape, self.sum_noise * clip, key)
        total *= groups.k / self.clients
        clipped = int((lengths > clip).sum())
        # Clients that clip by themselves say so: of their updates the lengths tell no more.
        if updates.clipped is not None:
            clipped = int(updates.clipped.sum())
        notes = {"noise": self.noise, "clip": clip, "clipped": clipped}
        following = clip
        if self.quantile is not None:
            following = self._following(clip, len(lengths), clipped, key)
        counts = None
        if self.counts:
            # Of their own groups, where some of them trained another group's model.
            counts = self._counts(groups.member[updates.ids], groups.k, key)
        if self.quantile is not None or self.counts:
            groups = groups.remember(PrivateMemory(following, counts))
        # Which groups had replies is something about the clients, too.
        return Aggregated(groups, total, np.ones(groups.k, bool), {"privacy": notes})

    def _counts(self, member: IntArray, k: int, key: Key) -> FloatArray:
        """The noised number of clients of each group, float64 ``[k]``."""
        counts = np.bincount(member[member >= 0], minlength=k).astype(np.float64)
        if self.noise > 0:
            counts += gaussian((k,), self.count_noise, key.of("groups")).numpy()
        return counts

    def clip_in(self, groups: Groups) -> float:
        """The longest update that counts in full in the next round."""
        memory = groups.memory.get(PrivateMemory)
        if memory is None:
            return self.clip
        return memory.clip

    def _following(self, clip: float, replies: int, clipped: int, key: Key) -> float:
        """The clip of the next round (Andrew et al., Alg. 1)."""
        assert self.quantile is not None
        # Each client counts 1/2 or -1/2, which one client more or less changes by no more than that.
        within = (replies - clipped) - replies / 2
        noise = 0.0
        if self.noise > 0:
            noise = float(gaussian((1,), self.count_noise, key.of("count"))[0])
        share = (within + noise) / self.clients + 1 / 2
        return clip * math.exp(-CLIP_RATE * (share - self.quantile))


def noised(sums: PrivateSums) -> Aggregate:
    """Sums with noise in place of means. Models move in every round: that no client was asked is
    something about the clients, too."""
    return Aggregate(sums, sums.collect, sums=True, every_round=True)


@one_torch_thread()
def lengths_of(delta: Tensor) -> FloatArray:
    """Euclidean lengths of updates ``[n, d]``, float64 ``[n]``."""
    return torch.linalg.vector_norm(delta, dim=1, dtype=torch.float64).numpy()


@one_torch_thread()
def clipped_sums(delta: Tensor, lengths: FloatArray, row: IntArray, k: int, clip: float) -> Tensor:
    """The sum of each group's updates, each of at most the length of the clip, float64 ``[k, d]``:
    one row more or less of ``delta`` changes it by ``clip`` at most."""
    total = torch.zeros(k, delta.shape[1], dtype=torch.float64)
    # In client order and float64, so that the sums have the same bits on every engine.
    for i, (j, length) in enumerate(zip(row.tolist(), lengths.tolist(), strict=True)):
        share = 1.0
        if length > clip:
            share = clip / length
        total[j].add_(delta[i], alpha=share)
    return total


def gaussian(shape: tuple[int, ...] | torch.Size, deviation: float, key: Key) -> Tensor:
    """Independent Gaussian noise of this standard deviation, float64."""
    drawn = key.generator().standard_normal(tuple(shape))
    return deviation * torch.from_numpy(drawn)


# --- groups that noise would drown -----------------------------------------------------------------


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
        groups, plan = call("assign", self.assign, groups, round)
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
    """The probability that a client of group ``i`` trains the model of group ``j``, ``[k, k]``, by
    the noised counts ``n_i``.

    Groups with fewer than ``least`` clients miss ``least - n_i``, the others can spare ``n_i -
    least``. As many leave as are missed, but no more than can be spared, from each group in
    proportion to what it can spare.
    """
    n = np.maximum(counts, 0.0)
    missing = np.maximum(least - n, 0.0)
    spare = np.maximum(n - least, 0.0)
    stay = np.eye(len(n))
    if not missing.any() or not spare.any():
        return stay
    leaving = min(missing.sum(), spare.sum()) * spare / spare.sum()
    share = np.divide(leaving, n, out=np.zeros_like(n), where=n > 0)
    return stay * (1 - share)[:, None] + np.outer(share, missing / missing.sum())
