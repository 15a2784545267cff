"""What a gradient does to the parameters: SGD, torch's optimisers, and everything that is more than
plain SGD; and what an optimiser remembers from one training to the next.

The rules stand here once, for one client (`coterie.local.training.sgd.Autograd`) and for many at
once (`coterie.local.training.batched.BatchedTrainer`): both call them with lists of tensors, whose
first dimension is the client's in the second case. Compiled code cannot call torch;
`coterie.local.kernels` has the same rules over a flat vector, and tests compare the two.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from coterie.config.local_problems import has_momentum, optimizer_classes
from coterie.core.solver import Solver
from coterie.errors import ConfigError


def add_penalties(
    rule: UpdateRule, params: list[Tensor], gradients: list[Tensor], anchor: list[Tensor]
) -> None:
    """``g <- g + 2 l2 w + mu (w - w_start)``, in place."""
    # Each term is left out where its weight is 0: at ten samples a batch, a call costs as much as
    # its arithmetic. `torch._foreach_*` takes all tensors in one call for the same reason.
    if rule.solver.l2:
        for place in rule.decayed:
            gradients[place].add_(params[place], alpha=2 * rule.solver.l2)
    if rule.mu:
        torch._foreach_add_(gradients, params, alpha=rule.mu)
        torch._foreach_sub_(gradients, anchor, alpha=rule.mu)


@dataclass(frozen=True, slots=True)
class SgdStep:
    """The update rule of local SGD.

    g <- g + 2 l2 w + mu (w - w_start)
    v <- momentum v + g
    w <- w - lr v

    Args:
        mu: the weight of the proximal term.
        decayed: the parameters that carry L2, by their place in the lists.
        repeats: whether every step is the same work on the same memory, so that one can be
            recorded and replayed.
    """

    solver: Solver
    mu: float
    decayed: tuple[int, ...]
    repeats: ClassVar[bool] = True

    @torch.no_grad()
    def apply(
        self,
        params: list[Tensor],
        gradients: list[Tensor],
        anchor: list[Tensor],
        velocity: list[Tensor],
    ) -> None:
        """Change ``params`` and ``velocity`` in place; the gradients of the batch loss are used up.
        ``anchor`` is read only where ``mu`` is not 0."""
        solver = self.solver
        add_penalties(self, params, gradients, anchor)
        if solver.momentum:
            torch._foreach_mul_(velocity, solver.momentum)
            torch._foreach_add_(velocity, gradients)
            gradients = velocity
        torch._foreach_add_(params, gradients, alpha=-solver.lr)

    def remembered(
        self, params: list[Tensor], velocity: list[Tensor]
    ) -> list[Mapping[str, Tensor]]:
        """What is remembered of each parameter after the steps so far, by name; nothing before the
        first step."""
        return [{"velocity": one} for one in velocity]

    def recall(
        self, params: list[Tensor], velocity: list[Tensor], state: Sequence[Mapping[str, Tensor]]
    ) -> None:
        """Continue from what was `remembered`, before the first step; changes ``velocity`` and
        takes over ``state``."""
        for one, of_one in zip(velocity, state, strict=True):
            one.copy_(of_one["velocity"])


# This optimiser uses sums over the rows and columns of a matrix. The others work value by value, so
# they do not notice that the first dimension is that of clients.
_BY_MATRIX = "adafactor"


def make_rule(
    solver: Solver, mu: float, decayed: tuple[int, ...], steps: int, many: bool = False
) -> UpdateRule:
    """The update rule of a local training; with ``many``, every parameter's first dimension is
    clients."""
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
    """Refuse options with which a client can only be trained alone: elsewhere clients are trained
    together, each as a row of the same tensors."""
    if solver.optimizer == _BY_MATRIX:
        what = "vmap stores the parameters of all clients in one tensor"
        got = "'adafactor', which needs whole matrices"
        expected = "another optimizer, or engine pool or serial"
        raise ConfigError("does-not-fit", "local.optimizer", what, found=got, allowed=expected)
    schedule = solver.step_schedule
    # Each client of a block would have another rate.
    if schedule is not None and schedule.kind == "cosine" and schedule.over is None:
        what = "vmap has one learning rate for all clients"
        expected = "a number of steps, or engine pool or serial"
        raise ConfigError("does-not-fit", "local.step_schedule.over", what, allowed=expected)


@dataclass(eq=False, slots=True)
class TorchStep:
    """The update rule of an optimiser of torch, for one training: the step of `Solver` with ``eta_t =
    lr factor(t)``.

    With ``many``, every parameter's first dimension is clients, the last of which may drop out from
    step to step.
    """

    solver: Solver
    mu: float
    decayed: tuple[int, ...]
    steps: int
    many: bool = False
    taken: int = 0
    optimizer: torch.optim.Optimizer | None = None
    # What the optimiser has taken over; its state belongs to these tensors.
    params: list[Tensor] = field(default_factory=list)
    # A recorded step would repeat its learning rate and the optimiser's count of steps.
    repeats: ClassVar[bool] = False

    @torch.no_grad()
    def apply(
        self,
        params: list[Tensor],
        gradients: list[Tensor],
        anchor: list[Tensor],
        velocity: list[Tensor],
    ) -> None:
        """See `SgdStep`."""
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
        """See `SgdStep`."""
        if self.optimizer is None:
            return []
        return [self.optimizer.state[param] for param in self.params]

    def recall(
        self, params: list[Tensor], velocity: list[Tensor], state: Sequence[Mapping[str, Tensor]]
    ) -> None:
        """See `SgdStep`."""
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


UpdateRule = SgdStep | TorchStep


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


Shape = tuple[int, ...]
# Of each parameter, the names of what is remembered, and their shapes.
Form = tuple[tuple[tuple[str, Shape], ...], ...]


def memory_size(solver: Solver, shapes: Sequence[Shape]) -> int:
    """How many values an optimiser remembers, with the one that says whether it took a step.

    Example:
        >>> adam = Solver(optimizer="adam")
        >>> memory_size(adam, [(3, 2), (2,)])  # two moments of 8 values, and a count of steps for each
        19
        >>> memory_size(Solver(momentum=0.9), [(3, 2), (2,)])
        9
    """
    form = _form(solver, tuple(shapes))
    return 1 + sum(math.prod(shape) for of_one in form for _, shape in of_one)


def load_memory(
    rule: UpdateRule, params: list[Tensor], velocity: list[Tensor], memory: Tensor
) -> None:
    """Let an optimiser that has taken no step continue from what it remembered; ``velocity`` is
    changed in place."""
    if not memory[0]:
        return
    form = _form(rule.solver, tuple(tuple(param.shape) for param in params))
    sizes = [math.prod(shape) for of_one in form for _, shape in of_one]
    # Copies: the optimiser changes them in place, and the vector is the caller's.
    values = iter(part.clone() for part in memory[1:].split(sizes))
    state = [{name: next(values).reshape(shape) for name, shape in of_one} for of_one in form]
    rule.recall(params, velocity, state)


def store_memory(
    rule: UpdateRule, params: list[Tensor], velocity: list[Tensor], memory: Tensor
) -> None:
    """Write what an optimiser remembers into ``memory [m]``; nothing if it took no step."""
    state = rule.remembered(params, velocity)
    values = [value.reshape(-1) for of_one in state for value in of_one.values()]
    if values:
        memory[0] = 1
        torch.cat(values, out=memory[1:])


@lru_cache(maxsize=64)
def _form(solver: Solver, shapes: tuple[Shape, ...]) -> Form:
    """What is remembered of parameters of these shapes: torch does not say, so a step is taken."""
    params = [torch.zeros(shape) for shape in shapes]
    velocity = [torch.zeros(shape) for shape in shapes]
    rule = make_rule(solver, 0.0, (), 1)
    rule.apply(params, [torch.zeros(shape) for shape in shapes], [], velocity)
    state = rule.remembered(params, velocity)
    return tuple(
        tuple((name, tuple(value.shape)) for name, value in of_one.items()) for of_one in state
    )
