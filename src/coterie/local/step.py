"""One step of local SGD: what a gradient does to the parameters.

The rule stands here once, for one client (`coterie.local.sgd.Autograd`) and for many at once
(`coterie.local.batched.BatchedTrainer`): both call it with lists of tensors, whose first dimension
is the client's in the second case. Compiled code cannot call torch; `coterie.local.kernels.descend`
is the same rule over a flat vector, and tests compare the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.core.solver import Solver


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

    @torch.no_grad()
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
            velocity: ``v``, changed in place; used only where there is momentum.
        """
        solver = self.solver
        # Each term is left out where its weight is 0: at ten samples a batch, a call costs as much
        # as its arithmetic. `torch._foreach_*` takes all tensors in one call for the same reason.
        if solver.l2:
            for place in self.decayed:
                gradients[place].add_(params[place], alpha=2 * solver.l2)
        if self.mu:
            torch._foreach_add_(gradients, params, alpha=self.mu)
            torch._foreach_sub_(gradients, anchor, alpha=self.mu)
        if solver.momentum:
            torch._foreach_mul_(velocity, solver.momentum)
            torch._foreach_add_(velocity, gradients)
            gradients = velocity
        torch._foreach_add_(params, gradients, alpha=-solver.lr)
