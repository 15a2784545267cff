"""Columns of the parquet files of datasets: labels, names, texts, and image files as bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from coterie.data.images.cache import cached_images
from coterie.data.images.decoding import decode
from coterie.data.images.pixels import Pixels
from coterie.data.rows.table import Rows, missing_values
from coterie.data.rows.texts import is_plain, is_text, plain_values
from coterie.errors import DataError


def column_of(rows: Rows, name: str) -> NDArray[Any]:
    """A column as NumPy, without missing values; text becomes a NumPy string array."""
    column = whole_column(rows, name)
    if is_text(column):
        return np.array(column.tolist(), dtype=np.str_)
    if not is_plain(column):
        raise rows.refused("wrong-type", name, rows.type_of(name), "numbers or text")
    return plain_values(column)


def is_images(column: pd.Series) -> bool:
    """Whether a column has image files: bytes, or records of their bytes and their path."""
    import pyarrow.types as kinds

    kind = getattr(column.dtype, "pyarrow_dtype", None)
    return kind is not None and (
        kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_struct(kind)
    )


def image_bytes(rows: Rows, name: str) -> list[bytes]:
    """A column of image files: binary, or Hugging Face's records with a field ``bytes``."""
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    column = whole_column(rows, name)
    if is_images(column):
        values = column.array.__arrow_array__()
        if kinds.is_struct(values.type) and "bytes" in [field.name for field in values.type]:
            values = pc.struct_field(values, "bytes")
            if values.null_count:
                raise missing_values(rows, name, values.null_count)
        if not kinds.is_struct(values.type):
            return values.to_pylist()
    raise rows.refused("wrong-type", name, rows.type_of(name), "the bytes of image files")


def image_pixels(rows: Rows, name: str) -> Pixels:
    """The pixels of a column of image files."""
    blobs = image_bytes(rows, name)

    def make() -> Pixels:
        return decode(blobs, (rows.where, f"column {name}"))

    # A cache knows files: not frames, and not the rows of several files.
    path = Path(rows.where)
    return cached_images(path, name, len(blobs), make) if path.is_file() else make()


def whole_column(rows: Rows, name: str) -> pd.Series:
    """A column without missing values."""
    column = rows.column(name)
    if not len(column):
        raise DataError("missing", rows.where, "no rows")
    lacking = int(column.isna().sum())
    if lacking:
        raise missing_values(rows, name, lacking)
    return column
