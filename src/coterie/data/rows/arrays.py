"""Columns as arrays: inputs of networks, and lists of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from .errors import DataError, column_error
from .kinds import ARRAY, BOOLEAN, LISTS, types_of
from .table import Rows, missing_values

# Networks compute with float32: where they multiply an input by itself, as in the step of a weight
# that grew with it, a larger one becomes infinite.
LARGEST_INPUT = 1.8e19


def plain_inputs(
    rows: Rows, features: str | Sequence[str], kinds: Mapping[str, str] | None = None
) -> Any:
    """A column of lists ``[R, ...]`` in the type of the file, or columns of numbers as they are,
    float64 ``[R, p]``. Lists of bytes are pixels, divided by 255."""
    if isinstance(features, str) and rows.kind(features) == ARRAY:
        values = lists_of(rows, features)
        # The type of a column of numbers says nothing: a CSV file has none.
        return values.astype(np.float32) / np.float32(255) if values.dtype == np.uint8 else values
    names = [features] if isinstance(features, str) else features
    found = []
    for name in names:
        if (kinds or {}).get(name) == BOOLEAN:
            found.append(rows.booleans(name))
        else:
            found.append(rows.numbers(name, np.inf))
    return np.stack(found, axis=1)


def float32_inputs(values: Any, where: str, names: str | Sequence[str]) -> Any:
    """Inputs or targets ``[R, ...]`` as float32; those with which a network would overflow are refused.

    Args:
        names: the column, or those of the second dimension, for the error line.
    """
    # NaN is in no range, and no copy is needed to find that all is well. As floats of Python, since
    # the bound is infinite in half precision.
    if not values.size or (
        float(values.min()) >= -LARGEST_INPUT and float(values.max()) <= LARGEST_INPUT
    ):
        return values.astype(np.float32)
    at = np.argwhere(~(np.abs(values.astype(np.float64)) <= LARGEST_INPUT))[0].tolist()
    name = names if isinstance(names, str) else names[at[1]]
    expected = f"finite numbers up to {LARGEST_INPUT:.1e}, which fit into float32"
    got = f"{values[tuple(at)]:g} in row {at[0]}"
    raise column_error("not-finite", where, name, got, expected)


def lists_of(rows: Rows, name: str) -> Any:
    """A column of lists, or of lists of lists, of numbers as an array ``[R, ...]``."""
    column = rows.column(name)
    lacking = int(column.isna().sum())
    if lacking:
        raise missing_values(rows, name, lacking)
    try:
        if isinstance(column.dtype, pd.ArrowDtype):
            values = _flattened(column)
        else:
            other = sorted(kind.__name__ for kind in types_of(column) if kind not in LISTS)
            if other:
                got = f"values of type {other[0]}"
                raise rows.refused("wrong-type", name, got, "lists of numbers")
            values = np.array(column.tolist())
    except DataError:
        raise
    except ValueError as error:
        what = f"lists of different lengths, or empty lists ({error})" if str(error) else "lists"
        raise rows.refused("wrong-shape", name, what, "lists of the same length") from None
    if values.dtype.kind not in "iufb" or values.ndim < 2:
        got = f"{values.dtype} of shape {values.shape}"
        raise rows.refused("wrong-type", name, got, "lists of numbers")
    return values


def _flattened(column: pd.Series) -> Any:
    """Lists of Arrow as an array, without a Python object for each number."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    values = column.array.__arrow_array__().combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    shape = [len(values)]
    while kinds.is_nested(values.type) and not kinds.is_struct(values.type):
        lengths = pc.unique(pc.list_value_length(values)).to_pylist()
        if len(lengths) != 1 or not lengths[0]:
            raise ValueError("different lengths")
        shape.append(lengths[0])
        values = values.flatten()
    if values.null_count:
        raise ValueError(f"{values.null_count} missing values")
    # A copy: what Arrow holds must not be written to.
    return np.array(values.to_numpy(zero_copy_only=False)).reshape(shape)
