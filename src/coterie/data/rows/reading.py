"""Rows of files, and of tables in memory."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .csv_files import read_csv
from .errors import DataError, column_error, refuse_twice, unreadable
from .kinds import types_of, without_words
from .table import FRAME, Rows
from .texts import TEXTS, is_real, words_as_names

SUFFIXES = (".parquet", ".csv")
# What a note of another form raises where it is read.
NO_NOTE = (AttributeError, LookupError, RecursionError, TypeError)
# What pandas calls an index that has no name, and what it makes of it when it reads it again: with
# a further number where it does so twice.
_INDEX = re.compile(r"__index_level_[0-9]+__|Unnamed: [0-9]+(\.[0-9]+)*|")


def frame_columns(source: Any) -> list[str] | None:
    """The names of the columns of a frame of pandas, or of a table of pyarrow or Polars; ``None``
    for anything else."""
    if isinstance(source, pd.DataFrame):
        return list(source.columns)
    if isinstance(source, type | Mapping):
        return None
    names = getattr(source, "column_names", getattr(source, "columns", None))
    if isinstance(names, str) or not isinstance(names, Iterable):
        return None
    return list(names)


def read_rows(
    source: Any,
    texts: Collection[str] = (),
    columns: Collection[str] | None = None,
    known: Mapping[str, Collection[str]] | None = None,
    missing: Collection[str] = (),
) -> Rows:
    """The rows of a file, a pandas or pyarrow table, or of dictionaries, one a row.

    Args:
        texts: columns that are read as text from the first byte on.
        columns: the columns of a parquet file that are read; ``None``: all.
        known: column -> names that it is known to have, which a file without types may call missing.
        missing: words of the user's that are missing values in every column.
    """
    rows = _rows_of_source(source, texts, columns, words_as_names(known or {}))
    if not missing:
        return rows
    columns = {name: without_words(rows.frame[name], missing) for name in rows.names}
    return replace(rows, frame=rows.frame.assign(**columns), missing=tuple(missing))


def _rows_of_source(
    source: Any,
    texts: Collection[str],
    columns: Collection[str] | None,
    as_names: Mapping[str, Collection[str]],
) -> Rows:
    if isinstance(source, pd.DataFrame):
        return _without_index(_of_frame(source))
    if hasattr(source, "column_names") or hasattr(source, "to_arrow"):
        return _without_index(_of_arrow(source))
    if isinstance(source, (list, tuple)):
        rows = _of_frame(pd.DataFrame(list(source), dtype=object), typed=False)
        return _without_index(replace(rows, as_names=as_names))
    if not isinstance(source, (str, PathLike)):
        allowed = "a pandas or Polars DataFrame, or a pyarrow table (of a LazyFrame: .collect())"
        raise DataError("wrong-type", FRAME, found=type(source).__name__, allowed=allowed)
    path = Path(source)
    suffix = path.suffix.lower()
    if not path.is_file():
        raise DataError("not-found", path, allowed="a .parquet or .csv file")
    if suffix == ".parquet":
        return _without_index(Rows(_read_parquet(path, columns), str(path)))
    if suffix == ".csv":
        return _without_index(read_csv(path, texts, as_names))
    expected = "a .parquet, .csv or .npz file"
    raise DataError("cannot-be-read", "data.path", found=path.name, allowed=expected)


def _of_arrow(source: Any) -> Rows:
    """The rows of a table of pyarrow, or of what can be made one, as a frame of Polars."""
    try:
        table = source.to_arrow() if hasattr(source, "to_arrow") else source
        return Rows(frame_of_arrow(table))
    # The errors of Arrow are of all three kinds.
    except (ValueError, TypeError, NotImplementedError) as error:
        raise unreadable(FRAME, "a table of Arrow", error) from None


def _without_index(rows: Rows) -> Rows:
    """The rows without the columns that pandas made of an index."""
    names = [str(name) for name in rows.frame.columns]
    index = [name for name in names if _INDEX.fullmatch(name)]
    refuse_twice([name for name in names if name not in index], rows.where)
    if not index:
        return rows
    shown = ", ".join(name or "without a name" for name in index)
    line = f"{rows.name}: column {shown}: left out (a pandas index, or without a name)"
    return replace(rows, frame=rows.frame.drop(columns=index), lines=(*rows.lines, line))


def _of_frame(frame: pd.DataFrame, typed: bool = True) -> Rows:
    """A frame whose columns have names that are text; an index with a name is a column, unless a
    column has this name already."""
    names = [str(name) for name in frame.columns]
    levels = {at: str(name) for at, name in enumerate(frame.index.names) if name is not None}
    kept = [at for at, name in levels.items() if name not in names]
    lines = [
        f"{FRAME}: the index {name} is left out, because a column has the same name"
        for at, name in levels.items()
        if at not in kept and not _same_values(frame.index.get_level_values(at), frame, name)
    ]
    if kept:
        frame = frame.reset_index(level=kept, allow_duplicates=True)
    frame = frame.reset_index(drop=True)
    frame.columns = pd.Index([str(name) for name in frame.columns])
    _refuse_unreadable(frame)
    return Rows(_with_types_of_parquet(frame), typed=typed, lines=tuple(lines))


def _refuse_unreadable(frame: pd.DataFrame) -> None:
    """Refuse objects of Python that are no value of any file: pandas, too, fails on some of them."""
    for at, kind in enumerate(frame.dtypes):
        # Not by is_object_dtype, which fails on types of Arrow that pandas does not know.
        if kind != np.dtype(object):
            continue
        for row, value in enumerate(frame.iloc[:, at].array):
            if not _is_readable(value):
                name = str(frame.columns[at])
                got = f"a value of type {type(value).__name__} in row {row}"
                expected = "numbers that fit into float64, and text that UTF-8 can hold"
                raise column_error("cannot-be-read", FRAME, name, got, expected)


def _is_readable(value: Any) -> bool:
    """Whether a number fits into float64, and text into UTF-8; other objects are refused by kind."""
    try:
        if isinstance(value, str):
            value.encode()
        elif is_real(value):
            float(value)
    except (ValueError, OverflowError):
        return False
    except TypeError:
        pass  # a duration of NumPy, which is a number to Python
    return True


def _same_values(index: pd.Index, frame: pd.DataFrame, name: str) -> bool:
    place = [str(one) for one in frame.columns].index(name)
    return index.equals(pd.Index(frame.iloc[:, place]))


def _with_types_of_parquet(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame whose columns of Arrow, and of the bytes of images, are those of a parquet file."""
    arrow = [at for at in range(frame.shape[1]) if _is_of_arrow(frame.iloc[:, at])]
    if arrow:
        import pyarrow as pa

        try:
            table = pa.table({str(at): pa.array(frame.iloc[:, at].array) for at in arrow})
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise unreadable(FRAME, "columns of Arrow or bytes", error) from None
        found = frame_of_arrow(table)
        columns = [
            found[str(at)] if at in arrow else frame.iloc[:, at] for at in range(frame.shape[1])
        ]
        frame = pd.concat(columns, axis=1, keys=frame.columns)
    return frame


def _is_of_arrow(column: pd.Series) -> bool:
    if isinstance(column.dtype, pd.ArrowDtype):
        return True
    # Image files: bytes, or records with them.
    types = types_of(column)
    return bool(types) and types <= {bytes, dict}


def frame_of_arrow(table: Any) -> pd.DataFrame:
    """A pyarrow table as a frame whose whole numbers stay whole where values are missing."""
    import pyarrow as pa
    import pyarrow.types as kinds

    fields = []
    for one in table.schema:
        kind = one.type
        # Polars writes views, which pandas does not know.
        if str(kind) in ("string_view", "large_string"):
            kind = pa.large_string()
        elif str(kind) == "binary_view":
            kind = pa.large_binary()
        fields.append(pa.field(one.name, kind))
    whole = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.uint8(): pd.UInt8Dtype(),
        pa.uint16(): pd.UInt16Dtype(),
        pa.uint32(): pd.UInt32Dtype(),
        pa.uint64(): pd.UInt64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.string(): TEXTS,
        pa.large_string(): TEXTS,
    }

    def mapped(kind: Any) -> Any:
        other = kinds.is_nested(kind) or kinds.is_duration(kind) or kinds.is_time(kind)
        if other or kinds.is_binary(kind) or kinds.is_large_binary(kind):
            return pd.ArrowDtype(kind)
        return whole.get(kind)

    table = table.cast(pa.schema(fields))
    return table.to_pandas(types_mapper=mapped, ignore_metadata=True, date_as_object=False)


def _read_parquet(path: Path, columns: Collection[str] | None) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Checksums of pages, where the file has them: a bit that flipped would be another value.
        with pq.ParquetFile(path, page_checksum_verification=True) as reader:
            names = reader.schema_arrow.names
            refuse_twice(names, str(path))
            wanted = [name for name in names if columns is None or name in columns]
            frame = frame_of_arrow(reader.read(wanted))
            # Categories of whole numbers, which pandas noted: parquet itself stores them as numbers.
            noted = [
                one["name"]
                for one in (reader.schema_arrow.pandas_metadata or {}).get("columns", ())
                if one.get("pandas_type") == "categorical" and one.get("name") in frame.columns
            ]
            whole = [name for name in noted if pd.api.types.is_integer_dtype(frame[name].dtype)]
            return frame.astype(dict.fromkeys(whole, "category"))
    except DataError:
        raise
    # What pandas noted in the file is JSON, which may be anybody's: of any form, and any depth.
    except (pa.ArrowException, OSError, ValueError, *NO_NOTE) as error:
        raise unreadable(path, "parquet", error) from None
