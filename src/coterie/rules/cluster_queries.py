"""What RFedAvg's server asks the cohort before it trains, and remembers: losses, class imbalance and
label histograms. Its clusters' weights are made of the answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from coterie.clients.round import Round
from coterie.core import (
    Describe,
    FloatArray,
    Groups,
    GrowingRecord,
    IntArray,
    Plan,
    Reply,
    Score,
    Updates,
)
from coterie.math.imbalance import adaptive_threshold, cluster_imbalance, imbalance_floor
from coterie.rules.assigning import everyone

Scope = Literal["all", "scheduled"]
Privacy = Literal["none", "discrete_laplace"]
HistogramPrivacy = Literal["none", "discrete_laplace", "randomised_response"]


@dataclass(frozen=True, slots=True)
class ClusterMemory(GrowingRecord):
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
    newcomer: ClassVar[Mapping[str, float]] = {
        "cluster": -1,
        "size": 0,
        "imbalance": -1,
        "histogram": 0,
    }
    threshold: float | None = None
    loss: float | None = None
    first_loss: float | None = None
    cluster: IntArray | None = None
    size: FloatArray | None = None
    imbalance: FloatArray | None = None
    total: float | None = None
    histogram: FloatArray | None = None

    @classmethod
    def of(cls, groups: Groups) -> ClusterMemory:
        """What the groups remember, or nothing yet."""
        return groups.memory.get(cls) or cls()

    def cluster_of(self, ids: IntArray) -> IntArray:
        """The cluster of each client's update, int64 ``[n]``; one cluster where none were made."""
        if self.cluster is None:
            return np.zeros(len(ids), np.int64)
        return self.cluster[ids]

    def with_clusters(self, clients: int, updates: Updates, found: IntArray) -> ClusterMemory:
        """The cluster that was found for each update, by client, with the samples that updates
        report."""
        cluster = np.full(clients, -1)
        cluster[updates.ids] = found
        size = self.size
        if size is not None:
            size = size.copy()
            size[updates.ids] = updates.size
        return replace(self, cluster=cluster, size=size)

    def cluster_levels(self, ids: IntArray, size: FloatArray) -> FloatArray:
        """``I_C`` of the clusters of this round, before the guard, float64 ``[clusters]``."""
        assert self.imbalance is not None
        assert self.total is not None
        # I_k >= sum_m (D/M - D_k^m) = D - D_k, and at most D + D_k by the triangle inequality.
        level = np.clip(self.imbalance[ids], self.total - size, self.total + size)
        return cluster_imbalance(level, size, self.cluster_of(ids))

    def guarded(self, ids: IntArray) -> int:
        """In how many of the last round's clusters the guard replaced an ``I_C`` that is too small.
        A single cluster has weight 1 anyway and does not count."""
        assert self.size is not None
        assert self.total is not None
        levels = self.cluster_levels(ids, self.size[ids])
        if len(levels) < 2:
            return 0
        return int((levels < imbalance_floor(self.total)).sum())


# The groups that remember what was answered, and notes for the round's row.
Answers = Callable[[Groups], tuple[Groups, Mapping[str, Any]]]


class Query(Protocol):
    """What the cohort is asked for before it trains."""

    def ask(self, groups: Groups, round: Round) -> Answers:
        """Ask; the answers are read when the cohort has trained, since weights alone need them."""
        ...


@dataclass(frozen=True)
class WithQueries:
    """Assign rule: all clients train the one model, and the cohort first answers, in this order,
    what the weights will need. Real clients do both in one exchange."""

    queries: tuple[Query, ...]

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        groups, plan = everyone(groups, round)
        asked = [query.ask(groups, round) for query in self.queries]

        def answers(groups: Groups) -> tuple[Groups, Mapping[str, Any]]:
            notes: dict[str, Any] = {}
            for read in asked:
                groups, found = read(groups)
                notes |= found
            return groups, notes

        return groups, replace(plan, answers=answers)


@dataclass(frozen=True)
class LossThreshold:
    """Asks the cohort for its loss before it trains, and sets the threshold of the round by it
    (eq. 7). For ``theta`` and ``l_star`` see `adaptive_threshold`.

    ``l_t = sum_k D_k F_k(w^t) / sum_k D_k`` over the clients asked, with ``ema`` as an exponential
    moving average; ``l_0`` is that of the first round. A round in which no client answers keeps the
    loss of the one before. A reported loss is held in ``0..2 l_0``, in the first round in 0 to
    twice the median of all reports.
    """

    theta: float
    l_star: float
    ema: float

    def ask(self, groups: Groups, round: Round) -> Answers:
        key = round.key.of("losses")
        read = round.clients.post(Score("train"), round.cohort, groups.models[0], key=key)
        return lambda groups: self._set(groups, read())

    def _set(self, groups: Groups, reply: Reply) -> tuple[Groups, Mapping[str, Any]]:
        memory = ClusterMemory.of(groups)
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
        first = loss
        if memory.first_loss is not None:
            first = memory.first_loss
        threshold = adaptive_threshold(loss, first, self.l_star, self.theta)
        memory = replace(memory, loss=loss, first_loss=first, threshold=threshold)
        notes = {"threshold": threshold, "loss_before": loss, "loss_first": first}
        return groups.remember(memory), notes


def _mean_loss(reply: Reply, usual: float | None) -> float:
    """The mean loss over all samples, each client's held in 0 to twice the usual one: that of the
    first round, or the median of this reply."""
    size = reply.size.astype(np.float64)
    each = reply.loss[:, 0] / size
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
    """

    scope: Scope
    privacy: Privacy = "none"
    epsilon: float = 1.0

    def ask(self, groups: Groups, round: Round) -> Answers:
        memory = ClusterMemory.of(groups)
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
            reply = self._report(groups, new, round.of("sizes"), 0.0)()
            size[reply.ids] = np.clip(reply.fields["imbalance"], 0, round.clients.validator.cap)
        total = float(size[counted].sum())
        level = total / max(1, round.clients.classes)
        read = self._report(groups, round.cohort, round.of("imbalance"), level)

        def answers(groups: Groups) -> tuple[Groups, Mapping[str, Any]]:
            reply = read()
            # Below every legal value, so a client that did not answer is clipped to its least,
            # D - D_k.
            imbalance = np.full(clients, -1.0)
            imbalance[reply.ids] = reply.fields["imbalance"]
            memory = ClusterMemory.of(groups)
            memory = replace(memory, size=size, imbalance=imbalance, total=total)
            return groups.remember(memory), {"total": total}

        return answers

    def _report(
        self, groups: Groups, ids: IntArray, round: Round, level: float
    ) -> Callable[[], Reply]:
        """``sum_m |level - D_m|`` of each client. Only a number goes to the clients, no model."""
        clients = round.clients
        work = Describe(
            "imbalance", clients.classes, level=level, privacy=self.privacy, epsilon=self.epsilon
        )
        return clients.post(work, ids, key=round.key)


@dataclass(frozen=True)
class AskHistogram:
    """Asks the cohort for label histograms, which only the benchmark "Optimal" does."""

    privacy: HistogramPrivacy = "none"
    epsilon: float = 1.0

    def ask(self, groups: Groups, round: Round) -> Answers:
        clients = round.clients
        work = Describe("histogram", clients.classes, privacy=self.privacy, epsilon=self.epsilon)
        read = clients.post(work, round.cohort, key=round.key.of("histograms"))

        def answers(groups: Groups) -> tuple[Groups, Mapping[str, Any]]:
            reply = read()
            histogram = np.zeros((len(groups.member), clients.classes))
            # Noise for privacy makes counts negative, and a claimed count may be anything.
            histogram[reply.ids] = np.clip(reply.fields["histogram"], 0, clients.validator.cap)
            return groups.remember(replace(ClusterMemory.of(groups), histogram=histogram)), {}

        return answers
