"""One face for parquet, CSV and npz files: names of columns, and how to get their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.images.cache import cached_images
from coterie.data.images.decoding import decode
from coterie.data.images.pixels import Pixels
from coterie.data.npz import read_npz
from coterie.data.tabular.arrow import (
    Array,
    bytes_of,
    column_of,
    is_list,
    missing_column,
    nested_column,
    open_csv,
    open_parquet,
    require_numbers,
    require_one_per_row,
)
from coterie.errors import DataError


@dataclass(frozen=True, slots=True)
class Columns:
    """What a file holds, whatever its format.

    Args:
        values: name -> the values of a column, one per row.
        features: a name, or names of number columns -> inputs ``[rows, ...]``.
        arrow: the pyarrow table of a parquet or CSV file; ``None`` for an npz file.
    """

    path: Path
    names: tuple[str, ...]
    values: Callable[[str], Array]
    features: Callable[[str | list[str]], Array]
    arrow: Any = None

    def check(self, name: str, parameter: str) -> str:
        """The name, if the file has it."""
        if name not in self.names:
            raise missing_column(self.path, name, self.names, parameter)
        return name


def open_columns(path: Path) -> Columns:
    """The columns of a .parquet, .csv or .npz file."""
    if path.suffix == ".npz":
        return _npz_columns(path)
    return arrow_columns(open_table(path), path)


def open_table(path: Path) -> Any:
    """A .parquet or .csv file as a pyarrow table."""
    if path.suffix == ".parquet":
        return open_parquet(path)
    if path.suffix == ".csv":
        return open_csv(path)
    raise DataError(
        f"data.path: unknown format, got {path.name}; expected a .parquet, .csv or .npz file"
    )


# --- parquet and CSV ------------------------------------------------------------------------------


def arrow_columns(table: Any, path: Path) -> Columns:
    """The columns of a pyarrow table, which was read from ``path``."""

    def values(name: str) -> Array:
        return column_of(table, name, path)

    def features(names: str | list[str]) -> Array:
        if isinstance(names, str):
            return _feature_column(table, names, path)
        numbers = [require_numbers(values(name), name, path) for name in names]
        return np.stack(numbers, axis=1)

    return Columns(path, tuple(table.column_names), values, features, table)


def _feature_column(table: Any, name: str, path: Path) -> Array:
    """One column as inputs: images, lists, or a number per row."""
    import pyarrow.types as kinds

    # Hugging Face writes an image as a record of its bytes and its path.
    kind = table[name].type
    if kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_struct(kind):
        blobs = bytes_of(table, name, path)

        def make() -> Pixels:
            return decode(blobs, f"{path}: column {name}")

        return cached_images(path, name, len(blobs), make)
    if is_list(kind):
        return nested_column(table, name, path)
    return require_numbers(column_of(table, name, path), name, path)[:, None]


# --- npz ------------------------------------------------------------------------------------------


def _npz_columns(path: Path) -> Columns:
    # All arrays at once, so that a damaged one is found before anything is computed.
    arrays = read_npz(path)

    def features(names: str | list[str]) -> Array:
        if isinstance(names, str):
            array = require_numbers(arrays[names], names, path)
            if array.ndim == 1:
                return array[:, None]
            return array
        numbers = [
            require_numbers(require_one_per_row(arrays[name], name, path), name, path)
            for name in names
        ]
        return np.stack(numbers, axis=1)

    return Columns(path, tuple(arrays), arrays.__getitem__, features)
