"""IDA: Yeganeh et al., Inverse Distance Aggregation for Federated Learning with Non-IID Data
(2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import FloatArray, Groups, GrowingRecord, Plan, Score, Updates
from coterie.core.traits import Need
from coterie.math.similarity import Matrix
from coterie.methods.method import Method
from coterie.rules.assigning import Assign, everyone
from coterie.rules.weighing import shares


@dataclass(frozen=True, slots=True)
class AccuracyMemory(GrowingRecord):
    """What the server knows of the models that clients are about to train.

    Args:
        accuracy: float64 ``[N]``, training accuracy of the model each client received, at least
            ``1 / C``, and 1 for a client that did not answer.
    """

    record_name: ClassVar[str] = "ida"
    newcomer: ClassVar[Mapping[str, float]] = {"accuracy": 1.0}
    accuracy: FloatArray


@dataclass(frozen=True)
class KnowingAccuracy:
    """An assign rule after which each planned client reports its training accuracy (INTRAC).

    It is that of the model the client is about to train, on its own training samples.
    """

    assign: Assign

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        groups, plan = self.assign(groups, round)
        clients = round.clients
        key = round.key.of("accuracy")
        work = Score("train", loss=False)
        reply = clients.run(work, plan.ids, groups.models, plan.row, key=key)
        accuracy = np.ones(len(groups.member))
        share = reply.correct[:, 0] / reply.size
        # The paper takes the larger of the accuracy and that of guessing, max(1 / C, acc_k).
        accuracy[reply.ids] = np.clip(share, 1 / max(1, clients.classes), 1.0)
        return groups.remember(AccuracyMemory(accuracy)), plan


@dataclass(frozen=True)
class InverseDistance:
    """``a_k`` proportional to ``1 / (|w_bar - w_k| + eps)`` within each group, ``w_bar`` the plain
    mean of its replies.

    Args:
        norm: the norm for the distance, over all parameters.
        eps: least distance.
        intrac: times ``1 / max(1 / C, acc_k)``, with the accuracy that `KnowingAccuracy` remembers.
        by_size: times ``n_k``.

    Example:
        >>> import torch
        >>> delta = torch.tensor([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]])
        >>> groups = Groups(torch.zeros(1, 2), np.zeros(3, np.int64))
        >>> updates = Updates(np.arange(3), np.zeros(3, np.int64), delta, np.ones(3), np.zeros(3))
        >>> InverseDistance().weigh(groups, updates).round(5).tolist()
        [[0.27273, 0.54545, 0.18182]]
    """

    norm: Literal["l1", "l2"] = "l1"
    eps: float = 1e-6
    intrac: bool = False
    by_size: bool = False

    def __call__(self, groups: Groups, updates: Updates, round: Round) -> Matrix:
        return self.weigh(groups, updates)

    def weigh(self, groups: Groups, updates: Updates) -> Matrix:
        """The matrix ``W [k, n]``."""
        weight = 1 / (self._distances(updates) + self.eps)
        memory = groups.memory.get(AccuracyMemory)
        if self.intrac and memory is not None:
            weight /= memory.accuracy[updates.ids]
        if self.by_size:
            weight = weight * updates.size
        return shares(groups.k, updates.row, weight)

    def _distances(self, updates: Updates) -> FloatArray:
        """``|w_bar - w_k|`` of each reply, float64 ``[n]``. Clients of a group start from the same
        model, so the distances of their updates are those of their models."""
        order = 2
        if self.norm == "l1":
            order = 1
        delta = updates.delta.numpy()
        distance = np.zeros(len(updates))
        for j in np.unique(updates.row):
            mine = np.flatnonzero(updates.row == j)
            # In float64: a client at the mean has a distance of rounding errors, and counts
            # by its reciprocal.
            mean = delta[mine].mean(axis=0, dtype=np.float64)
            distance[mine] = [np.linalg.norm(mean - delta[i], order) for i in mine]
        return distance


@validated
def ida(
    norm: Literal["l1", "l2"] = "l1",
    eps: Annotated[float, Field(gt=0)] = 1e-6,
    intrac: bool = False,
    by_size: bool = False,
) -> Method:
    """IDA: FedAvg that weighs clients by the inverse of their distance from the mean model.

    ``w = sum a_k w_k`` with ``a_k`` proportional to ``1 / (|w_bar - w_k| + eps)`` and ``w_bar`` the
    plain mean.

    Args:
        norm: the norm of the distance.
        eps: prevents a client at the mean from getting all of the weight.
        intrac: also give more weight to clients on whose data the received model is less accurate.
        by_size: also weight clients by their samples.

    Models: one.

    Source: Yeganeh et al., Inverse Distance Aggregation for Federated Learning with Non-IID Data
    (2020).

    Example:
        >>> ida(norm="l2").weigh.norm
        'l2'
    """
    assign = everyone
    if intrac:
        assign = KnowingAccuracy(everyone)
    weigh = InverseDistance(norm, eps, intrac, by_size)
    needs: tuple[Need, ...] = ("statistics", "class_labels") if intrac else ()
    return Method(assign, weigh=weigh, needs=needs)
