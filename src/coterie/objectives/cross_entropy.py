"""Cross-entropy, alone (FedAvg) or with FedProx's proximal term."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, final

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from coterie.config.arguments import validated
from coterie.core.task import Task, check_label_logits, is_classes
from coterie.objectives.task_loss import TaskLoss


@final
@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """Mean cross-entropy of a batch, and FedProx's proximal term where ``mu > 0``.

    The term is ``mu / 2 ||w - w_start||^2``. The solver adds its gradient ``mu (w - w_start)`` to
    that of the batch, with ``w_start`` a snapshot of the model received; so ``loss`` does not have
    it.

    Source: Li et al., Federated Optimization in Heterogeneous Networks, eq. 2.
    """

    # With a live reference in place of the snapshot the term would always be 0, as in
    # PACFL's copy of FedProx.
    mu: float = 0.0

    @property
    def form(self) -> Literal["cross_entropy"]:
        return "cross_entropy"

    def for_task(self, task: Task) -> CrossEntropy | TaskLoss:
        """The same with the loss of another task in place of the cross-entropy."""
        if is_classes(task):
            return self
        return TaskLoss(task, self.mu)

    def loss(
        self, module: nn.Module, x: Tensor, y: Tensor, received: Callable[[], nn.Module]
    ) -> Tensor:
        outputs = module(x)
        check_label_logits(outputs, y)
        return F.cross_entropy(outputs, y)


plain = CrossEntropy()


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
