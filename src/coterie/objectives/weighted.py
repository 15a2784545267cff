"""The loss of a batch whose samples count differently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coterie.core import FloatArray, Task
from coterie.core.objective import CrossEntropy, Objective, TaskLoss
from coterie.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Weighted:
    """``1/B sum_s q_s loss(s)`` of a batch of ``B`` samples with weights ``q_s``.

    Targets have the weights in a second column, see `with_weights`. The divisor is the number of
    samples, so a batch that explains little moves the model little.

    Args:
        inner: whose loss of a sample.

    Source: Marfoq et al., Federated Multi-Task Learning under a Mixture of Distributions (2021),
    Alg. 1.
    """

    inner: CrossEntropy | TaskLoss

    @property
    def mu(self) -> float:
        """Weight of the proximal term."""
        return self.inner.mu

    def for_task(self, task: Task) -> Weighted:
        """The same with the loss of another task."""
        return Weighted(self.inner.for_task(task))

    def loss(
        self, module: nn.Module, x: Tensor, y: Tensor, received: Callable[[], nn.Module]
    ) -> Tensor:
        labels = y[:, 0].long()
        outputs = module(x)
        if isinstance(self.inner, TaskLoss):
            losses = self.inner.task.loss(outputs, labels)
        else:
            losses = F.cross_entropy(outputs, labels, reduction="none")
        return (losses * y[:, 1].to(losses.dtype)).mean()


def weighted(objective: Objective) -> Weighted:
    """The objective with a weight for each sample; a ConfigError if its loss is no sum over
    samples."""
    if isinstance(objective, CrossEntropy | TaskLoss):
        return Weighted(objective)
    what = "the method weights samples"
    expected = "'plain' or 'proximal'"
    got = type(objective).__name__
    raise ConfigError("does-not-fit", "local.objective", what, found=got, allowed=expected)


def with_weights(y: Tensor, weights: FloatArray) -> Tensor:
    """Labels ``[n]`` and weights ``[n]`` as the targets ``[n, 2]`` of `Weighted`.

    Example:
        >>> import numpy as np
        >>> with_weights(torch.tensor([3, 1]), np.array([0.25, 1.0])).tolist()
        [[3.0, 0.25], [1.0, 1.0]]
    """
    # In float64, which has every label exactly.
    return torch.stack([y.double(), torch.from_numpy(weights)], dim=1)
