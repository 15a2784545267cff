"""A client's whole training in one call, and the gradient of one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np

from coterie.local.kernels.compilation import F32, I64, ONE, ZERO, Real, compiled, on_demand
from coterie.local.kernels.convolutions import conv_backward
from coterie.local.kernels.dense import WIDE
from coterie.local.kernels.gradient import gradients, penalise
from coterie.local.kernels.inner_loops import copy_row, rows_of_zeros, zeros
from coterie.local.kernels.network import DENSE_LAYERS, Layers, forward, make_buffers
from coterie.local.kernels.rules import ADAM_RULE, RULE, TRAINING, Rule, TrainingState, update
from coterie.local.kernels.sgd import SGD, Descent, Sgd, backward, dense_step

_F4 = numba.float32
_I8 = numba.int64


@compiled("f4(f4[:, ::1], i8[::1], b1)", in_order=True)
def errors(z: F32, y: I64, record: bool) -> Real:
    """``z <- softmax(z) - onehot(y)``, the gradient of the cross-entropy; returns the summed
    cross-entropy of the logits where it is to be recorded, else 0."""
    # Sums are taken in order: this one is compiled into its callers too, and reordered sums there
    # need not be reordered as they are here, so that a loss would depend on the caller.
    loss = ZERO
    for s in range(len(z)):
        row = z[s]
        # The largest logit is taken off first, since the exponential of 89 is beyond float32.
        top = row[0]
        for o in range(1, len(row)):
            top = max(top, row[o])
        label = row[y[s]] - top
        total = ZERO
        for o in range(len(row)):
            row[o] = np.exp(row[o] - top)
            total += row[o]
        for o in range(len(row)):
            row[o] /= total
        if record:
            loss += np.log(total) - label
        row[y[s]] -= ONE
    return loss


@compiled(in_order=True)
def squared_errors(z: F32, y: F32, record: bool) -> Real:
    """``z <- 2 (z - y) / t``, the gradient of the mean squared error of each sample's ``t`` targets;
    returns its sum over samples where it is to be recorded, else 0."""
    loss = ZERO
    targets = np.float32(y.shape[1])
    for s in range(len(z)):
        squares = ZERO
        for o in range(z.shape[1]):
            error = z[s, o] - y[s, o]
            squares += error * error
            z[s, o] = 2 * error / targets
        if record:
            loss += squares / targets
    return loss


class Batches(NamedTuple):
    """The samples of a training, one after another.

    Args:
        order: the rows of samples, for all passes in turn.
        ends: where each pass ends in ``order``.
        size: samples a step; the last step of a pass may have fewer.
    """

    order: I64
    ends: I64
    size: int


# The type of the record in the signatures of the kernels that Python calls.
BATCHES = numba.types.NamedTuple((_I8[::1], _I8[::1], _I8), Batches)


class Pulls(NamedTuple):
    """What is added to the gradient of every step of a training.

    Args:
        start: ``[d]``, what the proximal term pulls to.
        constant: ``[d]``, added as it is; empty for nothing.
    """

    start: F32
    constant: F32


PULLS = numba.types.NamedUniTuple(_F4[::1], 2, Pulls)


@compiled()
def room_for_gradients(given: Any, most: int) -> Any:
    """Room for the gradient of what each layer is given, ``[most, n]`` each. That of the samples
    themselves is not needed, and has no values."""
    return [rows_of_zeros(most, given[at].shape[1] * (at > 0)) for at in range(len(given))]


def _only_for_training(layers: Any) -> Sequence[Any]:
    """What `descend` calls, and `score` does not."""
    if layers == DENSE_LAYERS:
        return dense_step, errors
    return conv_backward, dense_step, errors


@on_demand(
    lambda layers: _F4(_F4[::1], PULLS, layers, _F4[:, ::1], _I8[::1], BATCHES, SGD),
    first=_only_for_training,
)
def descend(
    vector: F32, pulls: Pulls, layers: Layers, x: F32, y: I64, batches: Batches, sgd: Sgd
) -> Real:
    """Local SGD; changes ``vector`` in place and returns the summed loss of the last pass.

    One call is a client's whole training, so that unpacking the records, some microseconds, hardly
    counts.
    """
    order = batches.order
    ends = batches.ends
    most = min(batches.size, len(x))
    buffers = make_buffers(layers, most)
    given = buffers.given
    inputs = given[0]
    logits = given[-1]
    wanted = room_for_gradients(given, most)
    labels = np.empty(most, np.int64)
    # Without momentum a layer is changed in place as soon as its errors are handed down. The
    # velocity is empty then, so that the loops over it do nothing.
    velocity = zeros(len(vector) if sgd.momentum else 0)
    out, rate = (velocity, ONE) if sgd.momentum else (vector, -sgd.lr)
    descent = Descent(vector, pulls.start, out, rate, sgd.l2, sgd.mu, pulls.constant)
    loss = ZERO
    first = 0
    turn = 0
    while first < len(order):
        b = min(batches.size, ends[turn] - first)
        for s in range(b):
            labels[s] = y[order[first + s]]
            copy_row(x[order[first + s]], inputs[s])
        forward(vector, layers, buffers, b, None)
        # Softmax and error overwrite the logits, which are not needed again. The loss counts only
        # in the last pass, whose mean is what a client reports.
        loss += errors(logits[:b], labels, turn == len(ends) - 1)
        for f in range(len(velocity)):
            velocity[f] *= sgd.momentum
        backward(descent, layers, buffers, wanted, b, rate / np.float32(b))
        for f in range(len(velocity)):
            vector[f] -= sgd.lr * velocity[f]
        first += b
        turn += first == ends[turn]
    return loss


class Targets(NamedTuple):
    """What a network learns: labels of classes, or numbers.

    Args:
        labels: ``[n]`` of a cross-entropy, else empty.
        numbers: ``[n, t]`` of a squared error, else ``[n, 0]``.
    """

    labels: I64
    numbers: F32


TARGETS = numba.types.NamedTuple((_I8[::1], _F4[:, ::1]), Targets)


@compiled()
def output_errors(z: F32, targets: Targets, rows: I64, record: bool) -> Real:
    """From outputs to the gradient of the mean loss of the batch, in place; returns the summed loss
    where it is to be recorded, else 0."""
    if len(targets.labels):
        labels = np.empty(len(rows), np.int64)
        for s in range(len(rows)):
            labels[s] = targets.labels[rows[s]]
        loss = errors(z, labels, record)
    else:
        numbers = np.empty((len(rows), targets.numbers.shape[1]), np.float32)
        for s in range(len(rows)):
            copy_row(targets.numbers[rows[s]], numbers[s])
        loss = squared_errors(z, numbers, record)
    # Here and not at each parameter, of which there are far more.
    share = ONE / np.float32(len(rows))
    for s in range(len(z)):
        for o in range(z.shape[1]):
            z[s, o] *= share
    return loss


@on_demand(lambda layers: _F4(_F4[::1], PULLS, layers, _F4[:, ::1], TARGETS, BATCHES, RULE))
def descend_by_rule(
    vector: F32,
    pulls: Pulls,
    layers: Layers,
    x: F32,
    targets: Targets,
    batches: Batches,
    rule: Rule,
) -> Real:
    """As `descend`, by an optimiser that takes the whole gradient at once.

    Large batches are multiplied by a library, small ones by the loops of ``inner_loops``.
    """
    order = batches.order
    ends = batches.ends
    most = min(batches.size, len(x))
    buffers = make_buffers(layers, most)
    given = buffers.given
    wanted = room_for_gradients(given, most)
    moments = len(vector) if rule.kind == ADAM_RULE else 0
    training = TrainingState(
        vector, pulls.start, zeros(len(vector)), zeros(len(vector)), zeros(moments)
    )
    constant = pulls.constant
    loss = ZERO
    first = 0
    turn = 0
    step = 0
    while first < len(order):
        b = min(batches.size, ends[turn] - first)
        rows = order[first : first + b]
        wide = b >= WIDE
        for s in range(b):
            copy_row(x[rows[s]], given[0][s])
        forward(vector, layers, buffers, b, wide)
        loss += output_errors(given[-1][:b], targets, rows, turn == len(ends) - 1)
        gradients(training, layers, buffers, wanted, b, wide)
        penalise(training, rule, layers)
        for f in range(len(constant)):
            training.gradient[f] += constant[f]
        update(training, rule, step)
        first += b
        turn += first == ends[turn]
        step += 1
    return loss


@on_demand(lambda layers: _F4(TRAINING, layers, _F4[:, ::1], TARGETS, RULE))
def batch_gradient(
    training: TrainingState, layers: Layers, x: F32, targets: Targets, rule: Rule
) -> Real:
    """The gradient of the mean loss of a batch, with those of L2 and of the proximal term, into
    ``training.gradient``; returns the summed loss. Of ``rule`` only the two weights are read."""
    b = len(x)
    wide = b >= WIDE
    buffers = make_buffers(layers, b)
    given = buffers.given
    for s in range(b):
        copy_row(x[s], given[0][s])
    wanted = room_for_gradients(given, b)
    forward(training.vector, layers, buffers, b, wide)
    loss = output_errors(given[-1], targets, np.arange(b), True)
    gradients(training, layers, buffers, wanted, b, wide)
    penalise(training, rule, layers)
    return loss
