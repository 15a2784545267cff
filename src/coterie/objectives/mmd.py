"""FedMMD's objective: two streams, the model received and the one in training, held together by
their logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from coterie.config.arguments import validated
from coterie.objectives.cross_entropy import CrossEntropy, plain

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
    ``mnist/losses.py``.

    Example:
        >>> x = torch.tensor([[0.0], [1.0]])
        >>> round(float(squared_mmd(x, x)), 4), round(float(squared_mmd(x, x + 100)), 3)
        (0.0, 26.237)
    """
    both = torch.cat([x, y])
    share = torch.cat([x.new_full((len(x),), 1 / len(x)), y.new_full((len(y),), -1 / len(y))])
    squared = torch.cdist(both, both, compute_mode="donot_use_mm_for_euclid_dist").square()
    scale = both.new_tensor(WIDTHS).mul_(-2)
    kernel = (squared / scale[:, None, None]).exp_().sum(dim=0)
    return share @ kernel @ share


@dataclass(frozen=True, slots=True)
class Mmd:
    """``CE(theta_L) + weight max(MMD^2(logits of theta_G, logits of theta_L), 1e-4)`` on each
    batch.

    ``theta_G`` is the model received, frozen; ``theta_L`` starts from it and is trained. Below the
    floor the second term has no gradient.

    Source: Yao et al., Two-Stream Federated Learning: Reduce the Communication Costs (2018).
    """

    weight: float = 0.1

    @property
    def mu(self) -> float:
        return 0.0

    def loss(
        self, module: nn.Module, x: Tensor, y: Tensor, received: Callable[[], nn.Module]
    ) -> Tensor:
        logits = module(x)
        with torch.no_grad():
            theirs = received()(x)
        return F.cross_entropy(logits, y) + self.weight * squared_mmd(logits, theirs).clamp_min(
            FLOOR
        )


@validated
def mmd(weight: Annotated[float, Field(ge=0)] = 0.1) -> Mmd | CrossEntropy:
    """Cross-entropy and FedMMD's distance of the logits from those of the model received.

    Args:
        weight: of the distance, ``lambda`` in the paper; 0 is plain.

    Example:
        >>> mmd(0.5).weight
        0.5
    """
    if weight:
        return Mmd(weight)
    return plain
