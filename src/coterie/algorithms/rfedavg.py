"""RFedAvg and its benchmarks.

Wang, Zhang and Tao, "Adaptive Clustering-Based Model Aggregation for Federated Learning with
Imbalanced Data" (2021). There is one model. Clusters set no groups: the clusters of a round's
updates only say how much each update counts. Adaptive CCS is in ``coterie.math.ccs``, the weights
are in ``coterie.math.imbalance``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from pydantic import Field

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.engine import Reply
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.updates import Updates
from coterie.core.work import Describe, Epsilon, Evaluate, Train
from coterie.math.ccs import adaptive_threshold, ccs
from coterie.math.clustering import kmeans
from coterie.math.imbalance import (
    balancing,
    class_shares,
    cluster_imbalance,
    imbalance_floor,
    reciprocal,
)
from coterie.math.similarity import Matrix, cosine
from coterie.methods.method import Method
from coterie.objectives import plain
from coterie.rules.server import Server, sgd
from coterie.rules.single_group import everyone

Scope = Literal["all", "scheduled"]
Gradient = Literal["epochs", "one"]
Angle = Annotated[float, Field(ge=0, le=math.pi / 2)]
Loss = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Privacy = Literal["none", "discrete_laplace"]
HistogramPrivacy = Literal["none", "discrete_laplace", "randomised_response"]


@dataclass(frozen=True, slots=True)
class ClusterMemory:
    """What RFedAvg remembers. A field is ``None`` until it is known, or where a variant does not
    need it.

    Args:
        threshold: ``eps_t``, how similar the updates of a cluster must be in this round.
        loss: ``l_t``, the mean loss of the last cohort before it trained.
        first_loss: ``l_0``, that of the first round.
        cluster: int64 ``[N]``, the cluster of each client's update in the last round, -1 for a
            client that did not train in it.
        size: float64 ``[N]``, samples of each client, 0 where they are not known.
        imbalance: float64 ``[N]``, ``I_k`` of each client of the last cohort, else -1.
        total: ``D``, samples of all clients that count.
        histogram: float64 ``[N, C]``, label histograms of the last cohort.
    """

    record_name: ClassVar[str] = "rfedavg"
    threshold: float | None = None
    loss: float | None = None
    first_loss: float | None = None
    cluster: IntArray | None = None
    size: FloatArray | None = None
    imbalance: FloatArray | None = None
    total: float | None = None
    histogram: FloatArray | None = None


def _memory(groups: Groups) -> ClusterMemory:
    return groups.memory.get(ClusterMemory) or ClusterMemory()


class Query(Protocol):
    """What the cohort is asked for before it trains."""

    def ask(self, groups: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]:
        """The groups that remember the answers, and notes for the round's row."""
        ...


@dataclass(frozen=True)
class WithQueries:
    """Assign rule: all clients train the one model, after the cohort was asked for what the weights
    will need.

    Args:
        queries: in the order in which they are asked.
    """

    queries: tuple[Query, ...]

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        groups, plan = everyone(groups, round)
        notes: dict[str, Any] = {}
        for query in self.queries:
            groups, found = query.ask(groups, round)
            notes |= found
        return groups, replace(plan, notes=notes)


@dataclass(frozen=True)
class LossThreshold:
    """Asks the cohort for its loss before it trains, and sets the threshold of the round by it
    (eq. 7).

    ``l_t = sum_k D_k F_k(w^t) / sum_k D_k`` over the clients asked, as an exponential moving
    average where wanted; ``l_0`` is that of the first round. A round in which no client answers
    keeps the loss of the one before. A reported loss is held in ``0..2 l_0``, in the first round in
    0 to twice the median of all reports.

    Args:
        theta: see `adaptive_threshold`.
        l_star: see `adaptive_threshold`.
        ema: share of the past in ``l_t``, 0 for none.
    """

    theta: float
    l_star: float
    ema: float

    def ask(self, groups: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]:
        memory = _memory(groups)
        which = np.zeros(len(round.cohort), np.int64)
        key = round.key.of("losses")
        reply = round.clients.run(Evaluate("train"), round.cohort, groups.models, which, key=key)
        past = memory.loss
        if not len(reply) and past is None:
            # No client has reported a loss yet: the threshold of the first round, where l_t = l_0.
            memory = replace(memory, threshold=math.cos(self.theta))
            return groups.remember(memory), {}
        loss = past
        if len(reply):
            loss = _mean_loss(reply, None if past is None else memory.first_loss)
        assert loss is not None
        if past is not None:
            loss = self.ema * past + (1 - self.ema) * loss
        first = loss if memory.first_loss is None else memory.first_loss
        threshold = adaptive_threshold(loss, first, self.l_star, self.theta)
        memory = replace(memory, loss=loss, first_loss=first, threshold=threshold)
        notes = {"threshold": threshold, "loss_before": loss, "loss_first": first}
        return groups.remember(memory), notes


def _mean_loss(reply: Reply, usual: float | None) -> float:
    """The mean loss over all samples, that of each client held in 0 to twice the usual one.

    Args:
        reply: summed losses and samples.
        usual: the loss of the first round; ``None``: the median of this reply.
    """
    size = reply.fields["size"].astype(np.float64)
    each = reply.fields["loss"][:, 0] / size
    if usual is None:
        usual = float(np.median(each))
    # Losses are claims. Clipped, one client moves the threshold by no more than its share
    # of samples.
    return float(np.average(np.clip(each, 0, max(0.0, 2 * usual)), weights=size))


@dataclass(frozen=True)
class AskImbalance:
    """Asks the cohort for ``I_k`` (eq. 17), which needs the level ``D / M``, and so the samples of
    all clients first.

    Each client reports its ``D_k`` when it is first present (scope ``all``) or first scheduled, and
    again with each update. ``D`` is the sum over the clients that are present, or over the cohort.
    A client that does not report is taken to be as balanced as one of its size can be,
    ``I_k = D - D_k``. What one reports is held in ``D - D_k .. D + D_k``, where it must lie, and
    ``D_k`` at most at the cap of the reply's validation.

    Args:
        scope: whose samples make ``D``.
        privacy: of what is reported, see `Describe`.
        epsilon: its budget.
    """

    scope: Scope
    privacy: Privacy = "none"
    epsilon: float = 1.0

    def ask(self, groups: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]:
        memory = _memory(groups)
        clients = len(groups.member)
        counted = round.cohort
        if self.scope == "all":
            # All registered clients. Read as each client's own D_k, I_C is often negative (erratum
            # P15).
            counted = np.union1d(round.trainable(clients), round.cohort)
        size = np.zeros(clients) if memory.size is None else memory.size.copy()
        new = counted[size[counted] == 0]
        if len(new):
            # With a level of 0 the reply is sum_m |0 - D_m|, which is D_k.
            reply = self._report(groups, new, round.of("sizes"), 0.0)
            size[reply.ids] = np.clip(reply.fields["imbalance"], 0, round.clients.validator.cap)
        total = float(size[counted].sum())
        level = total / max(1, round.clients.classes)
        reply = self._report(groups, round.cohort, round.of("imbalance"), level)
        # Below every legal value, so a client that did not answer is clipped to its least, D - D_k.
        imbalance = np.full(clients, -1.0)
        imbalance[reply.ids] = reply.fields["imbalance"]
        memory = replace(memory, size=size, imbalance=imbalance, total=total)
        return groups.remember(memory), {"total": total}

    def _report(self, groups: Groups, ids: IntArray, round: Round, level: float) -> Reply:
        """``sum_m |level - D_m|`` of each client. Only a number goes to the clients, no model."""
        clients = round.clients
        work = Describe(
            "imbalance", clients.classes, level=level, privacy=self.privacy, epsilon=self.epsilon
        )
        no_model = np.empty((len(ids), 0), np.int64)
        return clients.run(work, ids, groups.models, no_model, key=round.key)


@dataclass(frozen=True)
class AskHistogram:
    """Asks the cohort for label histograms, which only the benchmark "Optimal" does.

    Args:
        privacy: how they are made private, see `Describe`.
        epsilon: its budget.
    """

    privacy: HistogramPrivacy = "none"
    epsilon: float = 1.0

    def ask(self, groups: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]:
        clients = round.clients
        work = Describe("histogram", clients.classes, privacy=self.privacy, epsilon=self.epsilon)
        no_model = np.empty((len(round.cohort), 0), np.int64)
        key = round.key.of("histograms")
        reply = clients.run(work, round.cohort, groups.models, no_model, key=key)
        histogram = np.zeros((len(groups.member), clients.classes))
        # Noise for privacy makes counts negative, and a claimed count may be anything.
        histogram[reply.ids] = np.clip(reply.fields["histogram"], 0, clients.validator.cap)
        return groups.remember(replace(_memory(groups), histogram=histogram)), {}


def recluster_ccs(groups: Groups, updates: Updates, round: Round) -> tuple[Groups, Updates]:
    """Recluster rule: adaptive CCS of this round's updates, whose cosines are those of the
    gradients (eq. 6, Alg. 1)."""
    threshold = _memory(groups).threshold
    assert threshold is not None, "the loss was asked before the updates"
    cluster = ccs(cosine(updates.delta, updates.delta), threshold)
    return _with_clusters(groups, updates, cluster), updates


@dataclass(frozen=True)
class ReclusterKMeans:
    """Recluster rule: K-means of the updates into ``min(clusters, n)`` (eq. 18).

    Args:
        clusters: ``N``.
        unit: cluster directions instead of updates.
    """

    clusters: int
    unit: bool

    def __call__(self, groups: Groups, updates: Updates, round: Round) -> tuple[Groups, Updates]:
        if not len(updates):
            return _with_clusters(groups, updates, np.empty(0, np.int64)), updates
        features = updates.delta.to(torch.float64)
        if self.unit:
            features = torch.nn.functional.normalize(features, dim=1)
        # Version 0.1 kept the stream between two calls as a number of 32 bits. Folded the same way,
        # its draws, and so its results, stay.
        key = Key(round.key.of("clusters").seed32())
        cluster = kmeans(features.numpy(), min(self.clusters, len(updates)), key)
        return _with_clusters(groups, updates, cluster), updates


def _with_clusters(groups: Groups, updates: Updates, found: IntArray) -> Groups:
    """The cluster of each update, remembered by client, with the samples that updates report."""
    memory = _memory(groups)
    cluster = np.full(len(groups.member), -1)
    cluster[updates.ids] = found
    size = memory.size
    if size is not None:
        size = size.copy()
        size[updates.ids] = updates.size
    return groups.remember(replace(memory, cluster=cluster, size=size))


def by_imbalance(groups: Groups, updates: Updates, round: Round) -> Matrix:
    """Weigh rule of RFedAvg: ``D_k / D_C`` inside a cluster (eq. 4), `reciprocal` across clusters
    (sec. III-B)."""
    memory = _memory(groups)
    across = np.ones(1)
    if memory.imbalance is not None:
        assert memory.total is not None
        levels = _cluster_levels(memory, updates.ids, updates.size)
        across = reciprocal(levels, memory.total)
    return _weights(groups.k, _clusters(memory, updates.ids), updates.size, across)


def by_balance(groups: Groups, updates: Updates, round: Round) -> Matrix:
    """Weigh rule of the benchmark "Optimal": ``D_k / D_C`` inside a cluster, `balancing` across
    clusters (eq. 16)."""
    memory = _memory(groups)
    cluster = _clusters(memory, updates.ids)
    across = np.ones(1)
    if memory.histogram is not None:
        across = balancing(class_shares(memory.histogram[updates.ids], cluster))
    return _weights(groups.k, cluster, updates.size, across)


def guarded(memory: ClusterMemory, ids: IntArray) -> int:
    """In how many of this round's clusters the guard replaced an ``I_C`` that is too small.

    A cluster that is the only one has weight 1 anyway and does not count.

    Args:
        memory: after a round.
        ids: int64 ``[n]``, the clients whose updates counted.
    """
    assert memory.size is not None
    assert memory.total is not None
    levels = _cluster_levels(memory, ids, memory.size[ids])
    if len(levels) < 2:
        return 0
    return int((levels < imbalance_floor(memory.total)).sum())


def _cluster_levels(memory: ClusterMemory, ids: IntArray, size: FloatArray) -> FloatArray:
    """``I_C`` of the clusters of this round, before the guard, float64 ``[clusters]``."""
    assert memory.imbalance is not None
    assert memory.total is not None
    total = memory.total
    # I_k >= sum_m (D/M - D_k^m) = D - D_k, and at most D + D_k by the triangle inequality.
    level = np.clip(memory.imbalance[ids], total - size, total + size)
    return cluster_imbalance(level, size, _clusters(memory, ids))


def _clusters(memory: ClusterMemory, ids: IntArray) -> IntArray:
    """The cluster of each client's update, int64 ``[n]``; one cluster where none were made."""
    if memory.cluster is None:
        return np.zeros(len(ids), np.int64)
    return memory.cluster[ids]


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

    ``w^{t+1} = w^t - eta sum_n p_n g_n`` (eq. 5), ``g_n`` the ``D_k``-weighted mean of a cluster of
    adaptive CCS (eq. 4, 6, 7, Alg. 1), ``p_n`` in proportion to ``1 / I_Cn`` (sec. III-B).

    Args:
        theta: angle between updates of a cluster in the first round, in radians.
        l_star: the loss at which any two updates less than 90 degrees apart may share a cluster.
        ema: share of the past in the current loss.
        d_scope: ``D`` counts the samples of ``all`` clients that are there, or of the ``scheduled``
            ones.
        gradient: ``epochs``: ``g = (w - w_k) / eta`` after local SGD with its learning rate as
            ``eta``; ``one``: the gradient of the whole local loss, as the equations have it.
        eta: the server's step with ``gradient = "one"``.
        privacy: the imbalance that a client tells is that of a histogram with noise.
        epsilon: the noise's privacy budget.

    Models: one.

    Source: Wang et al., Adaptive Clustering-Based Model Aggregation for Federated Learning with
    Imbalanced Data (2021).

    Example:
        >>> rfedavg().groups, rfedavg(gradient="one").local.full_gradient
        (1, True)
    """
    queries = (LossThreshold(theta, l_star, ema), AskImbalance(d_scope, privacy, epsilon))
    return Method(
        assign=WithQueries(queries),
        local=_local(gradient),
        recluster=recluster_ccs,
        weigh=by_imbalance,
        server=_server(gradient, eta),
        counts_classes=True,
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

    It stands in the place of CCS (eq. 18); with one cluster this is FedAvg.

    Args:
        clusters: ``N``, at most; never more than replies.
        unit: cluster directions instead of updates.
        d_scope: as in ``rfedavg``, and so the rest.

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
        counts_classes=True,
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
        counts_classes=True,
    )


def _local(gradient: Gradient) -> Train:
    return Train(plain, full_gradient=gradient == "one")


def _server(gradient: Gradient, eta: float) -> Server:
    # With `epochs`, g = -delta / eta, and the step eta of eq. 5 cancels.
    return sgd(eta if gradient == "one" else 1.0)
