"""A network of convolutions and dense layers: its record, room for a batch, and its outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from coterie.local.kernels.compilation import F32, I64, ZERO, compiled
from coterie.local.kernels.convolutions import conv_forward, frame
from coterie.local.kernels.dense import multiply, multiply_wide


class Layers(NamedTuple):
    """The layers of a network, convolutions first.

    Args:
        convs: ``[l, 7]``, see ``conv_forward``; the images of one are what the one before gave.
        widths: of the dense layers, from input to classes.
        decayed: of all layers in turn, which kernels have L2.
    """

    convs: I64
    widths: I64
    decayed: NDArray[np.bool_]


# The type of the record in the signatures of the kernels that Python calls.
LAYERS = numba.types.NamedTuple((numba.int64[:, ::1], numba.int64[::1], numba.boolean[::1]), Layers)


class Buffers(NamedTuple):
    """Room for a batch on its way through the layers.

    Args:
        given: what each layer is given, and last the logits: ``[b, n]`` each.
        images: what each convolution is given, in frames of zeros.
        spots: where pooled values came from, see ``max_pool``.
    """

    given: Any
    images: Any
    spots: Any


@compiled()
def make_buffers(layers: Layers, b: int) -> Buffers:
    """Room for ``b`` samples."""
    convs = layers.convs
    given = [np.zeros((b, c[0] * c[1] * c[2]), np.float32) for c in convs]
    for n in layers.widths:
        given.append(np.zeros((b, n), np.float32))
    images = [
        np.zeros((b, c[0] * (c[1] + 2 * c[3]) * (c[2] + 2 * c[3])), np.float32) for c in convs
    ]
    spots = [np.zeros(given[at + 1].shape, np.int64) for at in range(len(convs))]
    return Buffers(given, images, spots)


@compiled()
def forward(vector: F32, layers: Layers, buffers: Buffers, b: int, wide: bool) -> None:
    """From the samples in ``given[0]`` to the outputs in ``given[-1]``, ``b`` of them; ``wide``:
    with a library's products, see ``dense``."""
    convs = layers.convs
    widths = layers.widths
    given = buffers.given
    images = buffers.images
    spots = buffers.spots
    # Dense layers end the vector, so their beginning is counted from its end.
    begin = len(vector)
    seen = len(convs)
    for at in range(len(widths) - 1):
        begin -= (widths[at] + 1) * widths[at + 1]
    for at in range(seen):
        for s in range(b):
            frame(
                given[at][s],
                convs[at, 0],
                convs[at, 1],
                convs[at, 2],
                convs[at, 3],
                images[at][s],
                False,
            )
        conv_forward(vector, convs[at], images[at][:b], given[at + 1][:b], spots[at][:b])
    for at in range(len(widths) - 1):
        i = widths[at]
        o = widths[at + 1]
        z = given[seen + at + 1][:b]
        kernel = vector[begin : begin + o * i].reshape(o, i)
        bias = vector[begin + o * i : begin + o * (i + 1)]
        if wide:
            multiply_wide(given[seen + at][:b], kernel, bias, z)
        else:
            multiply(given[seen + at][:b], kernel, bias, z)
        begin += o * (i + 1)
        if at < len(widths) - 2:
            for s in range(b):
                for f in range(o):
                    z[s, f] = max(z[s, f], ZERO)
