"""Columns of the parquet files of datasets: labels, names, texts, and image files as bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from coterie.data.rows import Rows, missing_column
from coterie.errors import DataError, first_line

Array = NDArray[Any]


def open_parquet(path: Path, wanted: Callable[[str], bool] | None = None) -> Any:
    """A parquet file as a pyarrow table, only the columns ``wanted``."""
    # Imported where it is used, as in all of this file: it takes longer than most of Coterie.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Checksums of pages, where the file has them: a bit that flipped would be another value.
        with pq.ParquetFile(path, page_checksum_verification=True) as reader:
            names = reader.schema_arrow.names
            if wanted is not None:
                names = [name for name in names if wanted(name)]
            return reader.read(names)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as parquet ({first_line(error)})") from None


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
        _refuse_missing_values(column, name, path)
    if not (kinds.is_binary(column.type) or kinds.is_large_binary(column.type)):
        raise DataError(
            f"{path}: column {name}, got {column.type}; expected the bytes of image files"
        )
    return column.to_pylist()


def is_images(column: pd.Series) -> bool:
    """Whether a column has image files: bytes, or records of their bytes and their path."""
    import pyarrow.types as kinds

    kind = getattr(column.dtype, "pyarrow_dtype", None)
    return kind is not None and (
        kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_struct(kind)
    )


def image_bytes(rows: Rows, name: str) -> list[bytes]:
    """The image files of a column."""
    import pyarrow as pa

    table = pa.table({name: rows.frame[name].array.__arrow_array__()})
    return bytes_of(table, name, Path(rows.where))


def _whole_column(table: Any, name: str, path: Path) -> Any:
    if name not in table.column_names:
        raise missing_column(str(path), name, table.column_names)
    column = table[name]
    _refuse_missing_values(column, name, path)
    return column


def _refuse_missing_values(column: Any, name: str, path: Path) -> None:
    """Refuse a column without rows, or with rows that have no value."""
    if len(column) == 0:
        raise DataError(f"{path}: no rows; expected at least one")
    if column.null_count:
        raise DataError(
            f"{path}: column {name}, got {column.null_count} missing values; expected none"
        )
