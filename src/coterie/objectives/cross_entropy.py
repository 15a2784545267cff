"""Cross-entropy, alone (FedAvg) or with FedProx's proximal term."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from coterie.types import ConfigError


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """Mean cross-entropy of a batch, plus ``mu / 2 ||w - w_start||^2`` in the solver where ``mu > 0``.

    The gradient of the proximal term is ``mu (w - w_start)``, with ``w_start`` a snapshot of the model received.

    Source: Li et al., Federated Optimization in Heterogeneous Networks, eq. 2.
    """

    mu: float = 0.0

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(logits, y)


plain = CrossEntropy()


def proximal(mu: float) -> CrossEntropy:
    """FedProx's local objective ``F_k(w) + mu/2 ||w - w_t||^2``.

    Raises:
        ConfigError: if ``mu`` is negative.

    Example:
        >>> proximal(0.1).mu
        0.1
    """
    if mu < 0:
        raise ConfigError(f"mu: a negative proximal weight, got {mu}; expected 0 or more")
    return CrossEntropy(mu)
