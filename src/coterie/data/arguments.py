"""Arrays that a user hands over: brought to the kinds that Coterie has, or refused in a line.

- Tensors, NumPy arrays, lists and frames are taken; on a GPU they are not.
- Fractions become float32. They have to be finite, and so have their squares as float32.
- Whole numbers become int64, ``True`` and ``False`` are 1 and 0.
- Flat inputs are one number a sample.
- Bytes as inputs are refused: whether they are pixels or numbers cannot be seen.
- Who holds what are whole numbers, or a mask of all samples. No fraction is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import IntArray, finite_float32
from coterie.data.lazy import Ranges, is_lazy
from coterie.errors import Code, DataError

_LARGEST = np.iinfo(np.int64).max

# Inputs that are known to be finite, so that a shift of who holds what does not read them again.
_CHECKED: WeakValueDictionary[int, Tensor] = WeakValueDictionary()


def checked_inputs(x: Any, name: str, on_disk: bool = False) -> Tensor:
    """Inputs ``[S, ...]`` as float32, or whole numbers such as tokens as int64.

    Args:
        name: the name of the argument.
        on_disk: whether they are in a file, which is not read to check them.
    """
    if is_lazy(x) or (isinstance(x, Tensor) and _CHECKED.get(id(x)) is x):
        return x
    values = _array(x, name)
    if values.dtype == np.uint8:
        expected = "float32, such as x / 255 for pixels"
        raise DataError("wrong-type", name, found="uint8", allowed=expected)
    if values.ndim == 0:
        got = "a single number"
        raise DataError("wrong-shape", name, found=got, allowed="a row for each sample, [S, ...]")
    if values.ndim == 1:
        values = values[:, None]
    if values.dtype.kind == "b":
        values = values.astype(np.float32)
    if values.dtype.kind in "iu":
        return _tensor(values.astype(np.int64, copy=False), x)
    if not on_disk or values.dtype != np.float32:
        values = finite_float32(values, name)
    inputs = _tensor(values, x)
    _CHECKED[id(inputs)] = inputs
    return inputs


def checked_targets(y: Any, name: str) -> Tensor:
    """Labels as int64, or targets that are fractions as float32."""
    if is_lazy(y):
        return y
    values = _array(y, name)
    if not values.ndim:
        got = "a single number"
        raise DataError("wrong-shape", name, found=got, allowed="one for each sample, [S]")
    if values.dtype.kind == "f":
        return _tensor(finite_float32(values, name), y)
    return _tensor(values.astype(np.int64, copy=False), y)


def check_targets(y: Tensor, classes: int, name: str) -> None:
    """Refuse labels that the number of classes does not allow."""
    if y.is_floating_point():
        if classes:
            got = f"{y.dtype} with {classes} classes"
            expected = "int64 labels; otherwise omit `classes`"
            raise DataError("does-not-fit", name, found=got, allowed=expected)
        return
    # Tokens and several labels a sample are checked by their task, which knows what they mean.
    if y.ndim > 1 or not len(y):
        return
    lowest = int(y.min())
    highest = int(y.max())
    if classes == 0:
        what = f"labels from {lowest} to {highest}, but no number of classes"
        expected = "`classes`, or float labels for a regression"
        raise DataError("missing", name, what, allowed=expected)
    if lowest < 0 or highest >= classes:
        labels = f"labels from {lowest} to {highest}"
        raise DataError("out-of-range", name, found=labels, allowed=f"0 to {classes - 1}")


def _array(values: Any, name: str) -> NDArray[Any]:
    """Numbers in memory, as NumPy."""
    if isinstance(values, Tensor):
        plain = values.layout == torch.strided and not values.is_quantized
        if not plain or values.device.type != "cpu":
            form = "quantized" if values.is_quantized else str(values.layout)
            got = f"a {form} tensor on {values.device}"
            raise DataError("wrong-type", name, found=got, allowed="a dense tensor on the CPU")
        if values.dtype == torch.bfloat16:
            values = values.float()
        values = values.detach()
    _refuse_masked(values, name)
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        raise DataError(
            "wrong-shape", name, found="rows of different lengths", allowed="an array of numbers"
        ) from None
    if array.dtype.kind not in "biuf":
        got = type(values).__name__
        if array.dtype.kind in "US":
            got = f"text such as {str(array.flat[0])!r}" if array.size else "text"
        elif array.dtype.kind == "c":
            got = "complex numbers"
        raise DataError("wrong-type", name, found=got, allowed="an array of numbers")
    if array.dtype.kind == "u" and array.max(initial=0) > _LARGEST:
        got = f"the whole number {array.max()}"
        raise DataError("out-of-range", name, found=got, allowed="numbers below 2^63")
    return array


def _refuse_masked(values: Any, name: str, whose: str = "") -> None:
    """Refuse missing values: NumPy would take what stands below the mask."""
    lacking = int(np.ma.count_masked(values)) if isinstance(values, np.ma.MaskedArray) else 0
    if lacking:
        what = f"{whose}{lacking} masked values"
        raise DataError("missing", name, what, do="fill them or leave their samples out")


def _tensor(values: NDArray[Any], given: Any) -> Tensor:
    """The tensor that was given, where it is as it should be."""
    if isinstance(given, Tensor) and not given.requires_grad:
        is_same = given.data_ptr() == values.ctypes.data and given.shape == values.shape
        if is_same and given.dtype in (torch.float32, torch.int64):
            return given
    # Torch takes neither what is read only, nor another order of bytes, nor steps backwards.
    if not values.flags.writeable or not values.flags.c_contiguous or not values.dtype.isnative:
        values = np.array(values, values.dtype.newbyteorder("="))
    return torch.from_numpy(values)


# --- who holds what -------------------------------------------------------------------------------


def parts_of(held: Any, name: str, samples: int | None = None) -> tuple[IntArray, ...]:
    """The rows that each client holds, one int64 array a client.

    Args:
        samples: how many there are, which a mask has to have; ``None``: masks are refused.
    """
    if isinstance(held, Ranges):
        # It stands in for a tuple of arrays.
        return held  # type: ignore[return-value]
    clients = _items(held)
    if clients is None:
        expected = "rows for each client, such as ([0, 1], [2])"
        raise DataError("wrong-type", name, got=held, allowed=expected)
    return tuple(_rows(rows, name, client, samples) for client, rows in enumerate(clients))


def _items(values: Any) -> tuple[Any, ...] | None:
    """What a list has in it; ``None`` for what is no list."""
    if isinstance(values, str | Mapping):
        return None
    try:
        return tuple(values)
    except TypeError:
        return None


def _rows(rows: Any, name: str, client: int, samples: int | None) -> IntArray:
    # The identical array where nothing is to be done: engines see by it that nothing changed.
    if type(rows) is np.ndarray and rows.dtype == np.int64 and rows.ndim == 1:
        return rows
    _refuse_masked(rows, name, f"client {client}: ")
    try:
        found = np.asarray(rows)
    except (ValueError, TypeError, RuntimeError):
        raise _rows_error("wrong-shape", name, client, "lists of different lengths") from None
    if found.ndim != 1:
        got = f"an array of shape {list(found.shape)}" if found.ndim else f"{rows!r}"
        raise _rows_error("wrong-shape", name, client, got)
    if not found.size:
        return np.empty(0, np.int64)
    if found.dtype.kind == "b":
        if len(found) != samples:
            of = "row numbers" if samples is None else f"one of all {samples} samples"
            raise _rows_error("wrong-shape", name, client, f"a mask of {len(found)}", of)
        return np.flatnonzero(found)
    if found.dtype.kind not in "iu":
        raise _rows_error("wrong-type", name, client, f"{found.tolist()[0]!r} of {found.dtype}")
    if found.dtype.kind == "u" and found.max() > _LARGEST:
        raise _rows_error("out-of-range", name, client, f"the row {found.max()}")
    return found.astype(np.int64)


def _rows_error(
    code: Code, name: str, client: int, got: str, expected: str = "row numbers, such as [0, 1]"
) -> DataError:
    what = f"client {client}: {code.replace('-', ' ')}"
    return DataError(code, name, what, found=got, allowed=expected)


def check_rows(parts: Sequence[IntArray], name: str, samples: int) -> None:
    """Refuse rows that are not there, and masks of numbers, which would be the rows 0 and 1."""
    if isinstance(parts, Ranges):
        some = parts.size > 0
        first = parts.start[some]
        last = first + parts.size[some] - 1
    else:
        first = last = np.concatenate([*parts, np.empty(0, np.int64)])
        for client, rows in enumerate(parts):
            if len(rows) == samples > 2 and rows.max() <= 1:
                got = f"{samples} values of 0 and 1"
                raise _rows_error("wrong-type", name, client, got, "row numbers, or booleans")
    low = int(first.min(initial=0))
    high = int(last.max(initial=-1))
    if low >= 0 and high < samples:
        return
    wrong = low if low < 0 else high
    client = next(i for i, rows in enumerate(parts) if wrong in rows)
    raise _rows_error("out-of-range", name, client, f"the row {wrong}", f"0 to {samples - 1}")


# --- names and numbers ----------------------------------------------------------------------------


def names_of(names: Any, name: str) -> tuple[str, ...]:
    """Names of clients: texts, of which no two are equal but those that are empty, for none."""
    found = _items(names)
    if found is None:
        raise DataError("wrong-type", name, got=names, allowed="one name for each client")
    for one in found:
        if not isinstance(one, str):
            raise DataError("wrong-type", name, got=one, allowed="strings")
    named = [one for one in found if one]
    if len(set(named)) < len(named):
        twice = next(one for one in named if named.count(one) > 1)
        raise DataError("in-conflict", name, f"{twice!r} occurs twice", allowed="unique names")
    return found


def whole_number(value: Any, name: str, least: int) -> int:
    """A whole number of at least so much."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise DataError("wrong-type", name, got=value, allowed="a whole number")
    if value < least:
        raise DataError("out-of-range", name, found=value, allowed=f"at least {least}")
    return int(value)


def groups_of(values: Any, name: str, length: int) -> IntArray:
    """The number of a group for each of so many clients or samples, int64."""
    found = _array(values, name)
    if found.dtype.kind not in "iu":
        raise DataError("wrong-type", name, found=found.dtype, allowed="whole numbers (of groups)")
    found = found.astype(np.int64, copy=False)
    if found.shape != (length,):
        got = f"shape {list(found.shape)}"
        raise DataError("wrong-shape", name, found=got, allowed=f"[{length}]")
    if found.min(initial=0) < 0:
        raise DataError("out-of-range", name, found=found.min(), allowed="groups numbered from 0")
    return found
