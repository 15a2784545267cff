"""One class of several for each sample: Coterie's default task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from coterie.config.arguments import validated
from coterie.core.arrays import BoolArray, FloatArray
from coterie.core.task import (
    CORRECT,
    Added,
    Binned,
    Metric,
    Sums,
    SumShapes,
    at_most,
    check_label_logits,
    close_to,
    mean_metric,
    ratio,
)
from coterie.data.lazy import is_lazy
from coterie.errors import DataError
from coterie.headline import ACCURACY, Headline
from coterie.math.intervals import Interval, mean_of_shares, wilson

Name = Literal["accuracy", "balanced_accuracy", "macro_f1"]


@dataclass(frozen=True, slots=True)
class Classification:
    """Targets are classes ``0..c-1``, outputs are their logits ``[n, c]``, and the loss is
    cross-entropy.

    Args:
        classes: number of classes ``c``, known when the task is fitted to its targets.
        smoothing: share of a label that the loss spreads over all classes.
        headline: the metric that stands for a run.
        further: metrics in addition to it; accuracy is always included.
    """

    name: ClassVar[str] = "classification"
    class_labels: ClassVar[bool] = True
    classes: int = 0
    smoothing: float = 0.0
    headline: Name = "accuracy"
    further: tuple[Name, ...] = ()

    @property
    def form(self) -> Literal["classes", "other"]:
        # Compiled code knows the cross-entropy of labels as they are.
        if self.smoothing:
            return "other"
        return "classes"

    @property
    def outputs(self) -> int:
        return self.classes

    @property
    def metrics(self) -> tuple[Metric, ...]:
        known = {
            "accuracy": mean_metric(ACCURACY, itemgetter("correct"), correct_interval),
            "balanced_accuracy": Metric(
                Headline("balanced_accuracy", "higher", "%", "balanced accuracy"),
                mean_recall,
                interval=lambda sums: mean_of_shares(_recall(sums), sums["held"]),
            ),
            "macro_f1": Metric(Headline("macro_f1", "higher", "%", "macro-F1"), mean_f1),
        }
        first = known.pop(self.headline)
        others = [metric for name, metric in known.items() if name in ("accuracy", *self.further)]
        return (first, *others)

    @property
    def sums(self) -> SumShapes:
        # Right answers alone unless more is asked for: every client sends them in every evaluation.
        asked = {self.headline, *self.further}
        of_classes: list[str] = []
        if "balanced_accuracy" in asked or "macro_f1" in asked:
            of_classes += ["hits", "held"]
        if "macro_f1" in asked:
            of_classes.append("predicted")
        return (*CORRECT, *((name, (self.classes,)) for name in of_classes))

    def fitted(self, y: Tensor, classes: int) -> Classification:
        """See ``coterie.core.task.Task``. Labels that are generated lazily are not read.

        Raises:
            DataError: for targets that are not classes.
        """
        if not is_lazy(y) and (y.is_floating_point() or y.ndim > 1):
            got = f"targets are {str(y.dtype).removeprefix('torch.')}"
            if y.ndim > 1:
                got += f" of shape {list(y.shape[1:])}"
            what = "a classification task needs one integer label per sample"
            kind = "regression" if y.is_floating_point() else "next_token"
            expected = f"kind = {kind!r}, or another task of docs/tasks.md"
            raise DataError("does-not-fit", "task.kind", what, found=got, allowed=expected)
        return replace(self, classes=classes)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        check_label_logits(outputs, targets)
        return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=self.smoothing)

    def smoothed(self, share: float) -> Classification:
        return replace(self, smoothing=share)

    def added(self, outputs: Tensor, targets: Tensor) -> Mapping[str, Added]:
        return self.counted(outputs.argmax(1), targets)

    def counted(self, predicted: Tensor, targets: Tensor) -> Mapping[str, Added]:
        """See ``coterie.core.task.CountsClasses``."""
        c = self.classes
        right = predicted == targets
        asked = dict(self.sums)
        counts: dict[str, Added] = {"correct": right}
        if "held" in asked:
            counts["hits"] = Binned(targets, c, right)
            counts["held"] = Binned(targets, c)
        if "predicted" in asked:
            # A network may have more outputs than there are classes: these predictions are of none.
            of_a_class = predicted < c
            counts["predicted"] = Binned(predicted.clamp(max=c - 1), c, of_a_class)
        return counts

    def possible(self, sums: Sums) -> BoolArray:
        """See ``coterie.core.task.KnowsPossibleSums``."""
        size = sums["size"]
        correct = sums["correct"]
        possible: BoolArray = (correct >= 0) & at_most(correct, size)
        if "held" in sums:
            hits = sums["hits"]
            possible &= close_to(sums["held"].sum(axis=-1), size)
            possible &= np.all((hits >= 0) & at_most(hits, sums["held"]), axis=-1)
            possible &= close_to(hits.sum(axis=-1), correct)
        if "predicted" in sums:
            # Predictions of no class are left out.
            possible &= at_most(sums["predicted"].sum(axis=-1), size)
            possible &= np.all(at_most(sums["hits"], sums["predicted"]), axis=-1)
        return possible

    def class_counts(self, sums: Sums) -> FloatArray | None:
        """See ``coterie.core.task.KnowsClassCounts``: where a metric needs counts of each class."""
        return sums.get("held")

    def predict(self, outputs: Tensor) -> Tensor:
        """The class with the largest logit, int64 ``[n]``."""
        return outputs.argmax(1)

    def naive(self, targets: Tensor) -> Tensor:
        """The logits of the classes' shares: the majority class."""
        return torch.bincount(targets, minlength=self.classes).double().log()


def correct_interval(sums: Sums) -> Interval:
    """Wilson's interval of the share of right answers."""
    return wilson(ratio(sums["correct"], sums["size"]), sums["size"])


def mean_recall(sums: Sums) -> FloatArray:
    """Balanced accuracy: the share of right answers among the samples of a class, the mean over the
    classes that have samples, ``mean_j hits_j / held_j``.

    NaN without a sample.
    """
    return _mean_of_known(_recall(sums))


def _recall(sums: Sums) -> FloatArray:
    """The share of right answers among the samples of each class, ``[..., c]``."""
    return ratio(sums["hits"], sums["held"])


def mean_f1(sums: Sums) -> FloatArray:
    """Macro-F1: the F1 score of a class, the mean over the classes that have samples or are predicted,
    ``mean_j 2 hits_j / (held_j + predicted_j)``.

    A class that is in neither has no score, as in scikit-learn. NaN without a sample.
    """
    return _mean_of_known(ratio(2 * sums["hits"], sums["held"] + sums["predicted"]))


def _mean_of_known(values: FloatArray) -> FloatArray:
    """The mean over the last dimension of the values that are known; NaN where none is."""
    known = ~np.isnan(values)
    summed: FloatArray = np.where(known, values, 0.0).sum(axis=-1)
    return ratio(summed, known.sum(axis=-1))


CLASSIFICATION = Classification()


@validated
def classification(headline: Name = "accuracy", metrics: tuple[Name, ...] = ()) -> Classification:
    """One class of several, by cross-entropy; the headline is accuracy.

    Args:
        headline: the headline metric: ``accuracy``, ``balanced_accuracy`` or ``macro_f1``.
        metrics: further metrics, in addition to the headline and accuracy. The two others need
            counts of each class: a client's reply to an evaluation then has ``2c`` more numbers, or
            ``3c`` with ``macro_f1``.

    Raises:
        ConfigError: for an unknown metric.

    Example:
        >>> classification().predict(torch.tensor([[0.2, 0.9], [3.0, 1.0]])).tolist()
        [1, 0]
        >>> task = classification("macro_f1").fitted(torch.tensor([0, 1, 1]), 2)
        >>> [metric.name for metric in task.metrics], dict(task.sums)["hits"]
        (['macro_f1', 'accuracy'], (2,))
    """
    return Classification(headline=headline, further=metrics)
