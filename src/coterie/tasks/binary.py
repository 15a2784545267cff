"""Yes or no, with probabilities: one output for each sample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import ClassVar, Literal

import numpy as np
import torch
from scipy.special import digamma
from torch import Tensor
from torch.nn import functional as F

from coterie.config.arguments import validated
from coterie.core.arrays import BoolArray, FloatArray
from coterie.core.task import (
    Added,
    Binned,
    Metric,
    Sums,
    SumShapes,
    at_most,
    close_to,
    mean_metric,
    ratio,
)
from coterie.data.lazy import is_lazy
from coterie.errors import DataError
from coterie.headline import ACCURACY, Headline
from coterie.math.intervals import Interval, area_interval, mean_of_shares, wilson
from coterie.tasks.classification import correct_interval

# Bins of the outputs, for the area under the curve. They are equal steps of asinh(10 z), so that
# they are narrow where outputs of a young network are, and still hold those of a sure one.
SCORE_BINS = 512
_STRETCH = 10.0
_LARGEST = 16.0  # outputs beyond are put into the last bin: their probability is within 1e-6 of 1
# Bins of the probabilities, for the calibration error.
CALIBRATION_BINS = 15

Name = Literal[
    "auroc", "average_precision", "accuracy", "balanced_accuracy", "brier", "log_loss", "ece"
]


@dataclass(frozen=True, slots=True)
class Binary:
    """Targets are 0 or 1, the one output ``z`` of a network is the logit of 1, the loss is the
    binary cross-entropy ``log(1 + exp(z)) - y z``.

    A sample is predicted as positive if ``z > 0``, that is, if its probability is above one half.

    Args:
        headline: the metric that stands for a run.
    """

    name: ClassVar[str] = "binary"
    class_labels: ClassVar[bool] = True
    outputs: ClassVar[int] = 1
    headline: Name = "auroc"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        known = {
            "auroc": Metric(
                Headline("auroc", "higher", "", "AUROC"),
                area_under_curve,
                interval=lambda sums: area_interval(*reversed(_by_label(sums))),
            ),
            "average_precision": Metric(
                Headline("average_precision", "higher", "", "average precision"),
                average_precision,
                interval=precision_interval,
            ),
            "accuracy": mean_metric(ACCURACY, itemgetter("correct"), correct_interval),
            "balanced_accuracy": Metric(
                Headline("balanced_accuracy", "higher", "%", "balanced accuracy"),
                balanced,
                interval=balanced_interval,
            ),
            "brier": mean_metric(
                Headline("brier", "lower", "", "Brier score"), itemgetter("squared"), brier_interval
            ),
            "log_loss": mean_metric(
                Headline("log_loss", "lower", "", "log-loss"), itemgetter("log_loss")
            ),
            "ece": Metric(Headline("ece", "lower", "", "calibration error"), calibration_error),
        }
        first = known.pop(self.headline)
        bounds = (
            Metric(Headline("auroc_bound", "lower", ""), area_bound),
            Metric(Headline("average_precision_bound", "lower", ""), precision_bound),
        )
        return (first, *known.values(), *bounds)

    @property
    def sums(self) -> SumShapes:
        return (
            ("correct", ()),
            ("squared", ()),
            ("log_loss", ()),
            ("scores", (2 * SCORE_BINS,)),
            ("answers", (4,)),
            ("calibration", (CALIBRATION_BINS,)),
        )

    def fitted(self, y: Tensor, classes: int) -> Binary:
        """See ``coterie.core.task.Task``. Labels that are generated lazily are not read.

        Raises:
            DataError: for targets that are not 0 and 1.
        """
        if is_lazy(y):
            found = classes == 2
        else:
            found = y.ndim == 1 and not y.is_floating_point() and classes == 2
        if not found:
            what = "a binary task needs the integer labels 0 and 1"
            got = f"the data have {classes} classes"
            raise DataError("does-not-fit", "task.kind", what, found=got, allowed="2")
        return self

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            self._logits(outputs), targets.to(outputs.dtype), reduction="none"
        )

    def _logits(self, outputs: Tensor) -> Tensor:
        """The outputs as ``[n]``."""
        return outputs.reshape(len(outputs))

    def added(self, outputs: Tensor, targets: Tensor) -> Mapping[str, Added]:
        z = self._logits(outputs).double()
        y = targets.long()
        probability = torch.sigmoid(z)
        called = (z > 0).long()
        bins = (probability * CALIBRATION_BINS).long().clamp_(max=CALIBRATION_BINS - 1)
        return {
            "correct": called == y,
            "squared": (probability - y).square(),
            "log_loss": F.binary_cross_entropy_with_logits(z, y.double(), reduction="none"),
            "scores": Binned(score_bin(z) + SCORE_BINS * y, 2 * SCORE_BINS),
            "answers": Binned(2 * y + called, 4),
            # How much surer a bin's samples are than right, summed: all that its error needs.
            "calibration": Binned(bins, CALIBRATION_BINS, probability - y),
        }

    def possible(self, sums: Sums) -> BoolArray:
        """See ``coterie.core.task.KnowsPossibleSums``."""
        size = sums["size"]
        answers = sums["answers"]
        negative, positive = _by_label(sums)
        counts = (answers >= 0).all(axis=-1) & (sums["scores"] >= 0).all(axis=-1)
        # The rows of `answers` are negative and positive samples, and so are halves of `scores`.
        same = close_to(answers[..., :2].sum(axis=-1), negative.sum(axis=-1))
        same &= close_to(answers[..., 2:].sum(axis=-1), positive.sum(axis=-1))
        same &= close_to(answers.sum(axis=-1), size)
        same &= close_to(answers[..., 0] + answers[..., 3], sums["correct"])
        errors = (sums["squared"] >= 0) & at_most(sums["squared"], size) & (sums["log_loss"] >= 0)
        surer = at_most(np.abs(sums["calibration"]).sum(axis=-1), size)
        return counts & same & errors & surer

    def class_counts(self, sums: Sums) -> FloatArray:
        """See ``coterie.core.task.KnowsClassCounts``: negative and positive samples."""
        answers = sums["answers"]
        return np.stack([answers[..., :2].sum(axis=-1), answers[..., 2:].sum(axis=-1)], axis=-1)

    def predict(self, outputs: Tensor) -> Tensor:
        """The probability of 1, ``[n]``."""
        return torch.sigmoid(self._logits(outputs))

    def naive(self, targets: Tensor) -> Tensor:
        """The logit of the share of ones."""
        return targets.double().mean().logit().clamp(-_LARGEST, _LARGEST).reshape(1)


def score_bin(z: Tensor) -> Tensor:
    """The bin of each output, int64, ascending with the output."""
    place = torch.asinh(_STRETCH * z.clamp(-_LARGEST, _LARGEST)) / math.asinh(_STRETCH * _LARGEST)
    return ((place + 1) / 2 * SCORE_BINS).long().clamp_(max=SCORE_BINS - 1)


# --- metrics --------------------------------------------------------------------------------------


def brier_interval(sums: Sums) -> Interval:
    """Wilson's interval of the Brier score: a value between 0 and 1 varies at most as much as a yes or
    no of the same mean, so that it is rather too wide."""
    return wilson(ratio(sums["squared"], sums["size"]), sums["size"])


def _by_label(sums: Sums) -> tuple[FloatArray, FloatArray]:
    """The histograms of the outputs of negative and of positive samples."""
    scores = sums["scores"]
    return scores[..., :SCORE_BINS], scores[..., SCORE_BINS:]


def area_under_curve(sums: Sums) -> FloatArray:
    """The share of pairs of a positive and a negative sample in which the positive one has the
    larger output; a pair within one bin counts half.

    That is the area under the receiver operating characteristic to within `area_bound`. NaN without
    both labels.
    """
    negative, positive = _by_label(sums)
    below = np.cumsum(negative, axis=-1) - negative / 2
    pairs = negative.sum(axis=-1) * positive.sum(axis=-1)
    return ratio((positive * below).sum(axis=-1), pairs)


def area_bound(sums: Sums) -> FloatArray:
    """By how much binning can change the area under the curve: half the share of pairs of a
    positive and a negative sample that share a bin."""
    negative, positive = _by_label(sums)
    pairs = negative.sum(axis=-1) * positive.sum(axis=-1)
    return ratio((positive * negative).sum(axis=-1) / 2, pairs)


def average_precision(sums: Sums) -> FloatArray:
    """The precision at each positive sample, averaged over them, where samples within one bin share
    a threshold.

    ``sum_b p_b / P * P_b / (P_b + N_b)``, with ``p_b`` positives in bin ``b``, ``P_b`` positives and
    ``N_b`` negatives in it and in those above, and ``P`` positives in all. That is the average
    precision of the outputs to within `precision_bound`. NaN without a positive sample.
    """
    negative, positive = _by_label(sums)
    above = _from_above(positive)
    precision = ratio(above, above + _from_above(negative))
    # The bins above all samples have no precision.
    return ratio(np.nansum(positive * precision, axis=-1), positive.sum(axis=-1))


def precision_interval(sums: Sums) -> Interval:
    """Wilson's interval of the average precision as a share of the positive samples.

    Source: Boyd, Eng and Page, Area under the Precision-Recall Curve: Point Estimates and Confidence
    Intervals (2013), whose binomial interval has the same variance.
    """
    _, positive = _by_label(sums)
    return wilson(average_precision(sums), positive.sum(axis=-1))


def precision_bound(sums: Sums) -> FloatArray:
    """By how much binning can change the average precision: how far it is from that in which each bin
    has its positive samples last, or first."""
    negative, positive = _by_label(sums)
    ours = average_precision(sums)
    negatives = _from_above(negative)
    worst = _ordered(positive, negatives)
    best = _ordered(positive, negatives - negative)
    return np.maximum(ours - worst, best - ours)


def _ordered(positive: FloatArray, negatives: FloatArray) -> FloatArray:
    """The average precision where the positive samples of a bin come one after another.

    With ``P`` positives above a bin that has ``p``, it adds ``sum_(k=1..p) (P + k) / (P + k + N)``,
    which is ``p - N (psi(P + N + p + 1) - psi(P + N + 1))`` for the digamma function ``psi``.

    Args:
        positive: positive samples by bin, ``[..., bins]``.
        negatives: ``N``, negative samples that come before those of the bin, ``[..., bins]``.
    """
    above = _from_above(positive)
    harmonic = digamma(above + negatives + 1) - digamma(above - positive + negatives + 1)
    return ratio((positive - negatives * harmonic).sum(axis=-1), positive.sum(axis=-1))


def _from_above(histogram: FloatArray) -> FloatArray:
    """Samples in each bin and in those with larger outputs, ``[..., bins]``."""
    return np.flip(np.cumsum(np.flip(histogram, axis=-1), axis=-1), axis=-1)


def balanced(sums: Sums) -> FloatArray:
    """The mean of the shares of right answers among negative and among positive samples; NaN
    without both."""
    return _right_by_label(sums).mean(axis=-1)


def balanced_interval(sums: Sums) -> Interval:
    """The interval of `balanced`, of those of its two shares; NaN without both labels."""
    answers = sums["answers"]
    sizes = np.stack([answers[..., :2].sum(axis=-1), answers[..., 2:].sum(axis=-1)], axis=-1)
    low, high = mean_of_shares(_right_by_label(sums), sizes)
    both = (sizes > 0).all(axis=-1)
    return np.where(both, low, np.nan), np.where(both, high, np.nan)


def _right_by_label(sums: Sums) -> FloatArray:
    """The shares of right answers among negative and among positive samples, ``[..., 2]``."""
    answers = sums["answers"]
    specificity = ratio(answers[..., 0], answers[..., 0] + answers[..., 1])
    sensitivity = ratio(answers[..., 3], answers[..., 2] + answers[..., 3])
    return np.stack([specificity, sensitivity], axis=-1)


def calibration_error(sums: Sums) -> FloatArray:
    """The expected calibration error: over 15 equal bins of the probability, the difference between
    the mean probability and the share of ones, weighted by samples.

    ``sum_b |sum_(i in b) p_i - y_i| / n``.
    """
    return ratio(np.abs(sums["calibration"]).sum(axis=-1), sums["size"])


@validated
def binary(headline: Name = "auroc") -> Binary:
    """Yes or no, by binary cross-entropy; the headline is the area under the ROC curve.

    Args:
        headline: the headline metric: ``auroc``, ``average_precision``, ``accuracy``,
            ``balanced_accuracy``, ``brier``, ``log_loss`` or ``ece`` (calibration error).

    Example:
        >>> task = binary()
        >>> task.predict(torch.tensor([[0.0], [100.0]])).tolist()
        [0.5, 1.0]
    """
    return Binary(headline)
