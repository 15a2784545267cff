"""Clusters around pivots: adaptive CCS of RFedAvg, and K-means in its place.

They set no groups: everybody trains one model, and the clusters of a round's updates only say how
much each counts (``coterie.rules.imbalance``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.updates import Updates
from coterie.core.work import Evaluate
from coterie.math.clustering import kmeans
from coterie.math.similarity import Matrix, cosine
from coterie.rules.single_group import everyone

Ask = Callable[[Groups, IntArray, Clients, Key], tuple[Groups, Mapping[str, Any]]]
Assign = Callable[[Groups, IntArray, Clients, Key], tuple[Groups, Plan]]
Recluster = Callable[[Groups, Updates], tuple[Groups, Updates]]
_SLACK = 1e-9


def adaptive_threshold(
    loss: float, first: float, l_star: float = 0.05, theta: float = math.pi / 36
) -> float:
    """How similar the updates of a cluster must be, less and less as the loss falls (RFedAvg eq. 7,
    clipped).

    ``eps_t = cos(theta + (pi/2 - theta) rho)`` with ``rho = (l_0 - l_t) / (l_0 - l_*)`` held in
    0..1. Without the clip a loss above ``l_0`` would turn the angle negative and one below ``l_*``
    the threshold. A run that starts at ``l_*`` or under has ``rho = 1``.

    Args:
        loss: ``l_t``, now.
        first: ``l_0``, in the first round.
        l_star: ``l_*``, the loss wanted, in nats.
        theta: angle of the first round, in radians.

    Example:
        >>> [round(adaptive_threshold(l, 2.3, 0.1), 6) for l in (2.3, 1.2, 0.6, 0.1)]
        [0.996195, 0.67559, 0.330814, 0.0]
    """
    rho = min(1.0, max(0.0, (first - loss) / (first - l_star))) if first > l_star else 1.0
    return math.cos(theta + (math.pi / 2 - theta) * rho)


def ccs(similarity: Matrix, threshold: float) -> IntArray:
    """Clusters by cosine similarity (RFedAvg Alg. 1): the pivot with most neighbours takes them
    all, and again.

    A neighbour is at least ``threshold`` similar; members need not be similar to each other. Of two
    pivots with as many neighbours left the first one goes first. One that is not similar to itself,
    an update of zeros, is alone.

    Args:
        similarity: ``[n, n]`` in -1..1.
        threshold: ``eps_t``; 1e-9 below it still counts.

    Returns:
        int64 ``[n]``, the cluster of each, numbered in the order they are made.

    Example:
        >>> g = torch.tensor([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9], [-1, 0]])
        >>> ccs(cosine(g, g), 0.8).tolist(), ccs(cosine(g, g), 0.0).tolist()
        ([0, 0, 1, 1, 2], [0, 0, 0, 0, 0])
    """
    near = similarity >= threshold - _SLACK
    none = np.diag(similarity) <= 0
    near[none] = near[:, none] = False
    np.fill_diagonal(near, True)
    cluster = np.full(len(near), -1)
    made = 0
    while (left := cluster < 0).any():
        pivot = np.argmax(np.where(left, near[:, left].sum(axis=1), -1))
        cluster[near[pivot] & left] = made
        made += 1
    return cluster


@dataclass(frozen=True)
class LossThreshold:
    """Asks the cohort for its loss before it trains, and sets the threshold of the round by it.

    ``l_t = sum_k D_k F_k(w^t) / sum_k D_k`` over the clients asked, as an exponential moving
    average where wanted; ``l_0`` is that of the first round. A round in which nobody tells keeps
    the loss of the one before. What a client tells is held in ``0..2 l_0``, in the first round in 0
    to twice the median of all told.

    Args:
        theta: see `adaptive_threshold`.
        l_star: see `adaptive_threshold`.
        ema: share of the past in ``l_t``, 0 for none.
    """

    theta: float
    l_star: float
    ema: float

    def __call__(
        self, groups: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Mapping[str, Any]]:
        which = np.zeros(len(cohort), np.int64)
        reply = door.run(Evaluate("train"), cohort, groups.models, which, key=key.of("losses"))
        past = float(groups.memory["loss"]) if "loss" in groups.memory else None
        if not len(reply) and past is None:
            return groups.remember(threshold=_number(math.cos(self.theta))), {}
        usual = float(groups.memory["first_loss"]) if past is not None else None
        now = _told(reply, usual) if len(reply) else past
        assert now is not None
        loss = now if past is None else self.ema * past + (1 - self.ema) * now
        first = float(groups.memory.get("first_loss", loss))
        threshold = adaptive_threshold(loss, first, self.l_star, self.theta)
        groups = groups.remember(
            loss=_number(loss), first_loss=_number(first), threshold=_number(threshold)
        )
        return groups, {"threshold": threshold, "loss_before": loss, "loss_first": first}


def _told(reply: Reply, usual: float | None) -> float:
    """The mean loss over all samples, that of each client held in 0 to twice the usual one
    (``None``: the median)."""
    size = reply.fields["size"].astype(np.float64)
    each = reply.fields["loss"][:, 0] / size
    most = 2 * (float(np.median(each)) if usual is None else usual)
    return float(np.average(np.clip(each, 0, max(0.0, most)), weights=size))


def _number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def draw(
    groups: Groups, cohort: IntArray, door: Clients, key: Key
) -> tuple[Groups, Mapping[str, Any]]:
    """Asks nobody; keeps a seed for the clustering of this round."""
    return groups.remember(seed=torch.tensor(key.of("clusters").seed32())), {}


def asking(*asks: Ask) -> Assign:
    """Assign rule: everybody trains the one model, after the cohort was asked for what the weights
    will need."""

    def assign(groups: Groups, cohort: IntArray, door: Clients, key: Key) -> tuple[Groups, Plan]:
        groups, plan = everyone(groups, cohort, door, key)
        notes: dict[str, Any] = {}
        for ask in asks:
            groups, found = ask(groups, cohort, door, key)
            notes |= found
        return groups, replace(plan, notes=notes)

    return assign


def pivots(groups: Groups, updates: Updates) -> tuple[Groups, Updates]:
    """Recluster rule: adaptive CCS of this round's updates, whose cosines are those of the
    gradients (eq. 6)."""
    found = ccs(cosine(updates.delta, updates.delta), float(groups.memory["threshold"]))
    return _remember(groups, updates, found), updates


def means(clusters: int, unit: bool) -> Recluster:
    """Recluster rule: K-means of the updates into ``min(clusters, n)`` (eq. 18), scaled to length
    one where wanted."""

    def recluster(groups: Groups, updates: Updates) -> tuple[Groups, Updates]:
        if not len(updates):
            return _remember(groups, updates, np.empty(0, np.int64)), updates
        features = updates.delta.to(torch.float64)
        if unit:
            features = torch.nn.functional.normalize(features, dim=1)
        key = Key(int(groups.memory["seed"]))
        return _remember(
            groups, updates, kmeans(features.numpy(), min(clusters, len(updates)), key)
        ), updates

    return recluster


def _remember(groups: Groups, updates: Updates, found: IntArray) -> Groups:
    """The clusters by client, int64 ``[N]``, -1 for those who did not train in this round; and
    their sample counts."""
    clusters = np.full(len(groups.member), -1)
    clusters[updates.ids] = found
    groups = groups.remember(clusters=torch.from_numpy(clusters))
    if "size" not in groups.memory:
        return groups
    size = groups.memory["size"].numpy().copy()
    size[updates.ids] = updates.size
    return groups.remember(size=torch.from_numpy(size))
