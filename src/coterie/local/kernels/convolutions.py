"""Convolutions of stride 1 behind a relu and pooling, forward and backward.

Images lie row after row in one run of values, in frames of zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.local.kernels.compilation import F32, I64, ZERO, compiled, inlined
from coterie.local.kernels.inner_loops import (
    add_five,
    add_to_one,
    add_to_two,
    five_rows,
    one_sum,
    ten_sums,
    two_sums,
)


@compiled("void(f4[:, ::1], i8, i8, i8, f4[::1], i8[::1])")
def max_pool(z: F32, width: int, down: int, across: int, out: F32, spots: I64) -> None:
    """``out = relu(maxpool(z))`` over squares of two. ``z [o, n]`` has rows of ``width`` side by
    side, ``out`` is ``[o down across]``. ``spots``: where each value came from, -1 where nothing
    passed."""
    at = 0
    for o in range(len(z)):
        image = z[o]
        for y in range(down):
            for x in range(across):
                spot = 2 * y * width + 2 * x
                best = image[spot]
                # A NaN wins, as in torch: what diverged must be seen to have diverged.
                for other in (spot + 1, spot + width, spot + width + 1):
                    if image[other] > best or np.isnan(image[other]):
                        best = image[other]
                        spot = other
                nothing = best <= 0
                out[at] = ZERO if nothing else best
                spots[at] = -1 if nothing else spot
                at += 1


@compiled()
def spread_errors(delta: F32, spots: I64, rows: I64, spread: F32, bias: F32) -> None:
    """The backward pass of ``max_pool``: each pooled value passes its error to the place that it
    came from. The error of all other places is 0; ``bias [o]`` gets the sum of each channel's
    errors."""
    spread[:] = 0
    cells = len(delta) // len(rows)
    for o in range(len(rows)):
        for at in range(o * cells, (o + 1) * cells):
            if spots[at] >= 0:
                spread[rows[o] + spots[at]] = delta[at]
                bias[o] += delta[at]


@inlined
def five_runs(x: F32, taps: I64, t: int, n: int) -> Any:
    """The image as taps ``t`` to ``t + 4`` of a kernel see it, ``n`` values each."""
    return (
        x[taps[t] :][:n],
        x[taps[t + 1] :][:n],
        x[taps[t + 2] :][:n],
        x[taps[t + 3] :][:n],
        x[taps[t + 4] :][:n],
    )


@compiled("void(f4[:, ::1], f4[::1], i8[::1], f4[:, ::1])")
def convolve(w: F32, x: F32, taps: I64, out: F32) -> None:
    """``out[o, p] += sum_t w[o, t] x[taps[t] + p]``.

    A convolution of stride 1 over images that lie row after row in ``x``. Every tap of the kernel
    multiplies the same image, begun at another place, so that the inner loop is one long run over
    neighbouring values and needs no test for the end of a row. Places ``p`` that would straddle
    two rows are computed too, and never read.
    """
    outputs, n = out.shape
    # Five taps at once, so that the sums pass through the registers once for five products.
    fives = len(taps) - len(taps) % 5
    twos = outputs - outputs % 2
    for o in range(0, twos, 2):
        z0 = out[o]
        z1 = out[o + 1]
        for t in range(0, fives, 5):
            a = five_rows(w[o], t)
            c = five_rows(w[o + 1], t)
            add_five(z0, z1, a, c, five_runs(x, taps, t, n), n)
        for t in range(fives, len(taps)):
            add_to_two(z0, z1, w[o, t], w[o + 1, t], x[taps[t] :][:n], n)
    for o in range(twos, outputs):
        for t in range(len(taps)):
            add_to_one(out[o], w[o, t], x[taps[t] :][:n], n)


@compiled("void(f4[::1], i8[::1], i8, f4[::1], i8[::1], f4[:, ::1])")
def correlate(delta: F32, rows: I64, n: int, x: F32, taps: I64, out: F32) -> None:
    """``out[o, t] += sum_p delta[rows[o] + p] x[taps[t] + p]``, ``p < n``: the gradient of a
    convolution's kernel."""
    # Places that straddle two rows add nothing, since their errors are zero.
    fives = len(taps) - len(taps) % 5
    twos = len(rows) - len(rows) % 2
    for o in range(0, twos, 2):
        d0 = delta[rows[o] :][:n]
        d1 = delta[rows[o + 1] :][:n]
        for t in range(0, fives, 5):
            a, c = ten_sums(five_runs(x, taps, t, n), d0, d1, n)
            for k in range(5):
                out[o, t + k] += a[k]
                out[o + 1, t + k] += c[k]
        for t in range(fives, len(taps)):
            a0, c0 = two_sums(x[taps[t] :][:n], d0, d1, n)
            out[o, t] += a0
            out[o + 1, t] += c0
    for o in range(twos, len(rows)):
        d0 = delta[rows[o] :][:n]
        for t in range(len(taps)):
            out[o, t] += one_sum(x[taps[t] :][:n], d0, n)


@compiled("void(f4[::1], i8, i8, i8, i8, f4[::1], b1)")
def frame(
    image: F32, channels: int, down: int, across: int, pad: int, framed: F32, out_of: bool
) -> None:
    """Images ``[c, down, across]`` into their frames of ``pad`` zeros on each side, or out of
    them."""
    width = across + 2 * pad
    at = 0
    for c in range(channels):
        for y in range(down):
            to = (c * (down + 2 * pad) + y + pad) * width + pad
            if out_of:
                image[at : at + across] = framed[to : to + across]
            else:
                framed[to : to + across] = image[at : at + across]
            at += across


@compiled("i8[::1](i8, i8, i8, i8)")
def taps_of(channels: int, size: int, width: int, kernel: int) -> I64:
    """Where each tap of a kernel begins, in images of ``size`` values whose rows of ``width`` lie
    side by side."""
    taps = np.empty(channels * kernel * kernel, np.int64)
    at = 0
    for c in range(channels):
        for y in range(kernel):
            for x in range(kernel):
                taps[at] = c * size + y * width + x
                at += 1
    return taps


@compiled("void(f4[::1], i8[::1], f4[:, ::1], f4[:, ::1], i8[:, ::1])")
def conv_forward(vector: F32, conv: I64, images: F32, out: F32, spots: I64) -> None:
    """``out [b, o h' w'] = relu(maxpool(conv(images [b, c h w])))`` of framed images.

    ``conv``: channels in, height, width, padding, kernel, channels out, place in the vector.
    """
    c, height, width, pad, k, o, begin = conv
    height = height + 2 * pad
    width = width + 2 * pad
    down = height - k + 1
    across = width - k + 1
    taps = taps_of(c, height * width, width, k)
    w = vector[begin : begin + o * len(taps)].reshape(o, len(taps))
    bias = vector[begin + o * len(taps) : begin + o * (len(taps) + 1)]
    z = np.empty((o, (down - 1) * width + across), np.float32)
    for s in range(len(images)):
        for i in range(o):
            z[i] = bias[i]
        convolve(w, images[s], taps, z)
        max_pool(z, width, down // 2, across // 2, out[s], spots[s])


@compiled()
def turn_kernel(w: F32, rows: I64, taps: I64, channels: int) -> tuple[F32, I64]:
    """The kernel ``w [o c t]`` turned around, ``[c, o t]``, and where each of its taps begins.

    The gradient of the images, ``sum_o w[o, c, t] errors[o, q - t]``, is a convolution of the
    errors with this kernel.
    """
    each = len(taps) // channels
    back = np.empty(len(rows) * each, np.int64)
    turned = np.empty((channels, len(back)), np.float32)
    for o in range(len(rows)):
        for t in range(each):
            back[o * each + t] = rows[o] - taps[t]
            for c in range(channels):
                turned[c, o * each + t] = w[(o * channels + c) * each + t]
    return turned, back


@compiled("void(f4[::1], i8[::1], f4[:, ::1], f4[:, ::1], i8[:, ::1], f4[:, ::1], f4[::1])")
def conv_backward(
    vector: F32, conv: I64, images: F32, delta: F32, spots: I64, below: F32, gradient: F32
) -> None:
    """The gradient of a convolution's part of the vector, and of its images if ``below`` has room
    (``[b, c h w]`` without a frame; ``[b, 0]``: not needed)."""
    c, inner_height, inner_width, pad, k, o, begin = conv
    height = inner_height + 2 * pad
    width = inner_width + 2 * pad
    taps = taps_of(c, height * width, width, k)
    n = (height - k) * width + width - k + 1
    # The errors of each channel lie between two margins of zeros, so that a turned kernel may begin
    # before the first of them and end behind the last.
    margin = taps_of(1, 0, width, k)[-1]
    each = n + 2 * margin
    rows = np.arange(o) * each + margin
    spread = np.empty(o * each, np.float32)
    # Summed over the batch before anything is changed, since the images below need this kernel.
    gradient[:] = 0
    kernel = gradient[: o * len(taps)].reshape(o, len(taps))
    bias = gradient[o * len(taps) :]
    turned, back = turn_kernel(vector[begin : begin + o * len(taps)], rows, taps, c)
    framed = np.empty((c, height * width), np.float32)
    for s in range(len(images)):
        spread_errors(delta[s], spots[s], rows, spread, bias)
        correlate(spread, rows, n, images[s], taps, kernel)
        if below.shape[1]:
            framed[:] = 0
            convolve(turned, spread, back, framed)
            frame(below[s], c, inner_height, inner_width, pad, framed.ravel(), True)
