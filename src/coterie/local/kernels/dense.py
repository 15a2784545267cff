"""The products of a dense layer: its outputs, and what its errors add to its kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.local.kernels.compilation import F32, Real, compiled, inlined
from coterie.local.kernels.inner_loops import (
    add_five,
    add_to_one,
    add_to_two,
    five_rows,
    one_sum,
    ten_sums,
    two_sums,
)

# Samples from which on a library's matrix products are faster than the loops here.
WIDE = 32
_CACHED = 2**16  # values of a kernel that stay in a processor's second cache next to the samples


@inlined
def add_bias(out: F32, bias: F32) -> None:
    """``out + bias`` for each row, in place."""
    # Value by value for the reason of `copy_row`.
    for s in range(len(out)):
        for o in range(len(bias)):
            out[s, o] += bias[o]


@compiled("void(f4[:, ::1], f4[:, ::1], f4[::1], f4[:, ::1])")
def multiply(h: F32, w: F32, bias: F32, out: F32) -> None:
    """``out = h w^T + bias``: ``[b, i] x [o, i] -> [b, o]``."""
    b = len(h)
    outputs = len(w)
    n = h.shape[1]
    fives = b - b % 5
    twos = outputs - outputs % 2
    # rows of w that stay in the cache while all samples pass by
    block = max(2, _CACHED // (2 * n) * 2)
    for first in range(0, twos, block):
        for s in range(0, fives, 5):
            rows = five_rows(h, s)
            for o in range(first, min(twos, first + block), 2):
                a, c = ten_sums(rows, w[o], w[o + 1], n)
                for k in range(5):
                    out[s + k, o] = a[k]
                    out[s + k, o + 1] = c[k]
    for s in range(fives, b):
        for o in range(0, twos, 2):
            a0, c0 = two_sums(h[s], w[o], w[o + 1], n)
            out[s, o] = a0
            out[s, o + 1] = c0
    for o in range(twos, outputs):
        for s in range(b):
            out[s, o] = one_sum(h[s], w[o], n)
    add_bias(out, bias)


@inlined
def five_errors(rate: Real, delta: F32, s: int, o: int) -> Any:
    """The errors of output ``o`` for samples ``s`` to ``s + 4``, times the rate."""
    return (
        rate * delta[s, o],
        rate * delta[s + 1, o],
        rate * delta[s + 2, o],
        rate * delta[s + 3, o],
        rate * delta[s + 4, o],
    )


@compiled("void(f4, f4[:, :], f4[:, ::1], f4[:, ::1])")
def accumulate(rate: Real, delta: F32, h: F32, w: F32) -> None:
    """``w <- w + rate delta^T h``: ``[b, o] x [b, i] -> [o, i]``."""
    b = len(h)
    outputs = len(w)
    n = h.shape[1]
    # The sums run over samples: two rows of w pass through the registers once for five samples,
    # instead of once for each.
    fives = b - b % 5
    twos = outputs - outputs % 2
    for o in range(0, twos, 2):
        w0 = w[o]
        w1 = w[o + 1]
        for s in range(0, fives, 5):
            a = five_errors(rate, delta, s, o)
            c = five_errors(rate, delta, s, o + 1)
            add_five(w0, w1, a, c, five_rows(h, s), n)
        for s in range(fives, b):
            add_to_two(w0, w1, rate * delta[s, o], rate * delta[s, o + 1], h[s], n)
    for o in range(twos, outputs):
        for s in range(b):
            add_to_one(w[o], rate * delta[s, o], h[s], n)


# --- of many samples, by BLAS: compiled where it is used, which plain SGD and scoring do not ------


@compiled()
def multiply_wide(h: F32, w: F32, bias: F32, out: F32) -> None:
    """``multiply`` by a library."""
    np.dot(h, w.T, out)
    add_bias(out, bias)


@compiled()
def slope_wide(delta: F32, h: F32, out: F32) -> None:
    """``out = delta^T h``: ``[b, o] x [b, i] -> [o, i]``, by a library."""
    np.dot(delta.T, h, out)


@compiled()
def hand_down_wide(delta: F32, w: F32, out: F32) -> None:
    """``out = delta w``: ``[b, o] x [o, i] -> [b, i]``, by a library."""
    np.dot(delta, w, out)
