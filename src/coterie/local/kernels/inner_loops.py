"""Inner loops of dense layers and convolutions: sums of five rows for two outputs at a time.

Five rows times two are ten sums, which stay in registers while seven values are read for them:
that is what makes it fast. Batches have ten samples more often than not, so that five divides
them. What is left over is done one row at a time. All of it becomes part of the kernel that uses
it, as if it were written there: a call would cost more than a short loop.

A vector of 512 bits fills a line of the processor's cache, of 64 bytes. Read from anywhere else, each
of them is two reads, and a product of matrices takes 1.6 times as long. NumPy's and Numba's own arrays
need not begin a line; those of `zeros` do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.local.kernels.compilation import F32, ZERO, Real, compiled, inlined


@inlined
def copy_row(row: F32, to: F32) -> None:
    """Copy a row to one of the same length, which callers ensure.

    Value by value: for an assignment of arrays Numba also compiles the error message about unequal
    lengths, which takes longer than the rest of a kernel.
    """
    for f in range(len(to)):
        to[f] = row[f]


@inlined
def five_rows(x: F32, s: int) -> Any:
    """Rows ``s`` to ``s + 4`` of a matrix, or values of a vector."""
    return x[s], x[s + 1], x[s + 2], x[s + 3], x[s + 4]


@inlined
def ten_sums(h: Any, w0: F32, w1: F32, n: int) -> Any:
    """``sum_f h_k[f] w0[f]`` of five rows ``h_k``, and the same with ``w1``, ``f < n``."""
    h0, h1, h2, h3, h4 = h
    a0 = a1 = a2 = a3 = a4 = c0 = c1 = c2 = c3 = c4 = ZERO
    for f in range(n):
        u = w0[f]
        v = w1[f]
        a0 += h0[f] * u
        a1 += h1[f] * u
        a2 += h2[f] * u
        a3 += h3[f] * u
        a4 += h4[f] * u
        c0 += h0[f] * v
        c1 += h1[f] * v
        c2 += h2[f] * v
        c3 += h3[f] * v
        c4 += h4[f] * v
    return (a0, a1, a2, a3, a4), (c0, c1, c2, c3, c4)


@inlined
def two_sums(h: F32, w0: F32, w1: F32, n: int) -> Any:
    """``sum_f h[f] w0[f]``, and the same with ``w1``, ``f < n``."""
    a = c = ZERO
    for f in range(n):
        a += h[f] * w0[f]
        c += h[f] * w1[f]
    return a, c


@inlined
def one_sum(h: F32, w: F32, n: int) -> Real:
    """``sum_f h[f] w[f]``, ``f < n``."""
    a = ZERO
    for f in range(n):
        a += h[f] * w[f]
    return a


@inlined
def add_five(w0: F32, w1: F32, a: Any, c: Any, h: Any, n: int) -> None:
    """``w0[f] += sum_k a_k h_k[f]`` over five rows ``h_k``, and ``w1`` with ``c_k``, ``f < n``."""
    a0, a1, a2, a3, a4 = a
    c0, c1, c2, c3, c4 = c
    h0, h1, h2, h3, h4 = h
    for f in range(n):
        w0[f] += a0 * h0[f] + a1 * h1[f] + a2 * h2[f] + a3 * h3[f] + a4 * h4[f]
        w1[f] += c0 * h0[f] + c1 * h1[f] + c2 * h2[f] + c3 * h3[f] + c4 * h4[f]


@inlined
def add_to_two(w0: F32, w1: F32, a: Real, c: Real, h: F32, n: int) -> None:
    """``w0[f] += a h[f]`` and ``w1[f] += c h[f]``, ``f < n``."""
    for f in range(n):
        w0[f] += a * h[f]
        w1[f] += c * h[f]


@inlined
def add_to_one(w: F32, a: Real, h: F32, n: int) -> None:
    """``w[f] += a h[f]``, ``f < n``."""
    for f in range(n):
        w[f] += a * h[f]


_LINE = 64  # bytes
_VALUES = 16  # of float32 in a line


@compiled()
def zeros(n: int) -> F32:
    """``n`` zeros."""
    whole = np.zeros(n + _VALUES, np.float32)
    first = -np.int64(whole.ctypes.data) % _LINE // 4
    return whole[first : first + n]


@compiled()
def rows_of_zeros(b: int, n: int) -> F32:
    """Zeros ``[b, n]``; rows behind the first begin a line if ``n`` is a multiple of 16."""
    return zeros(b * n).reshape(b, n)
