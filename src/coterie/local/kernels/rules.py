"""What a gradient does to the parameters: SGD with momentum, and Adam, in one pass over all of
them."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from coterie.local.kernels.compilation import F32, ONE, ZERO, Real, compiled

SGD_RULE = 0
ADAM_RULE = 1


class Rule(NamedTuple):
    """An optimiser, see `coterie.local.training.optimizers.TorchStep`; float32 but for the two factors
    of averages, whose distances from 1 have too few digits there.

    Args:
        kind: `SGD_RULE` or `ADAM_RULE`.
        lr: ``[T]``, the learning rate of each step.
        first: momentum of SGD, or ``beta_1`` of Adam.
        second: ``beta_2`` of Adam.
    """

    kind: int
    lr: F32
    first: Real
    second: Real
    eps: Real
    l2: Real
    mu: Real
    decay: Real


_F4 = numba.float32
# The type of the record in the signatures of the kernels that Python calls.
RULE = numba.types.NamedTuple(
    (numba.int64, _F4[::1], numba.float64, numba.float64, _F4, _F4, _F4, _F4), Rule
)


class TrainingState(NamedTuple):
    """What steps change, and what they need for it; ``[d]`` each.

    Args:
        vector: the model.
        start: what the proximal term pulls to.
        gradient: gradient of the batch loss.
        first: velocity of SGD, first moments of Adam.
        second: second moments of Adam, empty for SGD.
    """

    vector: F32
    start: F32
    gradient: F32
    first: F32
    second: F32


TRAINING = numba.types.NamedUniTuple(_F4[::1], 5, TrainingState)


@compiled()
def penalise_span(training: TrainingState, rule: Rule, begin: int, end: int, decays: bool) -> None:
    """``g <- g + 2 l2 w + mu (w - w_start)`` for parameters ``begin`` to ``end``, with L2 only
    where they decay."""
    g = training.gradient
    w = training.vector
    start = training.start
    mu = rule.mu
    l2 = rule.l2 if decays else ZERO
    if mu or l2:
        for f in range(begin, end):
            g[f] += 2 * l2 * w[f] + mu * (w[f] - start[f])


@compiled()
def update(training: TrainingState, rule: Rule, step: int) -> None:
    """One step of all parameters; ``step`` counts from 0."""
    if rule.kind == ADAM_RULE:
        adam_update(training, rule, step)
    else:
        sgd_update(training, rule, step)


@compiled()
def sgd_update(training: TrainingState, rule: Rule, step: int) -> None:
    """``v <- momentum v + g``, ``w <- (1 - lr decay) w - lr v``."""
    g = training.gradient
    w = training.vector
    v = training.first
    lr = rule.lr[step]
    kept = ONE - lr * rule.decay
    momentum = np.float32(rule.first)
    for f in range(len(w)):
        v[f] = momentum * v[f] + g[f]
        w[f] = kept * w[f] - lr * v[f]


@compiled()
def adam_update(training: TrainingState, rule: Rule, step: int) -> None:
    """Adam's step ``t``, from 1, with decoupled decay:

        m <- beta_1 m + (1 - beta_1) g,   v <- beta_2 v + (1 - beta_2) g^2
        w <- (1 - lr decay) w - lr / (1 - beta_1^t) m / (sqrt(v / (1 - beta_2^t)) + eps)

    One pass: what a parameter needs is read once and written once, since at some hundred thousand
    parameters the step is bound by memory.
    """
    g = training.gradient
    w = training.vector
    m = training.first
    v = training.second
    lr = rule.lr[step]
    kept = ONE - lr * rule.decay
    first = np.float32(rule.first)
    second = np.float32(rule.second)
    one_less_first = np.float32(1.0 - rule.first)
    one_less_second = np.float32(1.0 - rule.second)
    rate = np.float32(lr / (1.0 - rule.first ** (step + 1)))
    root = np.float32(1.0 / np.sqrt(1.0 - rule.second ** (step + 1)))
    eps = rule.eps
    for f in range(len(w)):
        slope = g[f]
        mean = first * m[f] + one_less_first * slope
        square = second * v[f] + one_less_second * slope * slope
        m[f] = mean
        v[f] = square
        w[f] = kept * w[f] - rate * mean / (np.sqrt(square) * root + eps)
