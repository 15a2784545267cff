"""How much each cluster of updates counts, so that every class counts alike (RFedAvg sec.
III-B)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.clients.clients import Clients
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.engine import Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.updates import Updates
from coterie.core.work import Describe
from coterie.math.similarity import Matrix

Scope = Literal["all", "scheduled"]
_RIDGE = 1e-8


def cluster_imbalance(level: FloatArray, size: FloatArray, cluster: IntArray) -> FloatArray:
    """``I_C = max_k I_k - sum of D_k over the others`` for each cluster (steps 1 and 2).

    Args:
        level: ``[n]``, ``I_k = sum_m |D/M - D_k^m|`` of each client (eq. 17).
        size: ``[n]``, its samples ``D_k``.
        cluster: int64 ``[n]``, labels ``0..N-1``; of two clients with the same ``I_k`` the first is
            ``k*``.

    Returns:
        float64 ``[N]``; at least ``D - D_C`` where ``D`` is all there is.

    Example:
        >>> level, size = np.array([75.0, 80.0, 75.0, 95.0]), np.array([30.0, 25.0, 40.0, 10.0])
        >>> cluster_imbalance(level, size, np.array([0, 0, 1, 2])).tolist()
        [50.0, 75.0, 95.0]
    """
    total = np.bincount(cluster, size)
    found = np.empty(len(total))
    for n in range(len(total)):
        mine = np.flatnonzero(cluster == n)
        worst = mine[np.argmax(level[mine])]
        found[n] = level[worst] - (total[n] - size[worst])
    return found


def floor(total: float) -> float:
    """The least that a cluster's imbalance counts as: ``max(1, 1e-6 D)``."""
    return max(1.0, 1e-6 * total)


def reciprocal(level: FloatArray, total: float) -> FloatArray:
    """``p_n = (1 / I_Cn) / sum_n (1 / I_Cn)``, with ``I_C`` held at or above `floor`.

    Args:
        level: ``[N]``, ``I_C`` of each cluster.
        total: samples ``D``.

    Example:
        >>> reciprocal(np.array([50.0, 75.0, 95.0]), 105.0).round(3).tolist()
        [0.456, 0.304, 0.24]
    """
    inverse = 1 / np.maximum(level, floor(total))
    share: FloatArray = inverse / inverse.sum()
    return share


def balancing(shares: Matrix) -> FloatArray:
    """The weights that come closest to equal classes: ``argmin_p |B p - 1/M|^2`` on the simplex
    (Q1, eq. 16).

    A ridge of ``1e-8 |p|^2`` makes them unique. On the simplex the objective is ``|G p|^2``, ``G``
    being ``B - 1/M`` on top of ``1e-4 I``; it is least where the least-squares solution of ``G u =
    0, 1^T u = 1`` with ``u >= 0`` points, so that non-negative least squares solves it exactly: ``p
    = u / sum u``.

    Args:
        shares: ``[M, N]``, the class shares ``B`` of each cluster.

    Returns:
        float64 ``[N]``.

    Example:
        >>> balancing(np.array([[50 / 55, 0, 0], [5 / 55, 1, 0], [0, 0, 1]])).round(6).tolist()
        [0.366667, 0.3, 0.333333]
    """
    from scipy.optimize import nnls

    classes, clusters = shares.shape
    system = np.vstack(
        [shares - 1 / classes, np.sqrt(_RIDGE) * np.eye(clusters), np.ones((1, clusters))]
    )
    wanted = np.zeros(len(system))
    wanted[-1] = 1
    try:
        found: FloatArray = nnls(system, wanted, maxiter=100 * clusters)[0]
    except RuntimeError:  # it met its limit of iterations: near-parallel columns
        found = np.ones(clusters)
    return found / found.sum()


def class_shares(histograms: NDArray[Any], cluster: IntArray) -> Matrix:
    """``B[m, n] = D_Cn^m / D_Cn`` of the clients that told; a cluster of which nobody did has those
    of all who did.

    Args:
        histograms: ``[n, M]``, zero rows where nothing is known.
        cluster: int64 ``[n]``.
    """
    told = np.zeros((int(cluster.max()) + 1, histograms.shape[1]))
    np.add.at(told, cluster, histograms)
    everybody = told.sum(axis=0)
    if not everybody.any():
        everybody = np.ones_like(everybody)
    told[told.sum(axis=1) == 0] = everybody
    return (told / told.sum(axis=1, keepdims=True)).T


@dataclass(frozen=True)
class AskImbalance:
    """Asks the cohort for ``I_k`` (eq. 17), which needs the level ``D / M`` and so, before, the
    samples of everybody.

    Each client tells its ``D_k`` when it is first there (scope ``all``) or first scheduled, and
    again with each update. ``D`` is the sum over the clients that are there, or over the cohort. A
    client that does not tell is taken to be as balanced as one of its size can be, ``I_k = D -
    D_k``; what one tells is held in ``D - D_k .. D + D_k``, where it must lie, and ``D_k`` at most
    at the gate's cap.

    Args:
        scope: whose samples make ``D``.
        privacy: of what is told, see `Describe`.
        epsilon: its budget.
    """

    scope: Scope
    privacy: Literal["none", "discrete_laplace"] = "none"
    epsilon: float = 1.0

    def __call__(
        self, groups: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Mapping[str, Any]]:
        clients = len(groups.member)
        there = np.arange(clients) if door.able is None else door.able
        counted = cohort if self.scope == "scheduled" else np.union1d(there, cohort)
        size = (
            groups.memory["size"].numpy().copy() if "size" in groups.memory else np.zeros(clients)
        )
        new = counted[size[counted] == 0]
        if len(new):
            reply = self._ask(groups, new, door, key.of("sizes"), 0.0)  # |0 - D_m| summed is D_k
            size[reply.ids] = np.clip(reply.fields["imbalance"], 0, door.validator.cap)
        total = float(size[counted].sum())
        reply = self._ask(groups, cohort, door, key.of("imbalance"), total / max(1, door.classes))
        level = np.full(clients, -1.0)
        level[reply.ids] = reply.fields["imbalance"]
        groups = groups.remember(
            size=torch.from_numpy(size),
            imbalance=torch.from_numpy(level),
            total=torch.tensor(total, dtype=torch.float64),
        )
        return groups, {"total": total}

    def _ask(self, groups: Groups, ids: IntArray, door: Clients, key: Key, level: float) -> Reply:
        """Nothing but a number goes to the clients, no model."""
        work = Describe(
            "imbalance", door.classes, level=level, privacy=self.privacy, epsilon=self.epsilon
        )
        return door.run(work, ids, groups.models, np.empty((len(ids), 0), np.int64), key=key)


@dataclass(frozen=True)
class AskHistogram:
    """Asks the cohort for label histograms, the benchmark's privilege.

    Args:
        privacy: how they are made private, see `Describe`.
        epsilon: its budget.
    """

    privacy: Literal["none", "discrete_laplace", "randomised_response"] = "none"
    epsilon: float = 1.0

    def __call__(
        self, groups: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Mapping[str, Any]]:
        work = Describe("histogram", door.classes, privacy=self.privacy, epsilon=self.epsilon)
        none = np.empty((len(cohort), 0), np.int64)
        reply = door.run(work, cohort, groups.models, none, key=key.of("histograms"))
        told = np.zeros((len(groups.member), door.classes))
        told[reply.ids] = np.clip(reply.fields["histogram"], 0, door.validator.cap)
        return groups.remember(histogram=torch.from_numpy(told)), {}


def by_imbalance(groups: Groups, updates: Updates) -> Matrix:
    """Weigh rule of RFedAvg: ``D_k / D_C`` inside a cluster (eq. 4), `reciprocal` across
    clusters."""
    cluster = _clusters(groups, updates.ids)
    across = np.ones(1)
    if "imbalance" in groups.memory:
        across = reciprocal(
            _levels(groups, updates.ids, updates.size), float(groups.memory["total"])
        )
    return _spread(groups.k, cluster, updates.size, across)


def by_balance(groups: Groups, updates: Updates) -> Matrix:
    """Weigh rule of the benchmark "Optimal": ``D_k / D_C`` inside a cluster, `balancing` across
    clusters."""
    cluster = _clusters(groups, updates.ids)
    across = np.ones(1)
    if "histogram" in groups.memory:
        across = balancing(class_shares(groups.memory["histogram"].numpy()[updates.ids], cluster))
    return _spread(groups.k, cluster, updates.size, across)


def guarded(groups: Groups, ids: IntArray) -> int:
    """In how many of this round's clusters the guard stood in for an ``I_C`` that is too small.

    A cluster that is the only one has weight 1 anyway and does not count.
    """
    found = _levels(groups, ids, groups.memory["size"].numpy()[ids])
    if len(found) > 1:
        return int((found < floor(float(groups.memory["total"]))).sum())
    return 0


def _levels(groups: Groups, ids: IntArray, size: FloatArray) -> FloatArray:
    """``I_C`` of the clusters of this round, before the guard."""
    total = float(groups.memory["total"])
    level = np.clip(groups.memory["imbalance"].numpy()[ids], total - size, total + size)
    return cluster_imbalance(level, size, _clusters(groups, ids))


def _clusters(groups: Groups, ids: IntArray) -> IntArray:
    """The cluster of each client's update; all one where nobody made any."""
    if "clusters" not in groups.memory:
        return np.zeros(len(ids), np.int64)
    found: IntArray = groups.memory["clusters"].numpy()[ids]
    return found


def _spread(k: int, cluster: IntArray, size: FloatArray, across: FloatArray) -> Matrix:
    weights = np.zeros((k, len(cluster)))
    weights[0] = across[cluster] * (size / np.bincount(cluster, size)[cluster])
    return weights
