"""Columns of pyarrow tables as float64 with missing values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.core.arrays import FloatArray
from coterie.data.tabular.arrow import is_number
from coterie.data.tabular.raw import Column, ColumnKind, Encode, RawTable
from coterie.errors import DataError, first_line

_SECONDS_A_DAY = 86_400.0
# Text with more different numbers than this, which are this share of its values, is no code.
_CODES = 20
_MOSTLY = 0.9


def is_plain_numbers(values: Any) -> bool:
    """Whether a pyarrow column has numbers or booleans alone, and all of them."""
    import pyarrow.types as kinds

    kind = values.type
    numbers = kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)
    if not numbers or values.null_count:
        return False
    # pandas writes a missing number as NaN.
    return not np.isnan(np.asarray(values.to_numpy(), np.float64)).any()


def read_raw(
    arrow: Any, names: Sequence[str], encode: Encode, path: str, known: RawTable | None = None
) -> RawTable:
    """Columns of a pyarrow table as numbers with missing values, of the kinds of a ``known`` table."""
    if not names:
        raise DataError(f"{path}: no column for features, got none; expected at least one")
    kinds = {}
    if known is not None:
        kinds = {column.name: column.kind for column in known.columns}
    found = []
    values: list[FloatArray] = []
    for name in names:
        kind = kinds.get(name)
        if name in encode.categories:
            kind = "category"
        column, numbers = read_column(arrow[name], name, path, kind)
        found.append(column)
        values.append(numbers)
    return RawTable(tuple(found), np.stack(values, axis=1), encode)


def kind_of(values: Any) -> ColumnKind | None:
    """What the values of a pyarrow column are; ``None`` for lists, bytes and records."""
    import pyarrow.types as kinds

    kind = values.type
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    if kinds.is_boolean(kind):
        return "boolean"
    if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
        return "number"
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        return "category"
    if kinds.is_timestamp(kind) or kinds.is_date(kind):
        return "date"
    # A column without any value has no type.
    if kinds.is_null(kind):
        return "number"
    return None


def read_column(
    values: Any, name: str, path: str, kind: ColumnKind | None = None
) -> tuple[Column, FloatArray]:
    """A column of a pyarrow table, and its values float64 ``[R]``; its kind is that of the file, or
    another.
    """
    found = kind_of(values)
    if found is None:
        raise DataError(
            f"{path}: column {name}, got {values.type}; expected numbers, text, booleans or "
            "dates, or data.encode.leave_out"
        )
    kind = kind or found
    if kind == "category":
        return _categories(values, name)
    try:
        numbers = _dates(values) if kind == "date" else _numbers(values)
    except Exception as error:  # noqa: BLE001 - pyarrow raises several kinds, with no common base
        reason = first_line(error)
        raise DataError(
            f"{path}: column {name}, expected a {kind} in each row ({reason})"
        ) from None
    if np.isinf(numbers).any():
        row = int(np.isinf(numbers).argmax())
        raise DataError(f"{path}: column {name}, got infinity in row {row}; expected numbers")
    return Column(name, kind), numbers


def read_moments(values: Any, name: str, path: str) -> FloatArray:
    """A column that orders the rows of a series, float64 ``[R]``: numbers, or dates in days."""
    kind = kind_of(values)
    # As text, the tenth of a month would come before the second. ISO dates are read as dates.
    if kind == "category":
        kind = "date"
    _, moments = read_column(values, name, path, kind)
    return moments


def _numbers(values: Any) -> FloatArray:
    import pyarrow as pa

    # A missing value becomes NaN.
    # pyarrow has no way from booleans to fractions but by way of whole numbers.
    numbers = values.cast(pa.float64()) if values.type != pa.bool_() else values.cast(pa.uint8())
    return np.array(numbers.cast(pa.float64()).to_numpy(), np.float64)


def _dates(values: Any) -> FloatArray:
    import pyarrow as pa

    if kind_of(values) == "category":
        # A dictionary is how pandas writes text that repeats.
        values = pa.chunked_array([pa.array(values.to_pylist(), pa.string())])
    stamps = values.cast(pa.timestamp("us")).to_numpy().astype("datetime64[us]")
    seconds = stamps.astype(np.int64) / 1e6
    return np.where(np.isnat(stamps), np.nan, seconds / _SECONDS_A_DAY)


def _categories(values: Any, name: str) -> tuple[Column, FloatArray]:
    # By way of text: whole numbers and booleans may be codes, too.
    texts = np.array(
        [None if value is None else category_text(value) for value in values.to_pylist()]
    )
    known = np.array([text is not None for text in texts], bool)
    categories, codes = np.unique(texts[known].astype(np.str_), return_inverse=True)
    numbers = np.full(len(texts), np.nan)
    numbers[known] = codes
    return Column(name, "category", tuple(str(one) for one in categories)), numbers


def numbers_as_text(table: RawTable) -> list[str]:
    """A line for each column of text that was meant as numbers: most of its many values are some."""
    lines = []
    for place, column in enumerate(table.columns):
        if column.kind != "category" or column.name in table.encode.categories:
            continue
        numbers = np.array([is_number(name) for name in column.categories], bool)
        # A few numbers as text are codes.
        if numbers.sum() <= _CODES:
            continue
        codes = table.values[:, place]
        known = codes[~np.isnan(codes)].astype(np.int64)
        rows = int(numbers[known].sum())
        if rows < _MOSTLY * len(known):
            continue
        why = "they are stored as text"
        if not numbers.all():
            odd = column.categories[int(np.argmin(numbers))]
            why = f"{len(known) - rows} of {len(known)} are none, such as {odd!r}"
        lines.append(
            f"column {column.name}: its numbers are taken for categories, since {why}; where they "
            f"are codes, name it in data.encode.categories"
        )
    return lines


def category_text(value: Any) -> str | None:
    """A category as text: a whole number as such, NaN as a missing value."""
    if isinstance(value, float):
        if np.isnan(value):
            return None
        if value.is_integer():
            return str(int(value))
    return str(value)
