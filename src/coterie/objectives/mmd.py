"""FedMMD's objective: the logits of the model in training stay near those of the model received."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from coterie.config.arguments import validated
from coterie.core.objective import CrossEntropy, mean_loss, plain
from coterie.core.task import Task
from coterie.tasks import CLASSIFICATION

# Widths of the Gaussian kernels, and the least value of their distance: both of the reference code.
WIDTHS = (
    *(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 5.0, 10.0),
    *(15.0, 20.0, 25.0, 30.0, 35.0, 1e2, 1e3, 1e4, 1e5, 1e6),
)
FLOOR = 1e-4


def squared_mmd(x: Tensor, y: Tensor) -> Tensor:
    """The squared maximum mean discrepancy of two samples, as the biased V-statistic.

    ``mean k(x, x') + mean k(y, y') - 2 mean k(x, y)`` with ``k(a, b) = sum_s exp(-|a - b|^2 / (2
    s))`` over the 19 ``WIDTHS``.

    Args:
        x: ``[n, c]``.
        y: ``[m, c]``.

    Source: the kernel is that of the reference code, thu-media/TwoStreamFederatedLearning,
    ``mnist/losses.py``. The released training script has that line commented out in favour of an
    L2 penalty; the paper describes this one.

    Example:
        >>> x = torch.tensor([[0.0], [1.0]])
        >>> round(float(squared_mmd(x, x)), 4), round(float(squared_mmd(x, x + 100)), 3)
        (0.0, 26.237)
    """
    both = torch.cat([x, y])
    # With weights 1/n for x and -1/m for y the three means are one quadratic form.
    weight = torch.cat([x.new_full((len(x),), 1 / len(x)), y.new_full((len(y),), -1 / len(y))])
    # A matrix product would lose small distances to cancellation, which the narrow kernels see.
    squared = torch.cdist(both, both, compute_mode="donot_use_mm_for_euclid_dist").square()
    scale = both.new_tensor(WIDTHS).mul_(-2)
    kernel = (squared / scale[:, None, None]).exp_().sum(dim=0)
    return weight @ kernel @ weight


@dataclass(frozen=True, slots=True)
class Mmd:
    """``CE(theta_L) + weight max(MMD^2(logits of theta_G, logits of theta_L), 1e-4)`` of a batch.

    ``theta_G`` is the model received, frozen; ``theta_L`` starts from it and is trained. Below the
    floor the second term has no gradient. ``CE`` is the loss of the task.

    Source: Yao et al., Two-Stream Federated Learning: Reduce the Communication Costs (2018).
    """

    weight: float = 0.1
    task: Task = CLASSIFICATION

    def for_task(self, task: Task) -> Mmd:
        return replace(self, task=task)

    @property
    def mu(self) -> float:
        """Weight of the proximal term, of which this objective has none."""
        return 0.0

    def loss(
        self, module: nn.Module, x: Tensor, y: Tensor, received: Callable[[], nn.Module]
    ) -> Tensor:
        logits = module(x)
        # Features are the logits, as in the reference code.
        with torch.no_grad():
            logits_of_received = received()(x)
        # A sample is a point, also where it has a row of logits for each of its tokens.
        points = (logits.flatten(1), logits_of_received.flatten(1))
        distance = squared_mmd(*points).clamp_min(FLOOR)
        return mean_loss(self.task, logits, y) + self.weight * distance


@validated
def mmd(weight: Annotated[float, Field(ge=0)] = 0.1) -> Mmd | CrossEntropy:
    """Cross-entropy and FedMMD's distance of the logits from those of the model received.

    Args:
        weight: weight of the distance, ``lambda`` in the paper; 0 is the plain loss.

    Example:
        >>> mmd(0.5).weight
        0.5
    """
    # Without the distance it is plain cross-entropy, for which there is faster code.
    if weight:
        return Mmd(weight)
    return plain
