"""RFedAvg and its benchmarks.

Wang, Zhang and Tao, "Adaptive Clustering-Based Model Aggregation for Federated Learning with
Imbalanced Data" (2021). There is one model. Clusters set no groups: the clusters of a round's
updates only say how much each update counts. Adaptive CCS is in ``coterie.math.imbalance``, the weights
are in ``coterie.math.imbalance``, what clients are asked for is in
``coterie.rules.cluster_queries``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import Epochs, FloatArray, FullGradient, Groups, IntArray, Key, Train, Updates
from coterie.core.describe import Epsilon
from coterie.math.clustering import kmeans
from coterie.math.imbalance import balancing, ccs, class_shares, reciprocal
from coterie.math.similarity import Matrix, cosine
from coterie.methods.method import Method
from coterie.rules.cluster_queries import (
    AskHistogram,
    AskImbalance,
    ClusterMemory,
    HistogramPrivacy,
    LossThreshold,
    Privacy,
    Scope,
    WithQueries,
)
from coterie.rules.server import Server, sgd

Gradient = Literal["epochs", "one"]
Angle = Annotated[float, Field(ge=0, le=math.pi / 2)]
Loss = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]


def recluster_ccs(groups: Groups, updates: Updates, round: Round) -> tuple[Groups, Updates]:
    """Recluster rule: adaptive CCS of this round's updates, whose cosines are those of the
    gradients (eq. 6, Alg. 1)."""
    memory = ClusterMemory.of(groups)
    assert memory.threshold is not None, "the loss was asked before the updates"
    clients = len(groups.member)
    cluster = ccs(cosine(updates.delta, updates.delta), memory.threshold)
    return groups.remember(memory.with_clusters(clients, updates, cluster)), updates


@dataclass(frozen=True)
class ReclusterKMeans:
    """Recluster rule: K-means of the updates into ``min(clusters, n)`` (eq. 18)."""

    clusters: int
    unit: bool

    def __call__(self, groups: Groups, updates: Updates, round: Round) -> tuple[Groups, Updates]:
        memory = ClusterMemory.of(groups)
        clients = len(groups.member)
        cluster = np.empty(0, np.int64)
        if len(updates):
            features = updates.delta.to(torch.float64)
            if self.unit:
                features = torch.nn.functional.normalize(features, dim=1)
            # Folded to 32 bits, as it always was: with the key itself all results would be others.
            key = Key(round.key.of("clusters").seed32())
            cluster = kmeans(features.numpy(), min(self.clusters, len(updates)), key)
        return groups.remember(memory.with_clusters(clients, updates, cluster)), updates


def by_imbalance(groups: Groups, updates: Updates, round: Round) -> Matrix:
    """Weigh rule of RFedAvg: ``D_k / D_C`` inside a cluster (eq. 4), `reciprocal` across clusters
    (sec. III-B)."""
    memory = ClusterMemory.of(groups)
    across = np.ones(1)
    if memory.imbalance is not None:
        assert memory.total is not None
        levels = memory.cluster_levels(updates.ids, updates.size)
        across = reciprocal(levels, memory.total)
    return _weights(groups.k, memory.cluster_of(updates.ids), updates.size, across)


def by_balance(groups: Groups, updates: Updates, round: Round) -> Matrix:
    """Weigh rule of the benchmark "Optimal": ``D_k / D_C`` inside a cluster, `balancing` across
    clusters (eq. 16)."""
    memory = ClusterMemory.of(groups)
    cluster = memory.cluster_of(updates.ids)
    across = np.ones(1)
    if memory.histogram is not None:
        across = balancing(class_shares(memory.histogram[updates.ids], cluster))
    return _weights(groups.k, cluster, updates.size, across)


def _weights(k: int, cluster: IntArray, size: FloatArray, across: FloatArray) -> Matrix:
    """Weights of clusters times shares of their samples: ``W [k, n]``, all in row 0."""
    weights = np.zeros((k, len(cluster)))
    weights[0] = across[cluster] * (size / np.bincount(cluster, size)[cluster])
    return weights


@validated
def rfedavg(
    # The paper prints neither theta (here 5 degrees) nor l_* nor the local training.
    theta: Angle = math.pi / 36,
    l_star: Loss = 0.05,
    ema: Share = 0.0,
    d_scope: Scope = "all",
    gradient: Gradient = "epochs",
    eta: Positive = 0.01,
    privacy: Privacy = "none",
    epsilon: Epsilon = 1.0,
) -> Method:
    """RFedAvg: trains one model. Similar updates count as one, with weights that reduce class
    imbalance.

    ``w^{t+1} = w^t - eta sum_n p_n g_n`` (eq. 5), where ``g_n`` is the ``D_k``-weighted mean of a
    cluster of adaptive CCS (eq. 4, 6, 7, Alg. 1), and ``p_n`` is proportional to ``1 / I_Cn`` (sec.
    III-B).

    Args:
        theta: angle between updates of a cluster in the first round, in radians.
        l_star: the loss at which any two updates less than 90 degrees apart may share a cluster.
        ema: share of the past in the current loss.
        d_scope: ``D`` counts the samples of ``all`` clients that are present, or of the
            ``scheduled`` ones.
        gradient: ``epochs``: ``g = (w - w_k) / eta`` after local SGD with its learning rate as
            ``eta``; ``one``: the gradient of the whole local loss, as in the equations.
        eta: the server's step with ``gradient = "one"``.
        privacy: how a client makes its histogram private before it computes the imbalance that it
            sends.
        epsilon: privacy budget of the noise.

    Models: one.

    Source: Wang et al., Adaptive Clustering-Based Model Aggregation for Federated Learning with
    Imbalanced Data (2021).

    Example:
        >>> rfedavg().groups, rfedavg(gradient="one").local.how
        (1, FullGradient())
    """
    queries = (LossThreshold(theta, l_star, ema), AskImbalance(d_scope, privacy, epsilon))
    return Method(
        assign=WithQueries(queries),
        local=_local(gradient),
        recluster=recluster_ccs,
        weigh=by_imbalance,
        server=_server(gradient, eta),
        needs=("statistics", "class_labels"),
    )


@validated
def rfedavg_kmeans(
    clusters: Annotated[int, Field(ge=1)] = 10,
    unit: bool = False,
    d_scope: Scope = "all",
    gradient: Gradient = "epochs",
    eta: Positive = 0.01,
    privacy: Privacy = "none",
    epsilon: Epsilon = 1.0,
) -> Method:
    """RFedAvg K-means: RFedAvg with k-means as its clustering.

    k-means replaces CCS (eq. 18); with one cluster this is FedAvg.

    Args:
        clusters: largest number ``N`` of clusters; there are never more than replies.
        unit: cluster directions instead of updates.
        d_scope: see ``rfedavg``, also for the other arguments.

    Models: one.

    Source: Wang et al., Adaptive Clustering-Based Model Aggregation for Federated Learning with
    Imbalanced Data (2021).

    Example:
        >>> rfedavg_kmeans(clusters=4).groups
        1
    """
    query = AskImbalance(d_scope, privacy, epsilon)
    return Method(
        assign=WithQueries((query,)),
        local=_local(gradient),
        recluster=ReclusterKMeans(clusters, unit),
        weigh=by_imbalance,
        server=_server(gradient, eta),
        needs=("statistics", "class_labels"),
    )


@validated
def rfedavg_optimal(
    theta: Angle = math.pi / 36,
    l_star: Loss = 0.05,
    ema: Share = 0.0,
    gradient: Gradient = "epochs",
    eta: Positive = 0.01,
    privacy: HistogramPrivacy = "none",
    epsilon: Epsilon = 1.0,
) -> Method:
    """RFedAvg Optimal: RFedAvg with the weights that balance the classes best. It needs label
    histograms.

    The weights solve Q1, eq. 16.

    Arguments as in ``rfedavg``; ``privacy`` is that of the histograms.

    Models: one.

    Source: Wang et al., Adaptive Clustering-Based Model Aggregation for Federated Learning with
    Imbalanced Data (2021).

    Example:
        >>> rfedavg_optimal(theta=0.1).groups
        1
    """
    queries = (LossThreshold(theta, l_star, ema), AskHistogram(privacy, epsilon))
    return Method(
        assign=WithQueries(queries),
        local=_local(gradient),
        recluster=recluster_ccs,
        weigh=by_balance,
        server=_server(gradient, eta),
        needs=("statistics", "class_labels"),
    )


def _local(gradient: Gradient) -> Train:
    return Train(how=FullGradient() if gradient == "one" else Epochs())


def _server(gradient: Gradient, eta: float) -> Server:
    # With `epochs`, g = -delta / eta, and the step eta of eq. 5 cancels.
    return sgd(eta if gradient == "one" else 1.0)
