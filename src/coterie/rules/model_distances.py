"""How far models are apart, and clients from models, by the losses of clients under models; and which
clients are near each other by such distances."""

from __future__ import annotations

from typing import Literal

import numpy as np
from torch import Tensor

from coterie.clients.round import Round
from coterie.core import NO_GROUP, FloatArray, IntArray, Key, Score
from coterie.math.clustering import agglomerate, pivot_clusters
from coterie.math.cuts import by_first_appearance
from coterie.math.outliers import contradicted, far_from_neighbours
from coterie.rules.cold_start import Outliers


def mean_losses(
    ids: IntArray, models: Tensor, round: Round
) -> tuple[IntArray, FloatArray, FloatArray]:
    """The mean loss ``[n, r]`` of all ``r`` models on the training samples of each client that
    answers: who did, their losses, their numbers of samples."""
    reply = round.clients.run(Score("train"), ids, models, key=round.key)
    size = reply.size
    return reply.ids, reply.loss / size[:, None], size


def model_distances(of_models: FloatArray) -> FloatArray:
    """How far models are apart: what is lost on the data of one by the model of the other.

    ``D_ij = max(L_ij - L_jj, L_ji - L_ii, 0)`` with `losses_between` as ``L``.
    """
    more = of_models - of_models.diagonal()
    return np.maximum(np.maximum(more, more.T), 0.0)


def losses_between(loss: FloatArray, size: FloatArray, chosen: IntArray) -> FloatArray:
    """The mean loss ``L_ij [k, k]`` of each model on the samples of those who chose each. Every
    model in ``0..k-1`` is chosen."""
    weight = np.zeros((loss.shape[1], len(size)))
    weight[chosen, np.arange(len(size))] = size
    means: FloatArray = weight @ loss / weight.sum(axis=1, keepdims=True)
    return means.T


def group_distances(of_groups: FloatArray, member: IntArray) -> FloatArray:
    """How far groups are apart: how much each loses with the model of the other, ``[k, k]``.

    ``d(A, B) = (mean of l(w_B) over A + mean of l(w_A) over B) / 2``; every group has members.
    """
    inside = np.stack([of_groups[member == j].mean(axis=0) for j in range(of_groups.shape[1])])
    return (inside + inside.T) / 2


def to_groups(of_groups: FloatArray, of_own: FloatArray, member: IntArray) -> FloatArray:
    """How far clients are from groups, ``[n, k]``; a group without members is infinitely far.

    ``d(i, A) = (l(w_A) on i + mean of l(w_i) over A) / 2``. Row by row, ``of_own [n, n]`` has the
    loss of each client's own model.
    """
    distance = np.full(of_groups.shape, np.inf)
    for j in range(of_groups.shape[1]):
        inside = member == j
        if inside.any():
            distance[:, j] = (of_groups[:, j] + of_own[:, inside].mean(axis=1)) / 2
    return distance


def models_alike(loss: FloatArray, size: FloatArray, chosen: IntArray, farthest: float) -> IntArray:
    """Which models do alike on each other's data: new numbers, int64 ``[k]``, by first appearance.

    Complete linkage of `model_distances`, cut at a distance. A model without clients is like no other,
    since there are no data on which it could be compared.

    Args:
        farthest: how far models may be apart that are one.

    Example:
        >>> loss = np.array([[0.1, 0.2, 0.9], [0.2, 0.1, 0.9], [0.9, 0.9, 0.1]])
        >>> models_alike(loss, np.ones(3), np.array([0, 1, 2]), farthest=0.3).tolist()
        [0, 0, 1]
    """
    number = np.arange(loss.shape[1])
    in_use, place = np.unique(chosen, return_inverse=True)
    if len(in_use) > 1:
        distance = model_distances(losses_between(loss[:, in_use], size, place))
        clusters = agglomerate(distance, "complete", farthest).labels
        _, first = np.unique(clusters, return_index=True)
        number[in_use] = in_use[first[clusters]]
    return by_first_appearance(number)


def near_clusters(
    losses: FloatArray,
    threshold: float | Literal["auto"],
    outliers: Outliers,
    clusters: int,
    key: Key,
) -> tuple[IntArray, float]:
    """Correlation clustering of clients by their distances ``(L_ij + L_ji) / 2``, of which those up
    to a threshold are near.

    Args:
        losses: float64 ``[n, n]``, of the model of client ``i`` on the data of client ``j``.
        threshold: ``auto``: by the largest gap between merges of average linkage.
        outliers: ``leave_out``: those far from all others, or contradicted by them, have no part in
            it, nor in the threshold.
        clusters: how many there are, at least about; outliers are told by it.

    Returns:
        int64 ``[n]``, the cluster of each client, -1 for those that have none; and the threshold.

    Example:
        >>> at = np.array([0.0, 0.1, 5.0, 5.1, 90.0])
        >>> near_clusters(np.abs(at[:, None] - at), 1.0, "leave_out", 2, Key(0))[0].tolist()
        [0, 0, 1, 1, -1]
    """
    distance = (losses + losses.T) / 2
    taken = np.ones(len(losses), bool)
    if outliers == "leave_out":
        taken = ~contradicted(losses)
        taken[taken] = ~far_from_neighbours(distance[np.ix_(taken, taken)], clusters)
    among = distance[np.ix_(taken, taken)]
    if threshold == "auto":
        threshold = float(agglomerate(among, "average").threshold)
    label = np.full(len(losses), NO_GROUP)
    label[taken] = pivot_clusters(among <= threshold, key)
    return label, threshold
