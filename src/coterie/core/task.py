"""What a federation learns: the shape of targets, the loss, and the metrics as sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, cast, runtime_checkable

import numpy as np
from torch import Tensor

from coterie.core.arrays import BoolArray, FloatArray
from coterie.core.traits import Excluded, Feature
from coterie.errors import ConfigError
from coterie.headline import Headline

# Sums over samples by name, each ``[..., *shape]``; ``size`` is the number of samples.
Sums = Mapping[str, FloatArray]
# The names of sums and the shape of what one sample adds to each.
SumShapes = tuple[tuple[str, tuple[int, ...]], ...]
# Right answers: the one sum of a classification.
CORRECT: SumShapes = (("correct", ()),)


@dataclass(frozen=True, slots=True)
class Binned:
    """What samples add to a histogram, without a row of zeros for each of them.

    Args:
        place: int64 ``[n]``, the bin of each sample.
        bins: number of bins.
        weight: ``[n]``, what each adds to its bin; ``None``: 1.
    """

    place: Tensor
    bins: int
    weight: Tensor | None = None


# What samples add to a sum: ``[n]`` or ``[n, *shape]``, or places in a histogram.
Added = Tensor | Binned


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure computed from sums over samples, so that it adds up over clients and nodes exactly.

    Args:
        headline: its name, direction and unit.
        value: ``sums -> [...]``, one value for each leading index; NaN where it is undefined.
        total: ``sums -> [...]``, the sum whose mean over samples is the value; ``None`` for a
            metric that is no mean. Only a mean has a standard error from a sample of clients.
        interval: ``sums -> [...]`` twice, the ends of the 95 % interval of the value, if the samples
            are independent draws; ``None`` where the sums do not give one.
    """

    headline: Headline
    value: Callable[[Sums], FloatArray]
    total: Callable[[Sums], FloatArray] | None = None
    interval: Callable[[Sums], tuple[FloatArray, FloatArray]] | None = None

    @property
    def name(self) -> str:
        """Its name in rows and files."""
        return self.headline.name


def mean_metric(
    headline: Headline,
    total: Callable[[Sums], FloatArray],
    interval: Callable[[Sums], tuple[FloatArray, FloatArray]] | None = None,
) -> Metric:
    """A metric that is a mean over samples.

    Args:
        total: the sum over samples, of their sums.
        interval: as of a `Metric`.

    Example:
        >>> from coterie.headline import ACCURACY
        >>> metric = mean_metric(ACCURACY, lambda sums: sums["correct"])
        >>> metric.value({"correct": np.array([3.0, 0.0]), "size": np.array([4.0, 0.0])}).tolist()
        [0.75, nan]
    """

    def value(sums: Sums) -> FloatArray:
        return ratio(total(sums), sums["size"])

    return Metric(headline, value, total, interval)


def ratio(sums: FloatArray, size: FloatArray) -> FloatArray:
    """Sums over sizes; NaN where there is nothing."""
    found = np.full(np.shape(sums), np.nan)
    return np.divide(sums, size, out=found, where=np.asarray(size) > 0)


@runtime_checkable
class Task(Protocol):
    """What labels are, what is minimised, and what is measured. A hashable record.

    ``metrics`` starts with the headline. ``class_labels`` says whether a target is one number of
    ``0..c-1``, so that rules may count classes. ``outputs`` is the number of outputs of a network
    for each sample.
    """

    @property
    def name(self) -> str: ...

    @property
    def metrics(self) -> tuple[Metric, ...]: ...

    @property
    def sums(self) -> SumShapes: ...

    @property
    def class_labels(self) -> bool: ...

    @property
    def outputs(self) -> int: ...

    def fitted(self, y: Tensor, classes: int) -> Task:
        """The task for these targets ``[S, ...]``.

        Raises:
            DataError: for targets that it cannot learn.
        """
        ...

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample ``[n]``; training minimises its mean."""
        ...

    def added(self, outputs: Tensor, targets: Tensor) -> Mapping[str, Added]:
        """What each sample adds to each of the `sums`."""
        ...

    def predict(self, outputs: Tensor) -> Tensor:
        """What the outputs mean: classes, probabilities or numbers."""
        ...

    def naive(self, targets: Tensor) -> Tensor:
        """The outputs ``[o]`` of a model that ignores its inputs, computed from training targets."""
        ...


@runtime_checkable
class KnownTask(Task, Protocol):
    """A task that declares what it computes, so that faster code may compute it.

    ``form`` is ``classes`` where outputs are logits of classes, the loss is their cross-entropy,
    and the only sum is ``correct``, or the task is a `CountsClasses`; ``squared`` where the loss of
    a sample is the mean of its squared errors; else ``other``.
    """

    @property
    def form(self) -> Literal["classes", "squared", "other"]: ...


@runtime_checkable
class CountsClasses(KnownTask, Protocol):
    """A task of classes whose sums all follow from the class with the largest logit."""

    def counted(self, predicted: Tensor, targets: Tensor) -> Mapping[str, Added]:
        """What each sample adds to each of the `sums`."""
        ...


# Whether tasks of a class are `KnownTask`s.
_known_kinds: dict[type, bool] = {}


def is_classes(task: Task) -> bool:
    """Whether a task is the classification that compiled code computes."""
    return _form(task) == "classes"


def has_squared_error(task: Task) -> bool:
    """Whether the loss of a sample is the mean of its squared errors: what compiled code minimises
    in addition to cross-entropy."""
    return _form(task) == "squared"


def _form(task: Task) -> str:
    """The form of a `KnownTask`, ``other`` for any other. It is found out once for each class:
    every step asks, and looks up each name of the protocol."""
    kind = type(task)
    if kind not in _known_kinds:
        _known_kinds[kind] = isinstance(task, KnownTask)
    if _known_kinds[kind]:
        return cast(KnownTask, task).form
    return "other"


@runtime_checkable
class KnowsClassCounts(Task, Protocol):
    """A task whose sums may tell how many samples of each class there are."""

    def class_counts(self, sums: Sums) -> FloatArray | None:
        """The samples of each class, ``[..., c]``; ``None`` where these sums do not tell."""
        ...


@runtime_checkable
class KnowsPossibleSums(Task, Protocol):
    """A task that can tell sums that no samples give, as real clients may send them."""

    def possible(self, sums: Sums) -> BoolArray:
        """Whether some samples have these sums, bool ``[...]``.

        Args:
            sums: the task's `sums`, each ``[..., *shape]``, and ``size [...]``.
        """
        ...


@runtime_checkable
class Smoothable(Task, Protocol):
    """A task whose loss has labels that can be smoothed."""

    def smoothed(self, share: float) -> Task:
        """The task whose loss spreads a share of every label over all classes."""
        ...


SMOOTHED = Feature(
    "with local.label_smoothing",
    {"local.label_smoothing": ()},
    (
        Excluded("local.label_smoothing", "the task has no labels", "0", None, "no_smoothing"),
        Excluded(
            "local.label_smoothing", "the objective is a complete loss", "0", None, "whole_loss"
        ),
    ),
)


def with_smoothing(task: Task, share: float) -> Task:
    """The task that is trained: with smoothed labels where a share is asked for."""
    if not share:
        return task
    if not isinstance(task, Smoothable):
        raise SMOOTHED.refusal("no_smoothing", task.name)
    return task.smoothed(share)


def close_to(first: FloatArray, second: FloatArray) -> BoolArray:
    """Whether two sums over samples are the same up to the rounding of float32."""
    return np.isclose(first, second, rtol=1e-5, atol=1e-5)


def at_most(first: FloatArray, second: FloatArray) -> BoolArray:
    """Whether one sum over samples is at most another, up to the rounding of float32."""
    return (first <= second) | close_to(first, second)


def headline_of(task: Task) -> Headline:
    """The headline of a task: its first metric."""
    return task.metrics[0].headline


def check_label_logits(outputs: Tensor, labels: Tensor) -> None:
    """Refuse a row of logits for each token where a sample has one label; torch would only say that
    a target has the wrong size."""
    if not isinstance(outputs, Tensor):
        what = "outputs are not a tensor"
        got = f"a {type(outputs).__name__}"
        expected = "logits [n, classes], so wrap the network in one whose forward returns them"
        raise ConfigError("wrong-type", "model.name", what, found=got, allowed=expected)
    # Other shapes, as one logit a sample, are the affair of the loss.
    if outputs.ndim > 2 and labels.ndim == 1:
        what = "several rows of logits per sample"
        got = f"outputs of shape {tuple(outputs.shape)} for {len(labels)} labels"
        expected = "one row, [n, classes], or the task 'next_token' with a target for each token"
        raise ConfigError("wrong-shape", "model.name", what, found=got, allowed=expected)
