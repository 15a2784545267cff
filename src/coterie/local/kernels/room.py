"""Arrays that begin where a line of the processor's cache begins.

A vector of 512 bits fills a line of 64 bytes. Read from anywhere else, each of them is two reads, and
a product of matrices takes 1.6 times as long. NumPy's and Numba's own arrays need not begin a line.
"""

from __future__ import annotations

import numpy as np

from coterie.local.kernels.compilation import F32, compiled

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
