"""The loss of logistic regression with weight decay over a whole federation: its minimum, and the
gradient of each class.

No run uses it. It is for users who compare a run with RFedAvg's bound of convergence:
`coterie.measures.imbalance_bound` takes the minimum, the gradients and the smoothness from here.
Equations are those of that paper, see there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import FloatArray
from coterie.data.population import Population
from coterie.errors import ConfigError
from coterie.measures.theory import Constants, with_bias

Vector = FloatArray

# Of the gradient's largest entry at the minimum that is found.
_TOLERANCE = 1e-9
_MOST_STEPS = 20_000


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

        Args:
            population: whose training samples count, each as often as clients hold it.
            l2: weight decay, as of `coterie.Solver`.

        Raises:
            ConfigError: for ``l2 = 0``, with which separable classes have no minimum, or samples
                that are made client by client.

        Example:
            >>> p = Population(
            ...     torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1]), ([0], [1]), ([], []), 2
            ... )
            >>> loss = LogisticLoss.of(p, l2=0.1)
            >>> minimum = loss.minimum(np.zeros(4))
            >>> float(np.abs(loss.gradient(minimum)).max()) < 1e-8
            True
        """
        if l2 <= 0:
            raise ConfigError(f"l2: no minimum is sure to exist, got {l2}; expected > 0")
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
        """``F(w)`` in nats.

        Args:
            model: ``[d]``, weights ``[M, f]`` row by row and then the bias ``[M]``, as of ``mclr``.
        """
        weights = self._weights(model)
        fit = torch.nn.functional.cross_entropy(self.inputs @ weights.T, self.labels)
        return float(fit + self.l2 * (weights[:, :-1] ** 2).sum())

    def class_gradients(self, model: Vector) -> FloatArray:
        """``grad F^m(w)`` of every class (eq. 11), float64 ``[M, d]``.

        Each has the gradient of the whole weight decay in it.

        Args:
            model: see `value`.

        Raises:
            ConfigError: if a class has no samples.
        """
        counts = torch.bincount(self.labels, minlength=self.classes)
        if int(counts.min()) == 0:
            missing = torch.nonzero(counts == 0)[:, 0].tolist()
            raise ConfigError(f"data: no samples of classes {missing}; expected some of each class")
        weights = self._weights(model)
        residual = self._residual(weights)
        found = []
        for label in range(self.classes):
            mine = self.labels == label
            total = residual[mine].T @ self.inputs[mine] / counts[label]
            found.append(self._flat(total + self._decay(weights)))
        return np.stack(found)

    def gradient(self, model: Vector) -> Vector:
        """``grad F(w)``, float64 ``[d]``.

        Args:
            model: see `value`.
        """
        weights = self._weights(model)
        total = self._residual(weights).T @ self.inputs / len(self.inputs)
        return self._flat(total + self._decay(weights))

    def minimum(self, start: Vector) -> Vector:
        """``w*``, the minimum that gradient steps from a model lead to.

        The same number added to all biases changes no prediction. Gradients keep the sum of the
        biases, so ``w*`` has that of the start.

        Args:
            start: see `value`.

        Raises:
            ConfigError: if it is not found in 20,000 steps.
        """
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
            raise ConfigError(
                f"l2: the minimum was not found, got a gradient of {largest:.2g}; "
                "expected a larger l2 or smaller inputs"
            )
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
