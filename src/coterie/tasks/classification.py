"""One class of several for each sample: Coterie's default task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from coterie.core.arrays import FloatArray
from coterie.core.task import (
    CORRECT,
    Added,
    Metric,
    Sums,
    SumShapes,
    check_label_logits,
    mean_metric,
)
from coterie.data.lazy import is_lazy
from coterie.errors import DataError
from coterie.headline import ACCURACY


@dataclass(frozen=True, slots=True)
class Classification:
    """Targets are classes ``0..c-1``, outputs are their logits ``[n, c]``, the loss is
    cross-entropy, and the headline is the share of right answers.

    Args:
        classes: number of classes ``c``, known when the task is fitted to its targets.
        smoothing: share of a label that the loss spreads over all classes.
    """

    classes: int = 0
    smoothing: float = 0.0

    @property
    def name(self) -> str:
        return "classification"

    @property
    def form(self) -> Literal["classes", "other"]:
        # Compiled code knows the cross-entropy of labels as they are.
        if self.smoothing:
            return "other"
        return "classes"

    @property
    def class_labels(self) -> bool:
        return True

    @property
    def outputs(self) -> int:
        return self.classes

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (mean_metric(ACCURACY, correct),)

    @property
    def sums(self) -> SumShapes:
        return CORRECT

    def fitted(self, y: Tensor, classes: int) -> Classification:
        """See ``coterie.core.task.Task``. Labels that are made client by client are not read.

        Raises:
            DataError: for targets that are no classes.
        """
        if not is_lazy(y) and (y.is_floating_point() or y.ndim > 1):
            got = f"{str(y.dtype).removeprefix('torch.')} targets"
            if y.ndim > 1:
                got += f" of shape {list(y.shape[1:])}"
            raise DataError(
                f"task.kind: a classification has one whole-number label a sample, got {got}; "
                f"expected kind = {_fitting_kind(y)!r}, or another task of docs/tasks.md"
            )
        return replace(self, classes=classes)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        check_label_logits(outputs, targets)
        return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=self.smoothing)

    def smoothed(self, share: float) -> Classification:
        return replace(self, smoothing=share)

    def added(self, outputs: Tensor, targets: Tensor) -> Mapping[str, Added]:
        return {"correct": outputs.argmax(1) == targets}

    def predict(self, outputs: Tensor) -> Tensor:
        """The class with the largest logit, int64 ``[n]``."""
        return outputs.argmax(1)

    def naive(self, targets: Tensor) -> Tensor:
        """The logits of the classes' shares: the majority class."""
        return torch.bincount(targets, minlength=self.classes).double().log()


def _fitting_kind(y: Tensor) -> str:
    """The task that most probably was meant by targets that are no labels."""
    if y.is_floating_point():
        return "regression"
    return "next_token"


def correct(sums: Sums) -> FloatArray:
    """Right answers."""
    return sums["correct"]


CLASSIFICATION = Classification()


def classification() -> Classification:
    """One class of several, by cross-entropy; the headline is accuracy.

    Example:
        >>> classification().predict(torch.tensor([[0.2, 0.9], [3.0, 1.0]])).tolist()
        [1, 0]
    """
    return CLASSIFICATION
