"""The gradient of a batch loss for every parameter, the last layer first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.local.kernels.compilation import F32, I64, ONE, ZERO, compiled, inlined
from coterie.local.kernels.convolutions import conv_backward
from coterie.local.kernels.dense import accumulate, hand_down_wide, slope_wide
from coterie.local.kernels.network import Buffers, Layers, conv_count
from coterie.local.kernels.rules import Rule, TrainingState, penalise_span


@compiled()
def dense_gradient(
    training: TrainingState, end: int, h: F32, delta: F32, below: F32, wide: bool
) -> int:
    """The gradient of the dense layer that ends at ``end``, and of its input if ``below`` has room;
    returns where the layer begins."""
    b, i = h.shape
    o = delta.shape[1]
    begin = end - o * (i + 1)
    kernel_end = begin + o * i
    kernel = training.vector[begin:kernel_end].reshape(o, i)
    slope = training.gradient[begin:kernel_end].reshape(o, i)
    bias = training.gradient[kernel_end:end]
    # Nothing trains below the first layer, so its inputs need no gradient: their room is empty.
    if below.shape[1]:
        if wide:
            hand_down_wide(delta, kernel, below)
        else:
            below[:] = 0
            accumulate(ONE, delta.T, kernel, below)
        # The relu of the layer below lets a gradient through where its output was not cut to zero.
        for s in range(b):
            for f in range(i):
                below[s, f] = below[s, f] if h[s, f] > 0 else ZERO
    if wide:
        slope_wide(delta, h, slope)
    else:
        slope[:] = 0
        accumulate(ONE, delta, h, slope)
    # Written out: a sum over an axis would make a new array in every step.
    bias[:] = 0
    for s in range(b):
        for f in range(o):
            bias[f] += delta[s, f]
    return begin


@compiled()
def conv_gradient(
    training: TrainingState, conv: I64, images: F32, delta: F32, spots: I64, below: F32
) -> None:
    """The gradient of a convolution, and of its images; arguments as of ``conv_backward``."""
    begin = conv[6]
    end = begin + conv[5] * (conv[0] * conv[4] * conv[4] + 1)
    gradient = training.gradient[begin:end]
    conv_backward(training.vector, conv, images, delta, spots, below, gradient)


@compiled()
def conv_gradients(
    training: TrainingState, convs: I64 | None, buffers: Buffers, wanted: Any, b: int
) -> None:
    """The gradient of every convolution, the last one first; arguments as of `gradients`."""
    if convs is None:
        return
    for at in range(len(convs) - 1, -1, -1):
        images = buffers.images[at][:b]
        spots = buffers.spots[at][:b]
        conv_gradient(training, convs[at], images, wanted[at + 1][:b], spots, wanted[at][:b])


@inlined
def gradients(
    training: TrainingState, layers: Layers, buffers: Buffers, wanted: Any, b: int, wide: bool
) -> None:
    """From the errors of the outputs in ``given[-1]``, divided by ``b``, to the gradient of the
    batch loss. ``wanted``: room for the gradient of each layer's input, ``[b, n]``, or ``[b, 0]``
    if it is not needed."""
    convs = layers.convs
    widths = layers.widths
    seen = conv_count(convs)
    # Layers lie in the vector in the order of the network, so the last one ends with it.
    end = len(training.vector)
    delta = buffers.given[-1][:b]
    for at in range(len(widths) - 2, -1, -1):
        h = buffers.given[seen + at][:b]
        below = wanted[seen + at][:b]
        end = dense_gradient(training, end, h, delta, below, wide)
        delta = below
    conv_gradients(training, convs, buffers, wanted, b)


@compiled()
def penalise_convs(
    training: TrainingState, rule: Rule, convs: I64 | None, decayed: NDArray[np.bool_]
) -> int:
    """L2 and the proximal term of every convolution; returns where the last one ends."""
    begin = 0
    if convs is None:
        return begin
    for at in range(len(convs)):
        conv = convs[at]
        biases = conv[5]
        kernel = biases * conv[0] * conv[4] * conv[4]
        penalise_span(training, rule, begin, begin + kernel, decayed[at])
        # The proximal term pulls at biases, too; only L2 leaves them out.
        penalise_span(training, rule, begin + kernel, begin + kernel + biases, False)
        begin += kernel + biases
    return begin


@compiled()
def penalise(training: TrainingState, rule: Rule, layers: Layers) -> None:
    """L2 and the proximal term, layer by layer: L2 is of kernels, not of biases."""
    widths = layers.widths
    seen = conv_count(layers.convs)
    begin = penalise_convs(training, rule, layers.convs, layers.decayed)
    for at in range(len(widths) - 1):
        biases = widths[at + 1]
        kernel = biases * widths[at]
        penalise_span(training, rule, begin, begin + kernel, layers.decayed[seen + at])
        penalise_span(training, rule, begin + kernel, begin + kernel + biases, False)
        begin += kernel + biases
