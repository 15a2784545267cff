"""Several yes-or-no labels for each sample."""

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
from coterie.core.task import Added, Metric, Sums, SumShapes, at_most, close_to, mean_metric, ratio
from coterie.errors import DataError
from coterie.headline import Headline
from coterie.math.intervals import wilson

Name = Literal["macro_f1", "micro_f1", "label_accuracy", "exact_match"]


@dataclass(frozen=True, slots=True)
class Multilabel:
    """Targets are rows of zeros and ones ``[n, l]``, outputs are the logits of the ones, the loss of
    a sample is the mean binary cross-entropy of its labels.

    Args:
        headline: the metric that stands for a run.
        labels: number of labels ``l``, known when the task is fitted to its targets.
    """

    name: ClassVar[str] = "multilabel"
    class_labels: ClassVar[bool] = False
    headline: Name = "macro_f1"
    labels: int = 1

    @property
    def outputs(self) -> int:
        return self.labels

    @property
    def metrics(self) -> tuple[Metric, ...]:
        known = {
            "macro_f1": Metric(Headline("macro_f1", "higher", "%", "macro-F1"), macro_f1),
            "micro_f1": Metric(Headline("micro_f1", "higher", "%", "micro-F1"), micro_f1),
            "label_accuracy": mean_metric(
                Headline("label_accuracy", "higher", "%", "accuracy of a label"),
                label_accuracy,
                lambda sums: wilson(ratio(label_accuracy(sums), sums["size"]), sums["size"]),
            ),
            "exact_match": mean_metric(
                Headline("exact_match", "higher", "%", "samples with all labels right"),
                itemgetter("exact"),
                lambda sums: wilson(ratio(sums["exact"], sums["size"]), sums["size"]),
            ),
        }
        first = known.pop(self.headline)
        return (first, *known.values())

    @property
    def sums(self) -> SumShapes:
        shape = (self.labels,)
        names = ("right", "hits", "called", "positive")
        return (*((name, shape) for name in names), ("exact", ()))

    def fitted(self, y: Tensor, classes: int) -> Multilabel:
        """See ``coterie.core.task.Task``.

        Raises:
            DataError: for targets that are not rows of zeros and ones.
        """
        if y.ndim != 2 or not bool(((y == 0) | (y == 1)).all()):
            what = "a multilabel task needs rows of zeros and ones as targets"
            got = f"they are {str(y.dtype).removeprefix('torch.')} of shape {list(y.shape[1:])} per sample"
            raise DataError("does-not-fit", "task.kind", what, found=got, allowed="[n, labels]")
        return replace(self, labels=y.shape[1])

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        y = targets.to(outputs.dtype)
        each = F.binary_cross_entropy_with_logits(outputs, y, reduction="none")
        return each.mean(dim=1)

    def added(self, outputs: Tensor, targets: Tensor) -> Mapping[str, Added]:
        called = outputs > 0
        positive = targets > 0
        right = called == positive
        return {
            "right": right,
            "hits": called & positive,
            "called": called,
            "positive": positive,
            "exact": right.all(dim=1),
        }

    def possible(self, sums: Sums) -> BoolArray:
        """See ``coterie.core.task.KnowsPossibleSums``."""
        size = sums["size"][..., None]
        hits = sums["hits"]
        called = sums["called"]
        positive = sums["positive"]
        # A label is right where it is called and there, and where it is neither.
        right = size - called - positive + 2 * hits
        by_label = (hits >= 0) & at_most(hits, called) & at_most(hits, positive)
        by_label &= at_most(called, size) & at_most(positive, size)
        by_label &= close_to(sums["right"], right)
        exact = (sums["exact"] >= 0) & at_most(sums["exact"], sums["right"].min(axis=-1))
        return by_label.all(axis=-1) & exact

    def predict(self, outputs: Tensor) -> Tensor:
        """The probability of each label, ``[n, l]``."""
        return torch.sigmoid(outputs)

    def naive(self, targets: Tensor) -> Tensor:
        """The logits of the shares of ones."""
        return targets.double().mean(dim=0).logit()


def label_accuracy(sums: Sums) -> FloatArray:
    """Right labels, the mean over labels."""
    return sums["right"].mean(axis=-1)


def _f1(hits: FloatArray, called: FloatArray, positive: FloatArray) -> FloatArray:
    """``2 hits / (called + positive)``; 0 where a label is neither there nor called."""
    both = called + positive
    return np.divide(2 * hits, both, out=np.zeros(np.shape(both)), where=both > 0)


def macro_f1(sums: Sums) -> FloatArray:
    """The F1 score of each label, the mean over labels."""
    scores = _f1(sums["hits"], sums["called"], sums["positive"]).mean(axis=-1)
    return np.where(sums["size"] > 0, scores, np.nan)


def micro_f1(sums: Sums) -> FloatArray:
    """The F1 score of all labels together."""
    hits, called, positive = (sums[name].sum(axis=-1) for name in ("hits", "called", "positive"))
    return np.where(sums["size"] > 0, _f1(hits, called, positive), np.nan)


@validated
def multilabel(headline: Name = "macro_f1") -> Multilabel:
    """Several yes-or-no labels per sample, by binary cross-entropy; the headline is macro-F1.

    Args:
        headline: the headline metric: ``macro_f1``, ``micro_f1``, ``label_accuracy`` or
            ``exact_match``.

    Example:
        >>> task = multilabel().fitted(torch.tensor([[0, 1], [1, 1]]), 0)
        >>> task.outputs, task.naive(torch.tensor([[0, 1], [1, 0]])).tolist()
        (2, [0.0, 0.0])
    """
    return Multilabel(headline)
