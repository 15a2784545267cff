"""Array types that all of Coterie shares, and arrays that begin a line of the cache."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
# Bytes of a line of the processor's cache. Compiled code reads arrays faster that begin one (see
# ``coterie.local.kernels.inner_loops``).
CACHE_LINE = 64
# Networks multiply inputs by themselves, and a loss squares targets (see
# `coterie.data.rows.arrays`, which an export has a copy of, and so imports nothing).
LARGEST_INPUT = 1.8e19
EMPTY: Mapping[str, Any] = MappingProxyType({})


def empty_mapping() -> Mapping[str, Any]:
    """A read-only mapping without entries, for the defaults of frozen records."""
    return EMPTY


def stack(rows: Sequence[Tensor]) -> Tensor:
    """Flat vectors as float32 ``[n, d]``."""
    # Imported here: commands that only read files use this module, too.
    import torch

    return torch.stack([row.to(torch.float32) for row in rows])


def places_of(some: IntArray, ids: IntArray) -> IntArray:
    """Where each of some clients stands among ``ids``, which are distinct and in any order.

    Example:
        >>> places_of(np.array([3, 7]), np.array([7, 5, 3])).tolist()
        [2, 0]
    """
    # Replies and chains come in an order of their own, so `ids` cannot be taken for sorted.
    order = np.argsort(ids)
    return order[np.searchsorted(ids[order], some)]


def rows_of_each(which: IntArray) -> IntArray:
    """The rows that each of ``n`` clients is sent, ``[n, r]``, of ``[n]`` or ``[n, r]``.

    Not by a reshape to -1, which has no answer where ``n`` is 0.
    """
    return which[:, None] if which.ndim == 1 else which


def finite_float32(values: NDArray[Any], name: str) -> NDArray[np.float32]:
    """Finite numbers as float32; those with which a network would overflow are refused."""
    # NaN is in no range, and no copy is needed to find that all is well. As floats of Python, since
    # the bound is infinite in half precision.
    if not values.size or (
        float(values.min()) >= -LARGEST_INPUT and float(values.max()) <= LARGEST_INPUT
    ):
        return values.astype(np.float32, copy=False)
    at = tuple(np.argwhere(~(np.abs(values.astype(np.float64)) <= LARGEST_INPUT))[0].tolist())
    where = f"{values[at]:g} in row {at[0]}"
    if not np.isfinite(values[at]):
        raise DataError("not-finite", name, found=where, allowed="finite numbers")
    expected = f"numbers up to {LARGEST_INPUT:.1e}, whose squares fit into float32"
    raise DataError("out-of-range", name, found=where, allowed=expected)


def is_aligned(values: NDArray[np.float32]) -> bool:
    """Whether the first value begins a line."""
    return values.ctypes.data % CACHE_LINE == 0


def aligned_empty(*shape: int) -> NDArray[np.float32]:
    """An array with anything in it."""
    size = math.prod(shape)
    whole = np.empty(size + CACHE_LINE // 4, np.float32)
    first = -whole.ctypes.data % CACHE_LINE // 4
    return whole[first : first + size].reshape(shape)


def aligned_copy(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """A copy."""
    copied = aligned_empty(*values.shape)
    copied[...] = values
    return copied
