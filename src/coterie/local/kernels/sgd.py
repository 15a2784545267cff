"""A step of SGD for every layer of a network, the last one first."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from coterie.local.kernels.compilation import F32, I64, ONE, ZERO, Real, compiled, inlined
from coterie.local.kernels.convolutions import conv_backward
from coterie.local.kernels.dense import accumulate
from coterie.local.kernels.network import Buffers, Layers, conv_count


class Sgd(NamedTuple):
    """The values of `coterie.local.training.optimizers.SgdStep`, float32 each."""

    lr: Real
    momentum: Real
    l2: Real
    mu: Real


# The type of the record in the signatures of the kernels that Python calls.
SGD = numba.types.NamedUniTuple(numba.float32, 4, Sgd)


class Descent(NamedTuple):
    """What the layers' steps have in common.

    Args:
        vector: ``[d]``, the model.
        start: ``[d]``, what the proximal term pulls to.
        out: where steps go: into ``vector`` itself, or with momentum into the velocity.
        rate: what the gradient of a step is multiplied by on its way into ``out``.
        l2: L2 coefficient of the kernels that decay.
        mu: weight of the proximal term.
        constant: ``[d]``, added to every gradient; empty for nothing.
    """

    vector: F32
    start: F32
    out: F32
    rate: Real
    l2: Real
    mu: Real
    constant: F32


# The type of the record in the signature of `dense_step`.
_F4 = numba.float32
_DESCENT = numba.types.NamedTuple((_F4[::1], _F4[::1], _F4[::1], _F4, _F4, _F4, _F4[::1]), Descent)


@inlined
def regularise(descent: Descent, begin: int, end: int, decays: bool) -> None:
    """L2, where the values decay, the proximal term and the constant of a step:
    ``out <- out + rate (2 l2 w + mu (w - w_start) + c)``."""
    out = descent.out
    vector = descent.vector
    start = descent.start
    rate = descent.rate
    mu = descent.mu
    l2 = descent.l2 if decays else ZERO
    if mu or l2:
        for f in range(begin, end):
            out[f] += rate * (2 * l2 * vector[f] + mu * (vector[f] - start[f]))
    constant = descent.constant
    if len(constant):
        for f in range(begin, end):
            out[f] += rate * constant[f]


@compiled(
    numba.void(_DESCENT, numba.int64, numba.boolean, _F4[:, ::1], _F4[:, ::1], _F4[:, ::1], _F4)
)
def dense_step(
    descent: Descent, end: int, decays: bool, h: F32, delta: F32, below: F32, share: Real
) -> None:
    """Pass the errors ``delta [b, o]`` of the dense layer that ends at ``end`` down to ``below``
    (``[b, 0]``: not needed), then change the layer. ``share``: the rate over the batch's samples.
    """
    b, i = h.shape
    o = delta.shape[1]
    begin = end - o * (i + 1)
    kernel_end = begin + o * i
    out = descent.out
    kernel = descent.vector[begin:kernel_end].reshape(o, i)
    bias = out[kernel_end:end]
    # First down, then the step: without momentum the step changes the kernel in place.
    if below.shape[1]:
        below[:] = 0
        accumulate(ONE, delta.T, kernel, below)
        for s in range(b):
            for f in range(i):
                if h[s, f] <= 0:
                    below[s, f] = 0
    regularise(descent, begin, kernel_end, decays)
    regularise(descent, kernel_end, end, False)
    accumulate(share, delta, h, out[begin:kernel_end].reshape(o, i))
    for s in range(b):
        for f in range(o):
            bias[f] += share * delta[s, f]


@compiled()
def conv_step(descent: Descent, conv: I64, decays: bool, gradient: F32, share: Real) -> None:
    """Change a convolution."""
    begin = conv[6]
    end = begin + len(gradient)
    kernel_end = end - conv[5]
    regularise(descent, begin, kernel_end, decays)
    regularise(descent, kernel_end, end, False)
    out = descent.out
    for f in range(len(gradient)):
        out[begin + f] += share * gradient[f]


@compiled()
def conv_steps(
    descent: Descent,
    layers: Layers,
    convs: I64 | None,
    buffers: Buffers,
    wanted: Any,
    b: int,
    share: Real,
) -> None:
    """A step of every convolution, the last one first; arguments as of `backward`."""
    if convs is None:
        return
    vector = descent.vector
    for at in range(len(convs) - 1, -1, -1):
        conv = convs[at]
        images = buffers.images[at][:b]
        spots = buffers.spots[at][:b]
        # The kernel's gradient, of c k^2 values for each of o channels, and that of its bias.
        gradient = np.empty(conv[5] * (conv[0] * conv[4] * conv[4] + 1), np.float32)
        conv_backward(vector, conv, images, wanted[at + 1][:b], spots, wanted[at][:b], gradient)
        conv_step(descent, conv, layers.decayed[at], gradient, share)


@inlined
def backward(
    descent: Descent, layers: Layers, buffers: Buffers, wanted: Any, b: int, share: Real
) -> None:
    """From the errors of the logits in ``given[-1]`` to a step of every layer, the last one first.
    ``wanted``: as for `gradients`; ``share``: the rate divided by ``b``."""
    convs = layers.convs
    widths = layers.widths
    decayed = layers.decayed
    seen = conv_count(convs)
    end = len(descent.vector)
    delta = buffers.given[-1][:b]
    for at in range(len(widths) - 2, -1, -1):
        h = buffers.given[seen + at][:b]
        below = wanted[seen + at][:b]
        dense_step(descent, end, decayed[seen + at], h, delta, below, share)
        end -= widths[at + 1] * (widths[at] + 1)
        delta = below
    conv_steps(descent, layers, convs, buffers, wanted, b, share)
