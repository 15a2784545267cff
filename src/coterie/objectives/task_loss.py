"""The loss of a task, alone or with FedProx's proximal term."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from coterie.core.task import Task, check_label_logits, has_squared_error, is_classes


def mean_loss(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean loss of a batch.

    Args:
        task: whose loss.
        outputs: of the network, ``[n, ...]``.
        targets: ``[n, ...]``.
    """
    # One call of torch, which sums in another order than a mean of separate losses: so it has the
    # same bits as the cross-entropy of `coterie.objectives.cross_entropy`.
    if is_classes(task):
        check_label_logits(outputs, targets)
        return F.cross_entropy(outputs, targets)
    return task.loss(outputs, targets).mean()


@dataclass(frozen=True, slots=True)
class TaskLoss:
    """The mean loss of a task over a batch, and FedProx's proximal term where ``mu > 0``.

    The solver adds the gradient of the proximal term, see
    ``coterie.objectives.cross_entropy.CrossEntropy``.

    Args:
        task: whose loss.
        mu: weight of the proximal term.
    """

    task: Task
    mu: float = 0.0

    @property
    def form(self) -> Literal["squared_error", "other"]:
        if has_squared_error(self.task):
            return "squared_error"
        return "other"

    def for_task(self, task: Task) -> TaskLoss:
        return replace(self, task=task)

    def loss(
        self, module: nn.Module, x: Tensor, y: Tensor, received: Callable[[], nn.Module]
    ) -> Tensor:
        return mean_loss(self.task, module(x), y)
