"""RFedAvg's convergence bound (Theorem 1, eq. 15), on a model whose constants can be computed.

Which constants can be had: on logistic regression with weight decay, the smoothness ``L_1``, the
minimum ``w*``, each class's gradient, and with them ``R(b)``, ``Gamma_t`` and ``L_2``. The bound has
no strong convexity and no variance of the gradients. What cannot be had: the bound takes a class's
gradient over one cluster for its gradient over all data, which holds in expectation only.

No run uses it. It is for users who compare a run with the bound.

Source: Wang, Zhang and Tao, Adaptive Clustering-Based Model Aggregation for Federated Learning with
Imbalanced Data (2021).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import FloatArray
from coterie.core.startup import starting_up
from coterie.data.population import Population
from coterie.errors import ConfigError
from coterie.measures.theory import Constants, with_bias

Vector = FloatArray

# Of the gradient's largest entry at the minimum that is found.
_TOLERANCE = 1e-9
_MOST_STEPS = 20_000


@dataclass(frozen=True, slots=True)
class ImbalanceBound:
    """The terms of eq. 15 for one step ``w^{t+1} = w^t - eta sum_m b~_m grad F^m(w^t)``.

    ``F(w^{t+1}) - F(w*) <= L_1/2 |w^t - w*|^2 - L_1/2 eta^2 G^2 + L_1 eta G (Gamma_t + slope +
    L_2/2 |b~ - b*|^2)``.

    Two things differ from print. ``G`` is the norm of the step's own gradient: the proof puts a bound
    of the norm in place of it, also in the negative term, which is right only while ``eta G <=
    R(b~)``. And ``slope`` is in the sum: the proof takes the gradient of ``R`` at ``b*`` for zero,
    which it is where ``b*`` is the minimum of ``R``, and not at equal shares.

    Args:
        smoothness: ``L_1`` of the loss.
        eta: the server's step.
        distance: ``|w^t - w*|``.
        gradient: ``G``.
        gap: ``Gamma_t = R(b*)``, how far a step with equal shares ends from ``w*``.
        slope: ``grad R(b*) . (b~ - b*)``.
        curvature: ``L_2``, the largest curvature of ``R`` between ``b*`` and ``b~``; infinite where
            ``R`` is 0 between them.
        imbalance: ``|b~ - b*|^2``, which RFedAvg's weights should make small.
    """

    smoothness: float
    eta: float
    distance: float
    gradient: float
    gap: float
    slope: float
    curvature: float
    imbalance: float

    @property
    def value(self) -> float:
        """The bound on ``F(w^{t+1}) - F(w*)``, in units of the loss."""
        return self._with(self.slope)

    @property
    def printed(self) -> float:
        """Eq. 15 as printed, without ``slope``; no bound where that is above 0."""
        return self._with(0.0)

    def _with(self, slope: float) -> float:
        reach = self.gap + slope
        # Infinity times 0 is not a number, and equal shares have no such term.
        if self.imbalance > 0:
            reach += self.curvature / 2 * self.imbalance
        stays = self.distance**2 - (self.eta * self.gradient) ** 2
        return self.smoothness * (stays / 2 + self.eta * self.gradient * reach)


def imbalance_bound(
    model: Vector,
    minimum: Vector,
    gradients: FloatArray,
    shares: Vector,
    eta: float,
    smoothness: float,
) -> ImbalanceBound:
    """The terms of eq. 15 at a model, with ``b* = (1/M, ..., 1/M)`` as in section III-B.

    ``R(b) = |w^t - eta sum_m b_m grad F^m(w^t) - w*|`` (eq. 10 and 12) is the norm of what is affine
    in ``b``, so that it is convex (assumption 4), and its curvature along shares that sum to 1 is at
    most ``eta^2 s^2 / R``, ``s`` being the largest singular value of the gradients less their mean.
    ``L_2`` is that at the least ``R`` between ``b*`` and ``b~`` (assumption 5).

    Args:
        model: ``w^t [d]``.
        minimum: ``w* [d]``.
        gradients: ``grad F^m(w^t) [M, d]``, the mean gradient of the samples of each class (eq. 11).
        shares: ``b~ [M]``, how much each class counts in the step (eq. 14); they sum to 1.
    """
    if shares.shape != gradients.shape[:1] or not np.isclose(shares.sum(), 1.0):
        raise ValueError(
            f"shares: {len(shares)} that sum to {shares.sum():g}; "
            f"expected {len(gradients)} that sum to 1"
        )
    classes = len(gradients)
    equal = np.full(classes, 1 / classes)
    # Where steps with equal and with these shares end, seen from the minimum.
    from_equal = model - minimum - eta * (equal @ gradients)
    from_shares = model - minimum - eta * (shares @ gradients)
    gap = float(np.linalg.norm(from_equal))
    slope = 0.0
    if gap > 0:
        slope = float(from_equal @ (from_shares - from_equal)) / gap
    spread = float(np.linalg.norm(gradients - gradients.mean(axis=0), 2))
    least = _least_norm(from_equal, from_shares)
    return ImbalanceBound(
        smoothness=smoothness,
        eta=eta,
        distance=float(np.linalg.norm(model - minimum)),
        gradient=float(np.linalg.norm(shares @ gradients)),
        gap=gap,
        slope=slope,
        curvature=(eta * spread) ** 2 / least if least > 0 else float("inf"),
        imbalance=float(((shares - equal) ** 2).sum()),
    )


def _least_norm(start: Vector, end: Vector) -> float:
    """The least distance from 0 of a point between two points."""
    way = end - start
    length = float(way @ way)
    along = 0.0
    if length > 0:
        along = float(np.clip(-(start @ way) / length, 0, 1))
    return float(np.linalg.norm(start + along * way))


# --- the loss -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogisticLoss:
    """The loss of logistic regression on all training samples of a federation, ``F(w) = (1/D) sum f
    + l2 |W|^2``.

    Each sample counts alike, so ``F`` is the mean of the clients' losses weighted by their samples
    ``D_k``. Eq. 1 prints a plain mean; eq. 2, 4 and 10 weigh by samples.

    Args:
        inputs: float64 ``[D, f + 1]``, with a 1 at the end for the bias.
        labels: int64 ``[D]``.
        classes: ``M``.
        l2: weight decay of ``W``, not of the bias, as of ``mclr``; > 0.
        smoothness: ``L_1``, a bound on the largest eigenvalue of the Hessian.
    """

    inputs: Tensor
    labels: Tensor
    classes: int
    l2: float
    smoothness: float

    @classmethod
    def of(cls, population: Population, l2: float) -> LogisticLoss:
        """The loss on a population.

        Raises:
            ConfigError: for ``l2 = 0``, with which separable classes have no minimum, or samples
                that are made client by client.
        """
        if l2 <= 0:
            what = "there may be no minimum"
            raise ConfigError("out-of-range", "l2", what, found=l2, allowed="> 0")
        constants = Constants.of(population)
        held = torch.from_numpy(np.concatenate(population.train))
        return cls(
            inputs=with_bias(population.x[held]),
            labels=population.y[held],
            classes=population.classes,
            l2=l2,
            # The Hessian of l2 |W|^2 is 2 l2.
            smoothness=constants.smoothness + 2 * l2,
        )

    def value(self, model: Vector) -> float:
        """``F(w)`` in nats."""
        weights = self._weights(model)
        fit = torch.nn.functional.cross_entropy(self.inputs @ weights.T, self.labels)
        return float(fit + self.l2 * (weights[:, :-1] ** 2).sum())

    def class_gradients(self, model: Vector) -> FloatArray:
        """``grad F^m(w)`` of every class (eq. 11), float64 ``[M, d]``, each with the whole weight
        decay."""
        counts = torch.bincount(self.labels, minlength=self.classes)
        if int(counts.min()) == 0:
            missing = torch.nonzero(counts == 0)[:, 0].tolist()
            what = f"no samples of classes {missing}"
            raise ConfigError("missing", "data", what, allowed="samples of each class")
        weights = self._weights(model)
        residual = self._residual(weights)
        found = []
        for label in range(self.classes):
            mine = self.labels == label
            total = residual[mine].T @ self.inputs[mine] / counts[label]
            found.append(self._flat(total + self._decay(weights)))
        return np.stack(found)

    def gradient(self, model: Vector) -> Vector:
        """``grad F(w)``, float64 ``[d]``."""
        weights = self._weights(model)
        total = self._residual(weights).T @ self.inputs / len(self.inputs)
        return self._flat(total + self._decay(weights))

    def minimum(self, start: Vector) -> Vector:
        """``w*``, the minimum that gradient steps from a model lead to. The same number added to
        all biases changes no prediction, and gradients keep their sum, so ``w*`` has that of the
        start."""
        with starting_up():
            from scipy.optimize import minimize

        found = minimize(
            self.value,
            np.asarray(start, np.float64),
            jac=self.gradient,
            method="L-BFGS-B",
            options={
                "maxiter": _MOST_STEPS,
                "maxfun": 2 * _MOST_STEPS,
                "gtol": _TOLERANCE,
                "ftol": 0,
            },
        )
        largest = float(np.abs(self.gradient(found.x)).max())
        # Rounding ends the search a little above the tolerance.
        if largest > 1e3 * _TOLERANCE:
            what = "the minimum was not found"
            got = f"a gradient of {largest:.2g}"
            expected = "a larger l2 or smaller inputs"
            raise ConfigError("failed", "l2", what, found=got, allowed=expected)
        point: Vector = found.x
        return point

    def _residual(self, weights: Tensor) -> Tensor:
        """The derivative of each sample's loss by its outputs, ``[D, M]``."""
        chance = torch.softmax(self.inputs @ weights.T, dim=1)
        chance[torch.arange(len(self.labels)), self.labels] -= 1
        return chance

    def _decay(self, weights: Tensor) -> Tensor:
        decay = 2 * self.l2 * weights
        decay[:, -1] = 0
        return decay

    def _weights(self, model: Vector) -> Tensor:
        """A flat model as ``[M, f + 1]``, the bias last."""
        flat = torch.as_tensor(np.asarray(model, np.float64))
        features = self.inputs.shape[1] - 1
        kernel = flat[: self.classes * features].reshape(self.classes, features)
        return torch.cat([kernel, flat[self.classes * features :, None]], dim=1)

    def _flat(self, weights: Tensor) -> Vector:
        """The inverse of `_weights`."""
        flat: Vector = torch.cat([weights[:, :-1].reshape(-1), weights[:, -1]]).numpy()
        return flat
