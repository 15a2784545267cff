"""A client's whole training in one call."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from coterie.local.kernels.compilation import F32, I64, ONE, ZERO, Real, compiled
from coterie.local.kernels.losses import errors
from coterie.local.kernels.network import LAYERS, Layers, forward, make_buffers
from coterie.local.kernels.sgd import SGD, Descent, Sgd, backward

_F4 = numba.float32
_I8 = numba.int64


class Batches(NamedTuple):
    """The samples of a training, one after another.

    Args:
        order: of all passes, the rows of samples.
        ends: where each pass ends in ``order``.
        size: samples a step; the last step of a pass may have fewer.
    """

    order: I64
    ends: I64
    size: int


# The type of the record in the signatures of the kernels that Python calls.
BATCHES = numba.types.NamedTuple((_I8[::1], _I8[::1], _I8), Batches)


@compiled(_F4(_F4[::1], _F4[::1], LAYERS, _F4[:, ::1], _I8[::1], BATCHES, SGD))
def descend(
    vector: F32, start: F32, layers: Layers, x: F32, y: I64, batches: Batches, sgd: Sgd
) -> Real:
    """Local SGD; changes ``vector`` in place and returns the summed loss of the last pass.

    One call is a client's whole training, so that taking the records apart, some microseconds, is
    little beside it.

    Args:
        vector: ``[d]``, kernel and bias of each layer in turn.
        start: ``[d]``, what the proximal term pulls to.
        layers: the network.
        x: ``[n, i]``.
        y: ``[n]``.
        batches: of all passes.
        sgd: the rule of a step.
    """
    order = batches.order
    ends = batches.ends
    most = min(batches.size, len(x))
    buffers = make_buffers(layers, most)
    given = buffers.given
    # The gradient of each layer's input; that of the samples themselves is not needed.
    wanted = [
        np.empty((most, given[at].shape[1] * (at > 0)), np.float32) for at in range(len(given))
    ]
    labels = np.empty(most, np.int64)
    # Without momentum a layer is changed in place as soon as its errors are handed down. The
    # velocity is empty then, so that the loops over it do nothing.
    velocity = np.zeros(len(vector) if sgd.momentum else 0, np.float32)
    out, rate = (velocity, ONE) if sgd.momentum else (vector, -sgd.lr)
    descent = Descent(vector, start, out, rate, sgd.l2, sgd.mu)
    loss = ZERO
    first = 0
    turn = 0
    while first < len(order):
        b = min(batches.size, ends[turn] - first)
        for s in range(b):
            labels[s] = y[order[first + s]]
            given[0][s] = x[order[first + s]]
        forward(vector, layers, buffers, b)
        # Softmax and error overwrite the logits, which are not needed again. The loss counts only
        # in the last pass, whose mean is what a client reports.
        loss += errors(given[-1][:b], labels, turn == len(ends) - 1)
        for f in range(len(velocity)):
            velocity[f] *= sgd.momentum
        backward(descent, layers, buffers, wanted, b, rate / np.float32(b))
        for f in range(len(velocity)):
            vector[f] -= sgd.lr * velocity[f]
        first += b
        turn += first == ends[turn]
    return loss
