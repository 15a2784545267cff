"""SCAFFOLD: Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning
(2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.core import Groups, LocalTraining, Own, OwnTrained, Train, Updates, WithOwnModel
from coterie.methods.method import Method
from coterie.rules.assigning import everyone
from coterie.rules.weighing import evenly


@dataclass(frozen=True, slots=True)
class ControlVariate:
    """What the server of SCAFFOLD remembers.

    Args:
        c: float32 ``[d]``, the mean of the control variates of all clients.
    """

    record_name: ClassVar[str] = "scaffold"
    c: Tensor


def variate_change(c: Tensor, update: Tensor, steps: int, lr: float) -> Tensor:
    """How far the control variate of a client moves in a round: ``c_i+ - c_i`` of option II (eq. 4).

    ``c_i+ = c_i - c + (x - y_i) / (K eta)``

    Args:
        update: float32 ``[d]``, ``y_i - x``.
        steps: ``K``, those of the client.

    Example:
        >>> variate_change(torch.tensor([1.0]), torch.tensor([-2.0]), steps=4, lr=0.5)
        tensor([0.])
    """
    return -c - update / (steps * lr)


@dataclass(frozen=True, slots=True)
class Scaffold:
    """A control variate ``c_i`` of the client: the direction in which its own gradients lead."""

    plain_sgd = True

    def lengths(self, d: int) -> Mapping[str, int]:
        return {"c": d}

    def first(self, sent: Tensor) -> Own:
        return {"c": torch.zeros_like(sent)}

    def second_vector(self, groups: Groups) -> Tensor:
        memory = groups.memory.get(ControlVariate)
        if memory is None:
            return torch.zeros_like(groups.models[0])
        return memory.c

    def train(self, training: LocalTraining, own: Own) -> OwnTrained:
        x, c = training.received
        # Alg. 1, l. 10: y_i <- y_i - eta (g_i(y_i) - c_i + c), K times.
        update, loss = training.run(x, constant=c - own["c"])
        # l. 12, option II. A client without samples takes no step.
        change = variate_change(c, update, max(1, training.steps), training.solver.lr)
        return OwnTrained(update, loss, {"c": own["c"] + change})

    def move_server(self, groups: Groups, updates: Updates, round: Round) -> tuple[Groups, Updates]:
        """The rule ``recluster``: the groups with the server's variate moved by the replies.

        The change of a client's variate follows from its update, so it is not sent.
        """
        c = self.second_vector(groups)
        solver = round.solver.in_round(round.number)
        total = torch.zeros_like(c)
        # Where bounds lowered a claim of samples, the client took the steps of all of them.
        sizes = updates.size
        if updates.claimed is not None:
            sizes = updates.claimed
        for update, size in zip(updates.delta, sizes.tolist(), strict=True):
            steps = solver.count(int(size))
            total += variate_change(c, update, max(1, steps), solver.lr)
        # Alg. 1, l. 17: c <- c + (|S| / N) mean of the changes.
        clients = len(groups.member)
        return groups.remember(ControlVariate(c + total / clients)), updates


def scaffold() -> Method:
    """SCAFFOLD: FedAvg whose clients correct each step by the mean direction of all clients.

    Clients step along ``g_i(y) - c_i + c``. The control variate ``c_i`` of a client is its mean gradient
    in its last round, and ``c`` is the mean over all clients (Alg. 1, option II).

    Models: one.

    Source: Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning
    (2020).

    Example:
        >>> scaffold().local.own_model
        Scaffold()
    """
    rule = Scaffold()
    # l. 16: the plain mean of the cohort.
    return Method(
        assign=everyone,
        local=Train(how=WithOwnModel(rule)),
        recluster=rule.move_server,
        weigh=evenly,
        needs=(),
    )
