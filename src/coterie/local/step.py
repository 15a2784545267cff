"""One step of local training: what a gradient does to the parameters.

The rules stand here once, for one client (`coterie.local.sgd.Autograd`) and for many at once
(`coterie.local.batched.BatchedTrainer`): both call them with lists of tensors, whose first
dimension is the client's in the second case. Compiled code cannot call torch;
`coterie.local.kernels` has the same rules over a flat vector, and tests compare the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from coterie.core.solver import Solver


class UpdateRule(Protocol):
    """What a gradient does to the parameters.

    ``mu`` is the weight of the proximal term. ``decayed`` says which of the parameters carry L2, by
    their place in the lists. ``repeats`` says that every step is the same work on the same memory,
    so that one can be recorded and replayed.
    """

    @property
    def solver(self) -> Solver: ...

    @property
    def mu(self) -> float: ...

    @property
    def decayed(self) -> tuple[int, ...]: ...

    @property
    def repeats(self) -> bool: ...

    def apply(
        self,
        params: list[Tensor],
        gradients: list[Tensor],
        anchor: list[Tensor],
        velocity: list[Tensor],
    ) -> None:
        """Change the parameters in place; the gradients are used up.

        Args:
            params: ``w``.
            gradients: of the batch loss, shaped as the parameters.
            anchor: ``w_start``; read only where ``mu`` is not 0.
            velocity: ``v``, changed in place; used only by SGD with momentum.
        """
        ...

    def remembered(
        self, params: list[Tensor], velocity: list[Tensor]
    ) -> list[Mapping[str, Tensor]]:
        """What is remembered of each parameter after the steps so far, by name; nothing before the
        first step.

        Args:
            params: ``w``, those of the steps.
            velocity: ``v``.
        """
        ...

    def recall(
        self, params: list[Tensor], velocity: list[Tensor], state: Sequence[Mapping[str, Tensor]]
    ) -> None:
        """Go on from what was `remembered`, before the first step.

        Args:
            params: ``w``, of which it was.
            velocity: ``v``, changed in place.
            state: is taken over.
        """
        ...


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
        solver: learning rate, momentum and ``l2``.
        mu: weight of the proximal term.
        decayed: which of the parameters carry L2, by their place in the lists below.
    """

    solver: Solver
    mu: float
    decayed: tuple[int, ...]

    @property
    def repeats(self) -> bool:
        return True

    @torch.no_grad()
    def apply(
        self,
        params: list[Tensor],
        gradients: list[Tensor],
        anchor: list[Tensor],
        velocity: list[Tensor],
    ) -> None:
        """See `UpdateRule`."""
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
        """See `UpdateRule`."""
        return [{"velocity": one} for one in velocity]

    def recall(
        self, params: list[Tensor], velocity: list[Tensor], state: Sequence[Mapping[str, Tensor]]
    ) -> None:
        """See `UpdateRule`."""
        for one, of_one in zip(velocity, state, strict=True):
            one.copy_(of_one["velocity"])
