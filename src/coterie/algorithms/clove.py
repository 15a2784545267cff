"""CLoVE: Bhatia et al., CLoVE: Personalized Federated Learning through Clustering of Loss Vector
Embeddings (2025)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.config.schema import Count
from coterie.core import BoolArray, FloatArray, Groups, IntArray, Key, Plan, Score
from coterie.core.startup import starting_up
from coterie.math.clustering import kmeans
from coterie.math.outliers import far_from_neighbours
from coterie.methods.first_models import FirstModels
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients
from coterie.rules.cold_start import Outliers


def match_to_models(losses: FloatArray, cluster: IntArray) -> IntArray:
    """The model that each cluster of clients trains, int64 ``[m]``, so that all clusters together
    lose least.

    Of all ways to give each cluster a model of its own, it is the one with the least
    ``sum_i losses[i, model of i]``: a minimum-cost matching of clusters and models.

    Args:
        losses: float64 ``[n, k]``, the loss of each model for each client.
        cluster: int64 ``[n]`` in ``0..m-1``, with ``m <= k``.
    """
    # Imported late: it is slow to load, and every run loads this file.
    with starting_up():
        from scipy.optimize import linear_sum_assignment

    clusters = int(cluster.max()) + 1
    cost = np.zeros((clusters, losses.shape[1]))
    np.add.at(cost, cluster, losses)
    _, model = linear_sum_assignment(cost)
    return model.astype(np.int64)


@dataclass(frozen=True)
class ClusterLossVectors(PlacesClients):
    """The assign rule of CLoVE: clients whose losses under all models are alike train together.

    A client of the cohort that does not tell its losses keeps its group, and does not train.
    """

    outliers: Outliers = "leave_out"

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        key = round.key.of("losses")
        reply = round.clients.run(Score("train"), round.cohort, groups.models, key=key)
        ids = reply.ids
        if not len(ids):
            return groups, Plan(ids, ids)
        # Means, since a sum would put clients with many samples far from those with few.
        losses = reply.loss / reply.size[:, None]
        far = self._far(losses)
        row = losses.argmin(axis=1)
        row[~far] = _clustered(losses[~far], round.key.of("kmeans"))
        notes = {"newcomers": int((groups.member[ids] < 0).sum())}
        if far.any():
            notes["outliers"] = int(far.sum())
        return groups.with_members(ids, row), Plan(ids, row, notes=notes)

    def _far(self, losses: FloatArray) -> BoolArray:
        if self.outliers == "keep":
            return np.zeros(len(losses), bool)
        # Imported late: it is slow to load, and every run loads this file.
        with starting_up():
            from scipy.spatial.distance import cdist

        return far_from_neighbours(cdist(losses, losses), losses.shape[1])


def _clustered(losses: FloatArray, key: Key) -> IntArray:
    """The model that each client trains, int64 ``[n]``, by clusters of their losses ``[n, k]``."""
    clients, models = losses.shape
    cluster = kmeans(losses, min(models, clients), key)
    return match_to_models(losses, cluster)[cluster]


@validated
def clove(groups: Count = 3, outliers: Outliers = "leave_out") -> Method:
    """CLoVE: clients with similar losses under all models form a group, which trains the model
    that fits it best.

    With the loss vector ``L_i = (F_i(w_1), ..., F_i(w_k))`` of each client, k-means finds ``k``
    clusters of clients. A minimum-cost matching gives each cluster a model:
    ``min over matchings of sum_i F_i(w_model(i))``. So two clusters never train the same model,
    as clients of IFCA may. The models start from different initialisations.

    Args:
        groups: number of models ``k``.
        outliers: ``leave_out`` excludes clients from k-means if their losses are far from those of
            all others; they train the model with their lowest loss. With ``keep``, a single such
            client can take a cluster, and two groups share another.

    Models: one per group; their number is set.

    Source: Bhatia et al., CLoVE: Personalized Federated Learning through Clustering of Loss Vector
    Embeddings (2025).

    Example:
        >>> clove(groups=4).groups
        4
    """
    return Method(
        ClusterLossVectors(outliers),
        # From equal models all losses of a client are equal, and say nothing of its data.
        first=FirstModels(groups, distinct=True),
        needs=("statistics",),
    )
