"""Steps of torch's optimisers, and of everything that is more than plain SGD: clipping, decoupled
weight decay, and schedules of the learning rate.

Used by `coterie.local.sgd` for one client and by `coterie.local.batched` for many at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from coterie.config.local_problems import has_momentum, optimizer_classes
from coterie.core.solver import Solver
from coterie.errors import ConfigError
from coterie.local.step import SgdStep, UpdateRule, add_penalties

# This optimiser uses sums over the rows and columns of a matrix. The others work value by value, so
# they do not notice that the first dimension is that of clients.
_BY_MATRIX = "adafactor"


def make_rule(
    solver: Solver, mu: float, decayed: tuple[int, ...], steps: int, many: bool = False
) -> UpdateRule:
    """The update rule of a local training.

    Args:
        solver: how to train.
        mu: weight of the proximal term.
        decayed: which of the parameters carry L2, by their place in the lists.
        steps: of the training.
        many: whether the first dimension of every parameter is that of clients.
    """
    if solver.is_plain_sgd:
        return SgdStep(solver, mu, decayed)
    return TorchStep(solver, mu, decayed, steps, many)


def remembered(solver: Solver) -> int:
    """How many values an optimiser remembers of each parameter: the velocity of SGD, two moments of
    most others."""
    if solver.is_plain_sgd:
        return int(solver.momentum > 0)
    return 2


def refuse_alone(solver: Solver) -> None:
    """Refuse options with which a client can only be trained alone.

    Elsewhere clients are trained together, each as a row of the same tensors.

    Raises:
        ConfigError: naming the option.
    """
    if solver.optimizer == _BY_MATRIX:
        raise ConfigError(
            "local.optimizer: vmap trains clients in one tensor, got 'adafactor', which looks at "
            "whole matrices; expected another, or engine pool or serial"
        )
    schedule = solver.step_schedule
    # Each client of a block would have another rate.
    if schedule is not None and schedule.kind == "cosine" and schedule.over is None:
        raise ConfigError(
            "local.step_schedule.over: vmap has one learning rate for all clients, got nothing; "
            "expected a number of steps, or engine pool or serial"
        )


class TorchStep:
    """The update rule of an optimiser of torch, for one training; with ``eta_t = lr factor(t)``:

        g <- clip(g + 2 l2 w + mu (w - w_start))
        w <- (1 - eta_t weight_decay) w
        w <- optimizer(w, g, eta_t)

    Args:
        solver: the optimiser and its options.
        mu: weight of the proximal term.
        decayed: which of the parameters carry L2, by their place in the lists.
        steps: of the training.
        many: whether the first dimension of every parameter is that of clients, which then may
            become fewer from step to step, the last ones first.
    """

    def __init__(
        self,
        solver: Solver,
        mu: float,
        decayed: tuple[int, ...],
        steps: int,
        many: bool = False,
    ) -> None:
        self.solver = solver
        self.mu = mu
        self.decayed = decayed
        self.steps = steps
        self.many = many
        self.taken = 0
        self.optimizer: torch.optim.Optimizer | None = None
        # What the optimiser has taken over; its state belongs to these tensors.
        self.params: list[Tensor] = []

    @property
    def repeats(self) -> bool:
        # A recorded step would repeat its learning rate and the optimiser's count of steps.
        return False

    @torch.no_grad()
    def apply(
        self,
        params: list[Tensor],
        gradients: list[Tensor],
        anchor: list[Tensor],
        velocity: list[Tensor],
    ) -> None:
        """See `UpdateRule`."""
        add_penalties(self, params, gradients, anchor)
        self._clip(gradients)
        lr = self.solver.lr
        if self.solver.step_schedule is not None:
            lr *= self.solver.step_schedule.factor(self.taken, self.steps)
        if self.solver.decoupled_decay:
            torch._foreach_mul_(params, 1 - lr * self.solver.decoupled_decay)
        optimizer = self._optimizer_of(params)
        optimizer.param_groups[0]["lr"] = lr
        for param, gradient in zip(self.params, gradients, strict=True):
            # Fused code walks through memory: a gradient must lie there as its parameter does.
            param.grad = gradient.contiguous()
        optimizer.step()
        self.taken += 1

    def remembered(
        self, params: list[Tensor], velocity: list[Tensor]
    ) -> list[Mapping[str, Tensor]]:
        """See `UpdateRule`."""
        if self.optimizer is None:
            return []
        return [self.optimizer.state[param] for param in self.params]

    def recall(
        self, params: list[Tensor], velocity: list[Tensor], state: Sequence[Mapping[str, Tensor]]
    ) -> None:
        """See `UpdateRule`."""
        optimizer = self._optimizer_of(params)
        for param, of_one in zip(params, state, strict=True):
            optimizer.state[param] = dict(of_one)

    def _clip(self, gradients: list[Tensor]) -> None:
        """Shorten the gradient, of each client by itself."""
        solver = self.solver
        if solver.clip_value is not None:
            torch._foreach_clamp_min_(gradients, -solver.clip_value)
            torch._foreach_clamp_max_(gradients, solver.clip_value)
        if solver.clip_norm is None:
            return
        rows = 1
        if self.many:
            rows = len(gradients[0])
        squares = [gradient.reshape(rows, -1).square().sum(dim=1) for gradient in gradients]
        norm = torch.stack(squares).sum(dim=0).sqrt()
        # A gradient that is not finite stays so: a client that diverged must be seen.
        factor = (solver.clip_norm / norm).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor.view(rows, *[1] * (gradient.dim() - 1)))

    def _optimizer_of(self, params: list[Tensor]) -> torch.optim.Optimizer:
        """The optimiser of these parameters: that of the steps before, for fewer clients where some
        have no steps left."""
        before = self.optimizer
        if before is not None and self.params[0].shape == params[0].shape:
            return before
        made = _make_optimizer(self.solver, params)
        if before is not None:
            n = len(params[0])
            for old, new in zip(self.params, params, strict=True):
                state = before.state[old]
                made.state[new] = {key: _of_first(state[key], old, n) for key in state}
        self.optimizer = made
        self.params = params
        return made


def _of_first(value: Any, param: Tensor, n: int) -> Any:
    """What an optimiser remembers, of the first clients; a count of steps is that of all."""
    if isinstance(value, Tensor) and value.shape == param.shape:
        return value[:n]
    return value


def _make_optimizer(solver: Solver, params: list[Tensor]) -> torch.optim.Optimizer:
    kind = optimizer_classes()[solver.optimizer]
    options = dict(solver.options)
    if has_momentum(solver.optimizer):
        options["momentum"] = solver.momentum
    parameters = inspect.signature(kind).parameters
    # Decay is decoupled, and done by the rule, which also knows it for optimisers that do not.
    if "weight_decay" in parameters:
        options["weight_decay"] = 0.0
    # One pass over all tensors where torch has it, else one call for each operation: on small
    # networks a call costs as much as its arithmetic.
    if "fused" in parameters:
        options["fused"] = True
    elif "foreach" in parameters:
        options["foreach"] = True
    return kind(params, lr=solver.lr, **options)
