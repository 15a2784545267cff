"""Columns of parquet and CSV files as NumPy arrays, and what they may hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import DataError, first_line

Array = NDArray[Any]

_LONGEST_HEAD = 2**20  # bytes of a head line that are looked at


def missing_column(path: Path, name: str, present: Iterable[str], parameter: str = "") -> DataError:
    """The error for a column that a file does not have: it names those it has, and the nearest."""
    known = sorted(present)
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    where = f"data.{parameter}: " if parameter else ""
    expected = ", ".join(known) or "(none)"
    return DataError(f"{where}{path}: no column {name!r}; expected one of {expected}{hint}")


def is_number(text: str) -> bool:
    """Whether a text is written as a number.

    Example:
        >>> is_number("1e-3"), is_number("1,5")
        (True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True


def require_one_per_row(values: Array, name: str, path: Path) -> Array:
    """The values, if they are one per row."""
    if values.ndim != 1:
        raise DataError(
            f"{path}: column {name}, got shape {values.shape}; expected one value per row"
        )
    return values


def require_numbers(values: Array, name: str, path: Path) -> Array:
    """The values, if they are numbers."""
    # Whole numbers, with and without sign, fractions and bools. Text that looks like numbers is
    # refused: it may have been a category or a code with leading zeros.
    if values.ndim == 0 or values.dtype.kind not in "iufb":
        got = f"{values.dtype} of shape {values.shape}"
        if values.dtype.kind == "U":
            got = "text"
        raise DataError(f"{path}: column {name}, got {got}; expected numbers")
    return values


def open_parquet(path: Path, wanted: Callable[[str], bool] | None = None) -> Any:
    """A parquet file as a pyarrow table, only the columns ``wanted``."""
    # Imported where it is used, as in all of this file: it takes longer than most of Coterie.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Checksums of pages, where the file has them: a bit that flipped would be another value.
        with pq.ParquetFile(path, page_checksum_verification=True) as reader:
            names = reader.schema_arrow.names
            _refuse_twice(names, path)
            if wanted is not None:
                names = [name for name in names if wanted(name)]
            return reader.read(names)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as parquet ({first_line(error)})") from None


def open_csv(path: Path) -> Any:
    """A CSV file with a head line as a pyarrow table.

    Empty fields, ``NA``, ``NaN``, ``null`` and ``?`` are missing values. Columns of numbers, of
    ``true`` and ``false``, and of ISO dates are recognised; all others are text.
    """
    import pyarrow as pa
    from pyarrow import csv

    _refuse_separator(path)
    missing = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"]
    options = csv.ConvertOptions(null_values=missing, strings_can_be_null=True)
    try:
        table = csv.read_csv(path, convert_options=options)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as CSV ({first_line(error)})") from None
    _refuse_twice(table.column_names, path)
    for field in table.schema:
        # pyarrow takes text that it cannot decode for bytes.
        if pa.types.is_binary(field.type):
            raise DataError(
                f"{path}: column {field.name}, got text that is not UTF-8; expected UTF-8, which "
                "spreadsheet programs call 'CSV UTF-8'"
            )
    return table


def _refuse_separator(path: Path) -> None:
    """Refuse fields between semicolons or tabs, as spreadsheet programs write them in countries
    where a comma begins the decimals."""
    try:
        with path.open("rb") as file:
            head = file.readline(_LONGEST_HEAD)
    except OSError:
        return  # said by the reader of the file
    for separator, name in ((b";", "semicolons"), (b"\t", "tabs")):
        if separator in head and b"," not in head:
            raise DataError(
                f"{path}: fields between {name}, got {head.count(separator) + 1} names in the head "
                "line; expected commas between fields, and a point before decimals"
            )


def _refuse_twice(names: Sequence[str], path: Path) -> None:
    """Refuse a file with two columns of one name: which is meant cannot be known."""
    for name in names:
        if names.count(name) > 1:
            raise DataError(
                f"{path}: column {name}, got it {names.count(name)} times; expected once"
            )


def column_of(table: Any, name: str, path: Path) -> Array:
    """A column of a table as NumPy; text becomes a NumPy string array."""
    import pyarrow.types as kinds

    column = _whole_column(table, name, path)
    # A dictionary is how pandas writes categories; to_pylist gives their values.
    kind = column.type
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        return np.array(column.to_pylist(), dtype=np.str_)
    if not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)):
        raise DataError(f"{path}: column {name}, got {column.type}; expected numbers or text")
    return np.asarray(column.to_numpy())


def bytes_of(table: Any, name: str, path: Path) -> list[bytes]:
    """A column of image files: binary, or Hugging Face's records with a field ``bytes``."""
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    column = _whole_column(table, name, path)
    if kinds.is_struct(column.type) and "bytes" in [field.name for field in column.type]:
        column = pc.struct_field(column, "bytes")
        refuse_missing_values(column, name, path)
    if not (kinds.is_binary(column.type) or kinds.is_large_binary(column.type)):
        raise DataError(
            f"{path}: column {name}, got {column.type}; expected the bytes of image files"
        )
    return column.to_pylist()


def nested_column(table: Any, name: str, path: Path) -> Array:
    """A column of lists, or of lists of lists, as an array ``[rows, ...]``."""
    import pyarrow as pa

    values = table[name].combine_chunks()
    # Chunks may be left; the lists are flattened as one array.
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    shape = [len(values)]
    while is_list(values.type):
        refuse_missing_values(values, name, path)
        rows = len(values)
        values = values.flatten()
        if len(values) % rows or not len(values):
            raise DataError(
                f"{path}: column {name}, got lists of different or no length; expected one length"
            )
        shape.append(len(values) // rows)
    flat = require_numbers(column_of(pa.table({name: values}), name, path), name, path)
    # A total that divides evenly may hide lists that differ, so each length is compared.
    if not _all_lists_are(shape[1:], table[name]):
        raise DataError(
            f"{path}: column {name}, got lists of different lengths; expected one length"
        )
    return flat.reshape(shape)


def is_list(kind: Any) -> bool:
    """Whether a pyarrow type is a list of any kind."""
    import pyarrow.types as kinds

    return kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)


def _all_lists_are(lengths: list[int], column: Any) -> bool:
    """Whether the lists of each level have these lengths."""
    import pyarrow.compute as pc

    for length in lengths:
        if not pc.all(pc.equal(pc.list_value_length(column), length)).as_py():
            return False
        column = pc.list_flatten(column)
    return True


def _whole_column(table: Any, name: str, path: Path) -> Any:
    if name not in table.column_names:
        raise missing_column(path, name, table.column_names)
    column = table[name]
    refuse_missing_values(column, name, path)
    return column


def refuse_missing_values(column: Any, name: str, path: Path) -> None:
    """Refuse a column without rows, or with rows that have no value."""
    if len(column) == 0:
        raise DataError(f"{path}: no rows; expected at least one")
    if column.null_count:
        raise DataError(
            f"{path}: column {name}, got {column.null_count} missing values; expected none"
        )
