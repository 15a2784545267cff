"""Clients that go against their group, round after round, count less in its robust average.

For the option ``remember`` of `coterie.rules.robust`.

A rule that sees one round alone cannot tell who is wrong where most replies of a group are hostile,
and with a fifth of all clients hostile that happens to small groups. Most of a group's clients are
rarely hostile, though. So each client's updates are remembered, in a few numbers, and a reply counts
by what all clients of its group have sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from coterie.core import NO_GROUP, FloatArray, Groups, GrowingRecord, IntArray, Key, Updates
from coterie.math.robust import smoothed_weiszfeld

# Numbers that are kept of an update: its cosine to another one is then known to about 0.06.
_SKETCH = 256
# What a client sent before counts so much as what it sends now.
_KEEP = 0.9
# How fast the weight of a client falls with its disagreement.
_SHARPNESS = 20.0
# Clients that count less make another centre, so both are found in turn.
_TURNS = 3
# From so many times the group's typical length of the round before on, a reply is shortened to it.
_LONGER = 3.0


@dataclass(frozen=True, slots=True)
class ReputationMemory(GrowingRecord):
    """What is remembered of clients and groups.

    Args:
        sent: float32 ``[N, s]``, the sum of the sketched directions of each client's updates.
        group: int64 ``[N]``, the model that each client's last reply counted for, -1 for none.
        length: float64 ``[k]``, the median length of each group's last replies, 0 for none.
    """

    record_name: ClassVar[str] = "reputation"
    newcomer: ClassVar[Mapping[str, float]] = {"sent": 0.0, "group": -1}
    sent: Tensor
    group: IntArray
    length: FloatArray


def reputation_memory(groups: Groups) -> ReputationMemory:
    """What is remembered; where the number of groups has changed, clients are known of none."""
    known = groups.memory.get(ReputationMemory)
    if known is not None and len(known.length) == groups.k:
        return known
    # A group that has split has clients of two kinds, whose older replies say nothing of each other.
    n = len(groups.member)
    sent = torch.zeros(n, min(_SKETCH, groups.models.shape[1]))
    if known is not None:
        sent = known.sent
    return ReputationMemory(sent, np.full(n, NO_GROUP), np.zeros(groups.k))


@lru_cache(maxsize=4)
def _places_and_signs(d: int) -> tuple[Tensor, Tensor]:
    """To which sum each coordinate is added, int64 ``[d]``, and with which sign, float64 ``[d]``."""
    # The same for all runs and rounds: sketches of different rounds are added to each other.
    generator = Key(0).of("sketch").generator()
    places = torch.from_numpy(generator.integers(_SKETCH, size=d))
    signs = torch.from_numpy(generator.choice([-1.0, 1.0], size=d))
    return places, signs


def sketch(points: Tensor) -> Tensor:
    """Each row in 256 numbers that keep inner products nearly: every coordinate is added to one of
    256 sums, with a random sign. Shorter rows stay as they are.

    Source: Charikar et al., Finding Frequent Items in Data Streams (2002), the count sketch.
    """
    d = points.shape[1]
    if d <= _SKETCH:
        return points
    places, signs = _places_and_signs(d)
    sums = torch.zeros(len(points), _SKETCH, dtype=torch.float64)
    return sums.index_add_(1, places, points * signs)


def trust(sent: FloatArray) -> FloatArray:
    """How much each client of a group counts compared with the others, float64 ``[m]``, at most 1.

    With ``u_i`` the direction of what client ``i`` has sent, and ``g`` the geometric median of all
    ``u_i`` weighted by ``t_i``: ``t_i = exp(20 min(0, <u_i, g>))``. Who does not go against the
    others counts 1.

    Example:
        >>> trust(np.array([[2.0, 0.1], [1.0, 0.0], [3.0, 0.2], [-1.0, 0.0]])).round(3).tolist()
        [1.0, 1.0, 1.0, 0.0]
    """
    length = np.linalg.norm(sent, axis=1, keepdims=True)
    # Directions alone: who was asked more often has a longer sum, but no more say.
    direction = np.divide(sent, length, out=np.zeros_like(sent), where=length > 0)
    factor = np.ones(len(sent))
    for _ in range(_TURNS):
        centre = smoothed_weiszfeld(direction, factor / factor.sum())
        agreement = direction @ centre
        # No client is against the others, and none was before: another turn would be the same.
        if agreement.min() >= 0 and factor.min() == 1:
            break
        factor = np.exp(_SHARPNESS * np.minimum(0.0, agreement))
    return factor


def shortened(points: FloatArray, length: float) -> FloatArray:
    """The points, those longer than 3 times ``length`` scaled down to it, float64 ``[n, d]``.

    Lengths change slowly from round to round, but where most replies of a round are hostile their
    median length says nothing.

    Args:
        length: typical of the round before; 0 where there was none.

    Example:
        >>> shortened(np.array([[1.0], [2.9], [-10.0]]), 1.0).tolist()
        [[1.0], [2.9], [-1.0]]
    """
    lengths = np.linalg.norm(points, axis=1)
    long = lengths > _LONGER * length
    if not length or not long.any():
        return points
    points = points.copy()
    points[long] *= (length / lengths[long])[:, None]
    return points


def with_replies(memory: ReputationMemory, models: Tensor, updates: Updates) -> ReputationMemory:
    """The memory with the directions of this round's updates, and the models they count for."""
    relative = updates.relative_to(models).to(torch.float64)
    length = relative.norm(dim=1, keepdim=True)
    # A zero update has no direction: nothing is added.
    direction = torch.where(length > 0, relative / length, 0.0)
    which = torch.from_numpy(updates.ids)
    # The newest direction is among them, so a new client is judged by what it sends, too.
    sent = memory.sent.clone()
    sent[which] = _KEEP * sent[which] + sketch(direction).to(torch.float32)
    group = memory.group.copy()
    group[updates.ids] = updates.row
    return ReputationMemory(sent, group, memory.length)


def trust_of(ids: IntArray, j: int, memory: ReputationMemory) -> FloatArray:
    """What clients count for model ``j``, float64 ``[n]``: 1 for those of other groups."""
    counts = np.ones(len(memory.group))
    # All that were heard of, and not only this round's: that is what outvotes a hostile round.
    members = np.flatnonzero(memory.group == j)
    if len(members):
        counts[members] = trust(memory.sent[torch.from_numpy(members)].to(torch.float64).numpy())
    return counts[ids]
