"""Arrays that begin where a line of the processor's cache begins, which compiled code reads faster
(see ``coterie.local.kernels.room``)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

LINE = 64  # bytes


def is_aligned(values: NDArray[np.float32]) -> bool:
    """Whether the first value begins a line.

    Example:
        >>> is_aligned(empty(8)), is_aligned(empty(8)[1:])
        (True, False)
    """
    return values.ctypes.data % LINE == 0


def empty(*shape: int) -> NDArray[np.float32]:
    """An array with anything in it.

    Example:
        >>> empty(2, 3).shape
        (2, 3)
    """
    size = math.prod(shape)
    whole = np.empty(size + LINE // 4, np.float32)
    first = -whole.ctypes.data % LINE // 4
    return whole[first : first + size].reshape(shape)


def copy(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """A copy.

    Example:
        >>> copy(np.ones(2, np.float32)).tolist()
        [1.0, 1.0]
    """
    copied = empty(*values.shape)
    copied[...] = values
    return copied
