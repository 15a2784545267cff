"""k-FED: Dennis et al., Heterogeneity for the Win: One-Shot Federated Clustering (2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.config.schema import Count
from coterie.core import Describe, FloatArray, Groups, GrowingRecord, IntArray, Plan
from coterie.errors import ConfigError
from coterie.math.similarity import Matrix
from coterie.methods.first_models import FirstModels
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients


@dataclass(frozen=True, slots=True)
class ClusterMeans(GrowingRecord):
    """What k-FED remembers.

    Args:
        mean: float64 ``[k, features]``, the mean of the centres of each cluster.
    """

    record_name: ClassVar[str] = "k_fed"
    # There is nothing of single clients in it.
    newcomer: ClassVar[Mapping[str, float]] = {}
    mean: FloatArray


def distances(points: Matrix, centre: Matrix) -> Matrix:
    """Squared Euclidean distances, float64 ``[n, m]``.

    Example:
        >>> distances(np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[0.0, 0.0]])).tolist()
        [[0.0], [25.0]]
    """
    # One centre at a time: the differences of all would be large for images.
    columns = [((points - one) ** 2).sum(axis=1) for one in centre]
    return np.stack(columns, axis=1)


def farthest_first(points: Matrix, first: IntArray, k: int) -> IntArray:
    """``k`` of ``n >= k`` rows that are far apart: each next one is the farthest from all before it
    (Alg. 2, l. 3-6).

    Args:
        first: int64, the rows to begin with, at least one and at most ``k``.
    """
    chosen = list(first)
    nearest = distances(points, points[first]).min(axis=1)
    while len(chosen) < k:
        # A row that was chosen is not chosen again, also where all that are left lie on chosen ones.
        nearest[chosen] = -1.0
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, distances(points, points[chosen[-1:]])[:, 0])
    return np.array(chosen)


def most_samples(cluster: IntArray, share: Matrix, k: int) -> IntArray:
    """The cluster that most of each client's samples are in, int64 ``[n]``; of equals the lowest.

    Args:
        cluster: int64 ``[n, k']``, that of each of its centres.
        share: float64 ``[n, k']``, the share of its samples that each centre stands for.

    Example:
        >>> most_samples(np.array([[0, 1, 0]]), np.array([[0.3, 0.4, 0.3]]), 2).tolist()
        [0]
    """
    inside = np.zeros((len(cluster), k))
    np.add.at(inside, (np.arange(len(cluster))[:, None], cluster), share)
    return inside.argmax(axis=1)


@dataclass(frozen=True)
class ClustersCentres(PlacesClients):
    """The assign rule of k-FED; its fields are the arguments of `k_fed`."""

    groups: int
    centres: int

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        memory = groups.memory.get(ClusterMeans)
        notes: dict[str, int] = {}
        if memory is None:
            groups = self._cluster(groups, round)
            memory = groups.memory.get(ClusterMeans)
            notes = {"cold_start": int((groups.member >= 0).sum())}
            if memory is None:
                notes = {"unclustered": 1}
        new = round.cohort[groups.member[round.cohort] < 0]
        if memory is not None and len(new):
            ids, centre, share = self._ask(groups, new, round.of("newcomers"))
            groups = groups.with_members(ids, _join(memory, groups.k, centre, share))
            notes["newcomers"] = len(ids)
        ids = round.cohort[groups.member[round.cohort] >= 0]
        return groups, Plan(ids, groups.member[ids], notes=notes)

    def _ask(
        self, groups: Groups, ids: IntArray, round: Round
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Who replied, its centres ``[n, k', features]``, and the share of its samples in each."""
        work = Describe("centres", features=round.clients.features, vectors=self.centres)
        # No model is sent for a statistic of a client's data.
        reply = round.clients.run(work, ids, key=round.key)
        found = reply.fields["centres"].astype(np.float64)
        return reply.ids, found[:, :, :-1], found[:, :, -1]

    @property
    def places_by_inputs(self) -> bool:
        """See `PlacesUnlabelled`."""
        return True

    def ask_unlabelled(self, groups: Groups) -> tuple[Describe, Tensor] | None:
        """See `PlacesUnlabelled`: centres are of inputs alone."""
        memory = groups.memory.get(ClusterMeans)
        if memory is None:
            return None
        features = memory.mean.shape[1]
        work = Describe("centres", features=features, vectors=self.centres, labelled=False)
        return work, groups.models[0]

    def place_unlabelled(self, groups: Groups, rows: Tensor) -> IntArray:
        """See `PlacesUnlabelled`: as any newcomer."""
        memory = groups.memory.get(ClusterMeans)
        assert memory is not None, "clients without labels come after the clustering"
        found = rows.numpy().astype(np.float64)
        return _join(memory, groups.k, found[:, :, :-1], found[:, :, -1])

    def _cluster(self, groups: Groups, round: Round) -> Groups:
        """Alg. 2: centres that are far apart draw the others to them."""
        asked = round.trainable(len(groups.member))
        ids, centre, share = self._ask(groups, asked, round.of("centres"))
        real = share.ravel() > 0
        points = centre.reshape(-1, centre.shape[2])[real]
        if len(ids) < round.least_replies or len(points) < self.groups:
            return groups
        # l. 2: the centres of any one client are apart from each other.
        one = int(round.key.of("first").generator().integers(len(ids)))
        owner = np.repeat(np.arange(len(ids)), self.centres)[real]
        seeds = farthest_first(points, np.flatnonzero(owner == one), self.groups)
        # l. 7-8: the nearest of them, and the means of what it has drawn.
        label = distances(points, points[seeds]).argmin(axis=1)
        mean = points[seeds]
        for j in np.unique(label):
            mean[j] = points[label == j].mean(axis=0)
        cluster = np.zeros(share.size, np.int64)
        cluster[real] = label
        joined = most_samples(cluster.reshape(share.shape), share, self.groups)
        return groups.with_members(ids, joined).remember(ClusterMeans(mean))


def _join(memory: ClusterMeans, k: int, centre: FloatArray, share: FloatArray) -> IntArray:
    """The cluster of each newcomer by its centres, int64 ``[n]``."""
    cluster = distances(centre.reshape(-1, centre.shape[2]), memory.mean).argmin(axis=1)
    return most_samples(cluster.reshape(share.shape), share, k)


@validated
def k_fed(groups: Count = 3, centres: Count = 1) -> Method:
    """k-FED: clusters clients once, by the means of their inputs, before any training.

    Each client finds ``k'`` centres of its inputs by k-means. The server takes the centres of one
    client, adds the centre that is farthest from those it has until there are ``k``, and assigns
    every centre to the nearest of them. A client joins the cluster that contains most of its
    samples. A newcomer's centres are compared with the means of the clusters.

    Args:
        groups: number of models ``k``.
        centres: number ``k'`` of centres of each client, at most ``k``.

    Raises:
        ConfigError: for more centres than groups.

    Models: one per group; their number is set.

    Source: Dennis et al., Heterogeneity for the Win: One-Shot Federated Clustering (2021).

    Example:
        >>> k_fed(groups=4, centres=2).groups
        4
    """
    if centres > groups:
        raise ConfigError(
            "out-of-range",
            "algorithm.centres",
            "more centres per client than groups",
            found=centres,
            allowed=f"1 to {groups}",
        )
    return Method(
        ClustersCentres(groups, centres), first=FirstModels(groups), needs=("statistics",)
    )
