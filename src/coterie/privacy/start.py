"""First groups of noised sums: k-means on a random projection of the clients' first updates.

The private counterpart of FedGroup's cold start. k-means with noised sums is DPLloyd: Su et al.,
Differentially Private k-Means Clustering (2016).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from coterie.clients.round import Round
from coterie.core import Groups, IntArray, Key, one_torch_thread
from coterie.privacy.noise import clipped_sums, gaussian, lengths_of
from coterie.rules.cold_start import DirectionMemory, Pretraining, has_direction
from coterie.rules.newcomers import least_loss_groups

# Enough to keep angles apart, and few enough that noise is shorter than the sums of some hundred
# clients. In all of a model's dimensions one group takes everybody.
DIMENSIONS = 64
# Of k-means. A few suffice, and each costs.
STEPS = 4
# Noised sums of a cold start: the mean, and those of every step.
RELEASES = STEPS + 1


@dataclass(frozen=True, slots=True)
class CentreMemory:
    """What a client needs to choose its group: the noised mean ``[p]`` of the projected directions,
    and the centres ``[k, p]``, of length 1."""

    record_name: ClassVar[str] = "centres"
    mean: Tensor
    centres: Tensor


@dataclass(frozen=True)
class PrivateColdStart:
    """Groups of clients whose first updates point the same way, from noised sums alone.

    Each client takes part with probability ``rate``. It trains briefly from ``w_0``, multiplies its
    update by a random matrix ``P [p, d]`` that is no secret, and makes it a vector ``v`` of length 1.
    The noised sum of all ``v`` gives their mean. What is left, ``y = v - mean`` cut to length 1, is
    clustered: each client adds its ``y`` to the sum of the nearest of ``k`` centres, the first of
    which are random, and the noised sums give the directions of the next centres. All groups start
    from ``w_0``.

    A client adds a vector of length 1 at most to one sum of each of the `RELEASES` releases. With
    noise ``sqrt(RELEASES) z`` on each number they are together a Gaussian mechanism with multiplier
    ``z``.

    Args:
        noise: ``z``.
        clients: those that could be drawn.
        secret: the stream of noise and sample, ``None``: the run's own.
    """

    groups: int
    rate: float
    noise: float
    clients: int
    pretraining: Pretraining = Pretraining()
    secret: Key | None = None

    @property
    def first_models(self) -> int:
        return self.groups

    def form(self, groups: Groups, round: Round) -> Groups:
        """The first groups."""
        key = self._stream(round)
        asked = self._sample(round.trainable(len(groups.member)), key)
        work = self.pretraining.work(round)
        reply = round.clients.run(work, asked, groups.first_model, key=round.key)
        usable = has_direction(reply)
        directions = projected(reply.rows(usable).delta, round)
        # Of all clients and not of those who are there, whose number one client changes.
        expected = self.rate * self.clients
        memory = self._cluster(directions, expected, round, key)
        labels = chosen_centre(directions, memory)
        groups = groups.with_members(reply.ids[usable], labels).remember(memory)
        # Not from the means of the clusters: the noise of a whole model is longer than they are.
        first = torch.stack([groups.first_model] * groups.k)
        groups = replace(groups, models=first, trained=np.zeros(groups.k, bool))
        no_client = np.zeros(len(groups.member), bool)
        no_direction = torch.zeros_like(first)
        directions_of_groups = DirectionMemory(
            no_direction, no_direction, groups.first_model, no_client, no_client
        )
        return groups.remember(directions_of_groups)

    def _stream(self, round: Round) -> Key:
        if self.secret is None:
            return round.key
        return self.secret.at(round.number).of("cold_start")

    def _sample(self, trainable: IntArray, key: Key) -> IntArray:
        """Each client by itself, by its number."""
        last = int(trainable.max(initial=-1))
        draws = key.of("sample").generator().random(last + 1)
        return np.sort(trainable[draws[trainable] < self.rate])

    def _cluster(self, directions: Tensor, expected: float, round: Round, key: Key) -> CentreMemory:
        """The centres, from noised sums of projected directions ``[n, p]``."""
        everyone = np.zeros(len(directions), np.int64)
        # Without the mean, which all updates share, random centres would get all clients or none.
        total = self._noised_sums(directions, everyone, 1, key.of("mean"))
        mean = total[0] / expected
        p = directions.shape[1]
        # Of the run's own stream: the first centres are no secret, and no client's data are in them.
        drawn = round.key.of("centres").generator().standard_normal((self.groups, p))
        centres = normalize(torch.from_numpy(drawn), dim=1)
        memory = CentreMemory(mean, centres)
        for step in range(STEPS):
            labels = chosen_centre(directions, memory)
            rest = within_unit(directions - mean)
            total = self._noised_sums(rest, labels, self.groups, key.of(f"step/{step}"))
            memory = CentreMemory(mean, normalize(total, dim=1))
        return memory

    def _noised_sums(self, vectors: Tensor, row: IntArray, k: int, key: Key) -> Tensor:
        """The sum of each group's vectors, of length 1 at most, with noise; float64 ``[k, p]``."""
        total = clipped_sums(vectors, lengths_of(vectors), row, k, 1.0)
        if self.noise > 0:
            total += gaussian(total.shape, RELEASES**0.5 * self.noise, key.of("noise"))
        return total


@one_torch_thread()
def projected(delta: Tensor, round: Round) -> Tensor:
    """Updates ``[n, d]`` as vectors of length 1 in a random subspace, the same in all rounds and
    not secret, float64 ``[n, p]``."""
    d = delta.shape[1]
    key = round.key.at(0).of("projection")
    # By what it is for, and not by the slot that asks: the cold start and newcomers need the same.
    key = replace(key, purpose="private_start/projection")
    matrix = torch.from_numpy(key.generator().standard_normal((d, DIMENSIONS)))
    return normalize(delta.to(torch.float64) @ matrix, dim=1)


def within_unit(vectors: Tensor) -> Tensor:
    """Vectors ``[n, p]``, the longer ones scaled to length 1."""
    return vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1.0)


def chosen_centre(directions: Tensor, memory: CentreMemory) -> IntArray:
    """The group that each client chooses by its direction ``v``, int64 ``[n]``:
    ``argmax_j (v - mean) . c_j``."""
    products = (directions - memory.mean) @ memory.centres.T
    return products.argmax(dim=1).numpy()


@dataclass(frozen=True)
class PrivateNewcomers:
    """Newcomers compare their first update with the centres by themselves. A client without a
    usable update takes the model with the least loss on its data: the largest group depends on
    other clients."""

    pretraining: Pretraining = Pretraining()

    @property
    def frozen(self) -> bool:
        """Newcomers are compared with what the cold start found."""
        return True

    def place(self, groups: Groups, new: IntArray, round: Round, notes: Counter[str]) -> Groups:
        """The groups with these clients in them; ``notes`` counts ``newcomers``."""
        memory = groups.memory.get(CentreMemory)
        assert memory is not None, "newcomers come after the group cold start"
        stream = round.of("newcomers_frozen")
        work = self.pretraining.work(round)
        reply = round.clients.run(work, new, groups.first_model, key=stream.key)
        usable = has_direction(reply)
        directions = projected(reply.rows(usable).delta, round)
        notes["newcomers"] += int(usable.sum())
        unusable = reply.ids[~usable]
        placed = groups.with_members(reply.ids[usable], chosen_centre(directions, memory))
        if not len(unusable):
            return placed
        return placed.with_members(unusable, least_loss_groups(groups, unusable, stream))
