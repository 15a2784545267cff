"""Numbers to predict: one for each sample, or several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from coterie.config.arguments import validated
from coterie.core.arrays import BoolArray, FloatArray
from coterie.core.target_scaling import TargetScaling
from coterie.core.task import Added, Metric, Sums, SumShapes, at_most, mean_metric, ratio
from coterie.errors import ConfigError, DataError
from coterie.headline import Headline
from coterie.math.intervals import Interval, mean_interval

Loss = Literal["squared", "absolute", "huber", "quantile"]
Name = Literal["mae", "rmse", "r2", "pinball"]
Scaling = Literal["standard", "none"]


@dataclass(frozen=True, slots=True)
class Regression:
    """Targets are numbers ``[n]`` or ``[n, t]``, outputs are predictions ``[n, t]``.

    `Task` and `KnownTask` in `coterie.core.task` explain its members, and
    `coterie.core.target_scaling.ScalesTargets` those that are about scaling.

    With the error ``e = target - prediction`` in the units of the target, and ``s`` the scale of the
    target (1 where it is not scaled), the loss of a sample is the mean over its targets of

    - ``squared``: ``e^2 / s^2``;
    - ``absolute``: ``|e| / s``;
    - ``huber``: ``e^2 / 2`` where ``|e| <= delta``, else ``delta (|e| - delta / 2)``, both over
      ``s^2``;
    - ``quantile``: ``max(q e, (q - 1) e) / s``, which has the quantile ``q`` as its best
      prediction.

    Args:
        kind: the loss.
        delta: parameter of ``huber``.
        q: parameter of ``quantile``.
        headline: the metric that stands for a run.
        unit: the unit of the targets, shown after errors.
        targets: number of targets ``t``, known when the task is fitted to its targets.
        scaling_rule: whether targets are scaled by what clients report of them.
        scaling: how they are scaled, known when clients have reported.
    """

    name: ClassVar[str] = "regression"
    class_labels: ClassVar[bool] = False
    kind: Loss = "squared"
    delta: float = 1.0
    q: float = 0.5
    headline: Name = "mae"
    unit: str = ""
    targets: int = 1
    scaling_rule: Scaling = "standard"
    scaling: TargetScaling | None = None

    @property
    def form(self) -> Literal["squared", "other"]:
        if self.kind == "squared":
            return "squared"
        return "other"

    @property
    def asks_for_scaling(self) -> bool:
        return self.scaling_rule == "standard"

    def scaled_by(self, scaling: TargetScaling | None) -> Regression:
        return replace(self, scaling=scaling)

    @property
    def outputs(self) -> int:
        return self.targets

    @property
    def metrics(self) -> tuple[Metric, ...]:
        known = {
            "mae": mean_metric(
                Headline("mae", "lower", self.unit, "MAE"), mean_absolute, absolute_interval
            ),
            "rmse": Metric(Headline("rmse", "lower", self.unit, "RMSE"), root_mean_squared),
            "r2": Metric(Headline("r2", "higher", "", "R2"), explained),
        }
        if self.kind == "quantile":
            pinball = Headline("pinball", "lower", self.unit, "pinball loss")
            known["pinball"] = mean_metric(pinball, mean_pinball)
        first = known.pop(self.headline)
        return (first, *known.values())

    @property
    def sums(self) -> SumShapes:
        names = ["absolute", "squared", "target", "target_squared"]
        if self.kind == "quantile":
            names.append("pinball")
        return tuple((name, (self.targets,)) for name in names)

    def fitted(self, y: Tensor, classes: int) -> Regression:
        """See ``coterie.core.task.Task``.

        Raises:
            DataError: for targets of more than two dimensions.
        """
        if y.ndim > 2:
            what = "a regression task needs one row of targets per sample"
            got = f"they have shape {list(y.shape[1:])}"
            raise DataError("wrong-shape", "task.kind", what, found=got, allowed="[n] or [n, t]")
        targets = 1
        if y.ndim == 2:
            targets = y.shape[1]
        return replace(self, targets=targets, scaling=None)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        error = self._scaled(targets) - self._rows(outputs)
        if self.kind != "huber" or self.scaling is None:
            return self._losses(error).mean(dim=1)
        # Its delta is in the units of the targets.
        losses = self._losses(self.scaling.times(error))
        return self.scaling.times(losses, -2).mean(dim=1)

    def _scaled(self, targets: Tensor) -> Tensor:
        """Targets ``[n, t]`` as the network learns them."""
        rows = self._rows(targets)
        if self.scaling is None:
            return rows
        return self.scaling.to_outputs(rows)

    def _losses(self, error: Tensor) -> Tensor:
        if self.kind == "squared":
            return error.square()
        if self.kind == "absolute":
            return error.abs()
        if self.kind == "huber":
            nothing = torch.zeros_like(error)
            return F.huber_loss(error, nothing, reduction="none", delta=self.delta)
        return torch.maximum(self.q * error, (self.q - 1) * error)

    def _rows(self, values: Tensor) -> Tensor:
        """Values as ``[n, t]``: targets may be ``[n]``, which no network puts out."""
        return values.reshape(len(values), self.targets)

    def added(self, outputs: Tensor, targets: Tensor) -> Mapping[str, Added]:
        # In float64, so that sums over many samples lose nothing.
        target = self._rows(targets).double()
        error = target - self.predict(outputs.double())
        found = {
            "absolute": error.abs(),
            "squared": error.square(),
            "target": target,
            "target_squared": target.square(),
        }
        if self.kind == "quantile":
            found["pinball"] = self._losses(error)
        return found

    def possible(self, sums: Sums) -> BoolArray:
        """See ``coterie.core.task.KnowsPossibleSums``."""
        size = sums["size"][..., None]
        # The square of a sum is at most the number of its terms times the sum of their squares.
        possible = at_most(sums["absolute"] ** 2, size * sums["squared"])
        possible &= at_most(sums["target"] ** 2, size * sums["target_squared"])
        possible &= (sums["absolute"] >= 0) & (sums["squared"] >= 0)
        if self.kind == "quantile":
            possible &= sums["pinball"] >= 0
        return np.all(possible, axis=-1)

    def predict(self, outputs: Tensor) -> Tensor:
        """The predictions ``[n, t]``, in the units of the targets."""
        rows = self._rows(outputs)
        if self.scaling is None:
            return rows
        return self.scaling.to_targets(rows)

    def naive(self, targets: Tensor) -> Tensor:
        """The mean of each target."""
        return self._scaled(targets.double()).mean(dim=0)


# --- metrics --------------------------------------------------------------------------------------
# Several targets count alike, as scikit-learn's `uniform_average` has it.


def mean_absolute(sums: Sums) -> FloatArray:
    """Absolute errors, the mean over targets."""
    return sums["absolute"].mean(axis=-1)


def absolute_interval(sums: Sums) -> Interval:
    """The interval of the mean absolute error, by Student's t.

    Of several targets the standard errors are averaged, which is right where their errors go
    together, and otherwise too wide.
    """
    low, high = mean_interval(sums["absolute"], sums["squared"], sums["size"][..., None])
    # An error is not negative.
    return np.maximum(low, 0).mean(axis=-1), high.mean(axis=-1)


def mean_pinball(sums: Sums) -> FloatArray:
    """Pinball losses, the mean over targets."""
    return sums["pinball"].mean(axis=-1)


def root_mean_squared(sums: Sums) -> FloatArray:
    """The root of the mean squared error of each target, the mean over targets."""
    size = np.broadcast_to(sums["size"][..., None], np.shape(sums["squared"]))
    return np.sqrt(ratio(sums["squared"], size)).mean(axis=-1)


def explained(sums: Sums) -> FloatArray:
    """``R2 = 1 - sum e^2 / sum (y - mean y)^2``, the mean over targets.

    NaN with fewer than two samples. For targets that are all alike it is 1 where every prediction
    is right, else 0, as in scikit-learn.
    """
    size = np.broadcast_to(sums["size"][..., None], np.shape(sums["squared"]))
    around_zero = sums["target_squared"]
    around_mean = around_zero - ratio(np.square(sums["target"]), size)
    # A difference of rounding errors is no spread.
    around_mean = np.where(around_mean > 1e-12 * around_zero, around_mean, 0.0)
    unexplained = sums["squared"]
    alike = np.where(unexplained > 0, 0.0, 1.0)
    spread = np.where(around_mean > 0, around_mean, 1.0)
    each = np.where(around_mean > 0, 1 - unexplained / spread, alike)
    return np.where(size >= 2, each, np.nan).mean(axis=-1)


@validated
def regression(
    loss: Loss = "squared",
    delta: Annotated[float, Field(gt=0)] = 1.0,
    quantile: Annotated[float, Field(gt=0, lt=1)] = 0.5,
    headline: Name = "mae",
    unit: str = "",
    scaling: Scaling = "standard",
) -> Regression:
    """Numbers: one target per sample, or several.

    Args:
        loss: ``squared``, ``absolute``, ``huber`` or ``quantile``.
        delta: for ``huber``, the error above which the loss grows linearly.
        quantile: for ``quantile``, the quantile that is predicted.
        headline: the headline metric: ``mae``, ``rmse``, ``r2``, or ``pinball`` with the loss
            ``quantile``.
        unit: the unit of the targets, shown after errors.
        scaling: ``standard``: networks learn targets with mean 0 and standard deviation 1 over all
            training samples, by what clients report; metrics and predictions are in the units of
            the targets. ``none``: targets as they are.

    Raises:
        ConfigError: for a value out of its range, or ``pinball`` with another loss.

    Example:
        >>> task = regression("huber", delta=0.5)
        >>> task.loss(torch.tensor([[1.0], [0.0]]), torch.tensor([1.25, 2.0])).tolist()
        [0.03125, 0.875]
    """
    if headline == "pinball" and loss != "quantile":
        what = "'pinball' does not go with this loss"
        got = f"loss = {loss!r}"
        expected = "loss = 'quantile', or another headline"
        raise ConfigError("in-conflict", "task.headline", what, found=got, allowed=expected)
    return Regression(loss, delta, quantile, headline, unit, scaling_rule=scaling)
