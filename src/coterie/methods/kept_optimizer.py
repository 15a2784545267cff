"""Clients whose optimiser goes on from what it remembered: ``[local] keep_state``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from coterie.core.own_model import LocalTraining, Own, OwnTrained
from coterie.core.solver import Solver
from coterie.core.training import FullGradient, Phases
from coterie.core.vectors import Layout
from coterie.errors import ConfigError
from coterie.local.training.optimizers import memory_size
from coterie.methods.algorithm import Algorithm
from coterie.methods.method import Method
from coterie.methods.override import method_of


@dataclass(frozen=True, slots=True)
class KeptOptimizer:
    """Clients train the model that they are sent as ever, by an optimiser that goes on from what it
    remembered at the end of the client's training before.

    What it remembers is stored by the client and never sent, as models of the clients' own are
    (``coterie.core.own_model``). Clients predict by the models that they are sent.

    Args:
        size: how many values a client stores, see ``coterie.local.training.optimizers``.
    """

    size: int
    plain_sgd = False
    trains_as_sent = True

    def lengths(self, d: int) -> Mapping[str, int]:
        return {"optimizer": self.size}

    def first(self, sent: Tensor) -> Own:
        return {"optimizer": torch.zeros(self.size)}

    def train(self, training: LocalTraining, own: Own) -> OwnTrained:
        update, loss, memory = training.go_on(training.start, own["optimizer"])
        return OwnTrained(update, loss, {"optimizer": memory})


def with_kept_optimizer(
    made: Method | Algorithm, solver: Solver, module: nn.Module
) -> Method | Algorithm:
    """The method whose clients keep what their optimiser remembers, where the solver says so.

    Args:
        made: a method, or an algorithm with a step of its own.
        solver: how clients train.
        module: the network.

    Raises:
        ConfigError: for a method with which that cannot be.

    Example:
        >>> from coterie.algorithms import fedavg
        >>> adam = Solver(optimizer="adam", keep_state=True)
        >>> with_kept_optimizer(fedavg(), adam, nn.Linear(3, 2)).local.own_model
        KeptOptimizer(size=19)
    """
    check_kept_optimizer(made, solver)
    method = method_of(made)
    if not solver.keep_state or method is None:
        return made
    layout = Layout.of(module)
    rule = KeptOptimizer(memory_size(solver, layout.shapes[: layout.trainable]))
    return replace(method, local=method.local.by_rule(rule))


def check_kept_optimizer(made: Method | Algorithm, solver: Solver) -> None:
    """Refuse optimisers that go on from what they remembered in a method that cannot have any.

    Args:
        made: a method, or an algorithm with a step of its own.
        solver: how clients train.

    Raises:
        ConfigError: for such a method.
    """
    if not solver.keep_state:
        return
    why = _why_not(method_of(made))
    if why is not None:
        expected = "false, or another algorithm"
        raise ConfigError(f"local.keep_state: {why}, got true; expected {expected}")


def _why_not(method: Method | None) -> str | None:
    """Why the optimisers of a method's clients cannot go on; ``None``: they can."""
    if method is None:
        return "the algorithm has a step of its own, in which nothing is known of optimisers"
    if method.local.mixture:
        return "clients train several models, each of which needs an optimiser of its own"
    if method.local.own_model is not None:
        return "clients train by a rule of their own, which begins an optimiser anew"
    if isinstance(method.local.how, Phases):
        return "clients train in phases, each of which moves other layers"
    if isinstance(method.local.how, FullGradient):
        return "clients send a gradient and take no step"
    return None
