"""A network of convolutions and dense layers: its record, room for a batch, and its outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from coterie.local.kernels.compilation import F32, I64, ZERO, compiled
from coterie.local.kernels.convolutions import conv_forward, frame
from coterie.local.kernels.dense import multiply, multiply_wide
from coterie.local.kernels.inner_loops import rows_of_zeros


class Layers(NamedTuple):
    """The layers of a network, convolutions first.

    Args:
        convs: ``[l, 7]``, see ``conv_forward``; the images of one are what the one before gave.
            ``None`` in a network without: code for it has no convolutions, and compiles sooner.
        widths: the widths of the dense layers, from input to classes.
        decayed: for each layer in turn, whether its kernel has L2.
    """

    convs: I64 | None
    widths: I64
    decayed: NDArray[np.bool_]


# The types of the record in the signatures of the kernels that Python calls.
_REST = (numba.int64[::1], numba.boolean[::1])
CONV_LAYERS = numba.types.NamedTuple((numba.int64[:, ::1], *_REST), Layers)
DENSE_LAYERS = numba.types.NamedTuple((numba.none, *_REST), Layers)


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
def conv_count(convs: I64 | None) -> int:
    """How many convolutions there are."""
    # In each function that is given `None`, what follows such a test is not compiled.
    if convs is None:
        return 0
    return len(convs)


@compiled()
def image_sizes(convs: I64 | None) -> tuple[I64, I64]:
    """How many values the images have that each convolution is given, without their frames and
    with them."""
    if convs is None:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    bare = np.empty(len(convs), np.int64)
    framed = np.empty(len(convs), np.int64)
    for at in range(len(convs)):
        channels, height, width, pad = convs[at, :4]
        bare[at] = channels * height * width
        framed[at] = channels * (height + 2 * pad) * (width + 2 * pad)
    return bare, framed


@compiled()
def make_buffers(layers: Layers, b: int) -> Buffers:
    """Room for ``b`` samples."""
    convs = layers.convs
    bare, framed = image_sizes(convs)
    given = [rows_of_zeros(b, n) for n in bare]
    for n in layers.widths:
        given.append(rows_of_zeros(b, n))
    images = [rows_of_zeros(b, n) for n in framed]
    spots = [np.zeros(given[at + 1].shape, np.int64) for at in range(conv_count(convs))]
    return Buffers(given, images, spots)


@compiled()
def forward_convs(vector: F32, convs: I64 | None, buffers: Buffers, b: int) -> None:
    """From the samples in ``given[0]`` to what the last convolution gives, ``b`` of them."""
    if convs is None:
        return
    given = buffers.given
    images = buffers.images
    for at in range(len(convs)):
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
        conv_forward(vector, convs[at], images[at][:b], given[at + 1][:b], buffers.spots[at][:b])


@compiled()
def multiply_by(wide: bool, h: F32, w: F32, bias: F32, out: F32) -> None:
    """``multiply``, or ``multiply_wide``."""
    if wide:
        multiply_wide(h, w, bias, out)
    else:
        multiply(h, w, bias, out)


@compiled()
def forward(vector: F32, layers: Layers, buffers: Buffers, b: int, wide: bool | None) -> None:
    """From the samples in ``given[0]`` to the outputs in ``given[-1]``, ``b`` of them. ``wide``:
    with a library's products, see ``dense``; code for ``None`` has no library, and compiles sooner.
    """
    convs = layers.convs
    widths = layers.widths
    given = buffers.given
    # Dense layers end the vector, so their beginning is counted from its end.
    begin = len(vector)
    seen = conv_count(convs)
    for at in range(len(widths) - 1):
        begin -= (widths[at] + 1) * widths[at + 1]
    forward_convs(vector, convs, buffers, b)
    for at in range(len(widths) - 1):
        i = widths[at]
        o = widths[at + 1]
        z = given[seen + at + 1][:b]
        kernel = vector[begin : begin + o * i].reshape(o, i)
        bias = vector[begin + o * i : begin + o * (i + 1)]
        if wide is None:
            multiply(given[seen + at][:b], kernel, bias, z)
        else:
            multiply_by(wide, given[seen + at][:b], kernel, bias, z)
        begin += o * (i + 1)
        if at < len(widths) - 2:
            for s in range(b):
                for f in range(o):
                    z[s, f] = max(z[s, f], ZERO)
