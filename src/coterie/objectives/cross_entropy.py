"""Cross-entropy: alone (FedAvg), with FedProx's proximal term, or as a balanced softmax."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from coterie.config.arguments import validated
from coterie.core.objective import CrossEntropy, Objective, plain


def cross_entropy() -> CrossEntropy:
    """Cross-entropy alone, as in FedAvg.

    Example:
        >>> cross_entropy() == plain
        True
    """
    return plain


@validated
def proximal(mu: Annotated[float, Field(ge=0)] = 1.0) -> CrossEntropy:
    """Cross-entropy and FedProx's proximal term, ``F_k(w) + mu/2 ||w - w_t||^2``.

    Args:
        mu: weight of the proximal term; 0 is plain.

    Raises:
        ConfigError: if ``mu`` is negative.

    Example:
        >>> proximal(0.1).mu
        0.1
    """
    return CrossEntropy(mu)


# --- balanced softmax -----------------------------------------------------------------------------


# In place of no sample, whose logarithm is no number. A class with so few has a probability of 0.
NO_SAMPLE = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class Balanced:
    """The loss of an objective, with a vector added to the logits of the network in training.

    The cross-entropy of ``m(x) + log n_y`` is that of the balanced softmax ``n_y e^{m_y} / sum_c n_c
    e^{m_c}``.

    Args:
        objective: the objective whose loss it is.
        prior: one value for each output, as `class_prior` computes it.

    Source: Ren et al., Balanced Meta-Softmax for Long-Tailed Visual Recognition (2020), eq. 3.

    Example:
        >>> from coterie.objectives import plain
        >>> y = torch.tensor([0, 0, 0, 1])
        >>> balanced = Balanced(plain, class_prior(y, outputs=2))
        >>> net = nn.Linear(1, 2)
        >>> _ = nn.init.zeros_(net.weight)
        >>> _ = nn.init.zeros_(net.bias)
        >>> loss = balanced.loss(net, torch.ones(4, 1), y, received=lambda: nn.Module())
        >>> round(loss.item(), 4)  # -(3 log 3/4 + log 1/4) / 4
        0.5623
    """

    objective: Objective
    prior: Tensor

    @property
    def mu(self) -> float:
        return self.objective.mu

    def loss(
        self, module: nn.Module, x: Tensor, y: Tensor, received: Callable[[], nn.Module]
    ) -> Tensor:
        hook = module.register_forward_hook(lambda _module, _inputs, logits: logits + self.prior)
        try:
            return self.objective.loss(module, x, y, received)
        finally:
            hook.remove()


def class_prior(labels: Tensor, outputs: int, gamma: float = 1.0) -> Tensor:
    """What the balanced softmax adds to the logits: ``gamma log n_c`` for ``n_c`` samples of class c.

    Args:
        labels: int64 ``[n]``.
        outputs: number of outputs of the network; the single output of a binary task is the
            difference of two logits.
        gamma: power of the counts; 0 adds nothing.

    Returns:
        float32 ``[outputs]``.

    Example:
        >>> class_prior(torch.tensor([0, 1, 1]), outputs=2).exp().tolist()
        [1.0, 2.0]
    """
    counts = torch.bincount(labels, minlength=max(2, outputs))
    prior = gamma * counts.clamp(min=NO_SAMPLE).log()
    if outputs > 1:
        return prior
    return prior[1:] - prior[:1]
