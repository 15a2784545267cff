"""The user's own data: one parquet or npz file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.data import images
from coterie.data.npz import read_npz
from coterie.data.samples import Samples
from coterie.errors import DataError

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Columns:
    """What a file holds, whatever its format: names, and how to get the values."""

    path: Path
    names: tuple[str, ...]
    values: Callable[[str], Array]
    features: Callable[[str | list[str]], Array]

    def check(self, name: str, parameter: str) -> str:
        """The name, if the file has it."""
        if name not in self.names:
            raise missing(self.path, name, self.names, parameter)
        return name


def file(
    root: Path | None,
    *,
    path: str,
    features: str | list[str] = "x",
    label: str = "y",
    client: str = "client",
    split: str = "split",
    shape: list[int] | None = None,
) -> Samples:
    """Your own data: one .parquet or .npz file with features, labels and the client that holds each
    row.

    Labels, text or numbers, are mapped to ``0..c-1`` in sorted order. ``uint8`` features and images
    are divided by 255.

    Args:
        root: a relative ``path`` that is not in the current folder is looked for here.
        path: the file.
        features: a column of lists, of image files (PNG or JPEG bytes) or of numbers, or a list of
            number columns.
        label: the column of labels.
        client: the column that names the client; it may be absent. The partition `natural` finds it
            as ``client``.
        split: a column with the values ``train`` and ``test``; without it, all rows are training
            rows.
        shape: shape of one input, where the file has it flat (``[1, 28, 28]``).

    Raises:
        DataError: for an unreadable file, a missing column (naming the nearest), NaN, or no rows.
    """
    columns = _open(_locate(path, root))
    for name in [features] if isinstance(features, str) else features:
        columns.check(name, "features")
    labels = _rows(columns, columns.check(label, "label"))
    order, train_rows = _split(columns, split, len(labels))
    y, names = _labels(labels, columns.path, label)
    x = _shaped(_finite(columns.features(features), columns.path), shape, len(y), columns.path)
    if order is not None:
        x = x[order]
        y = y[order]
    extra: dict[str, Array] = {}
    if client in columns.names or client != "client":
        owners = _rows(columns, columns.check(client, "client"))
        extra = dict.fromkeys({client, "client"}, owners if order is None else owners[order])
    return Samples(torch.from_numpy(x), torch.from_numpy(y), len(names), train_rows, extra, names)


def _locate(path: str, root: Path | None) -> Path:
    place = Path(path).expanduser()
    if not place.is_file() and root is not None and (Path(root) / place).is_file():
        place = Path(root) / place
    if not place.is_file():
        raise DataError(f"data.path: no such file, got {path}; expected a .parquet or .npz file")
    return place


def _open(path: Path) -> Columns:
    if path.suffix == ".parquet":
        return _parquet(path)
    if path.suffix == ".npz":
        return _npz(path)
    raise DataError(f"data.path: unknown format, got {path.name}; expected a .parquet or .npz file")


def missing(path: Path, name: str, there: Iterable[str], parameter: str = "") -> DataError:
    """The error for a column that a file does not have: it names what is there, and the nearest."""
    have = sorted(there)
    near = get_close_matches(name, have, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    where = f"data.{parameter}: " if parameter else ""
    return DataError(
        f"{where}{path}: no column {name!r}; expected one of {', '.join(have) or '(none)'}{hint}"
    )


# ---- parquet


def open_parquet(path: Path, wanted: Callable[[str], bool] | None = None) -> Any:
    """A parquet file as a pyarrow table, only the columns ``wanted``.

    Raises:
        DataError: if it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as reader:
            names = reader.schema_arrow.names
            return reader.read(
                names if wanted is None else [name for name in names if wanted(name)]
            )
    except (pa.ArrowException, OSError, ValueError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: cannot be read as parquet ({line})") from None


def column_of(table: Any, name: str, path: Path) -> Array:
    """A column of a table as NumPy; text becomes a NumPy string array.

    Raises:
        DataError: if it is missing, empty, or has missing values.
    """
    import pyarrow.types as kinds

    if name not in table.column_names:
        raise missing(path, name, table.column_names)
    column = table[name]
    _whole(column, name, path)
    kind = column.type.value_type if kinds.is_dictionary(column.type) else column.type
    if kinds.is_string(kind) or kinds.is_large_string(kind):
        return np.array(column.to_pylist(), dtype=np.str_)
    if not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)):
        raise DataError(f"{path}: column {name}, got {column.type}; expected numbers or text")
    return np.asarray(column.to_numpy())


def bytes_of(table: Any, name: str, path: Path) -> list[bytes]:
    """A column of image files: binary, or the records with a field ``bytes`` that Hugging Face
    writes."""
    import pyarrow.types as kinds

    if name not in table.column_names:
        raise missing(path, name, table.column_names)
    column = table[name]
    _whole(column, name, path)
    if kinds.is_struct(column.type) and "bytes" in [field.name for field in column.type]:
        import pyarrow.compute as pc

        column = pc.struct_field(column, "bytes")
        _whole(column, name, path)
    if not (kinds.is_binary(column.type) or kinds.is_large_binary(column.type)):
        raise DataError(
            f"{path}: column {name}, got {column.type}; expected the bytes of image files"
        )
    return column.to_pylist()


def _whole(column: Any, name: str, path: Path) -> None:
    if len(column) == 0:
        raise DataError(f"{path}: no rows; expected at least one")
    if column.null_count:
        raise DataError(
            f"{path}: column {name}, got {column.null_count} missing values; expected none"
        )


def _parquet(path: Path) -> Columns:
    table = open_parquet(path)

    def features(names: str | list[str]) -> Array:
        if isinstance(names, str):
            return _feature_column(table, names, path)
        return np.stack(
            [_numbers(column_of(table, name, path), name, path) for name in names], axis=1
        )

    return Columns(
        path, tuple(table.column_names), lambda name: column_of(table, name, path), features
    )


def _feature_column(table: Any, name: str, path: Path) -> Array:
    import pyarrow.types as kinds

    kind = table[name].type
    if kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_struct(kind):
        blobs = bytes_of(table, name, path)
        return images.cached(
            path, name, len(blobs), lambda: images.decode(blobs, f"{path}: column {name}")
        )
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return _nested(table[name], name, path)
    return _numbers(column_of(table, name, path), name, path)[:, None]


def _nested(column: Any, name: str, path: Path) -> Array:
    import pyarrow as pa
    import pyarrow.types as kinds

    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    shape = [len(values)]
    while (
        kinds.is_list(values.type)
        or kinds.is_large_list(values.type)
        or kinds.is_fixed_size_list(values.type)
    ):
        _whole(values, name, path)
        rows = len(values)
        values = values.flatten()
        if len(values) % rows or not len(values):
            raise DataError(
                f"{path}: column {name}, got lists of different or no length; expected one length"
            )
        shape.append(len(values) // rows)
    flat = _numbers(column_of(pa.table({name: values}), name, path), name, path)
    if not _even(column, shape[1:]):
        raise DataError(
            f"{path}: column {name}, got lists of different lengths; expected one length"
        )
    return flat.reshape(shape)


def _even(column: Any, shape: list[int]) -> bool:
    import pyarrow.compute as pc

    for length in shape:
        if not pc.all(pc.equal(pc.list_value_length(column), length)).as_py():
            return False
        column = pc.list_flatten(column)
    return True


# ---- npz


def _npz(path: Path) -> Columns:
    arrays = read_npz(path)

    def values(name: str) -> Array:
        return arrays[name]

    def features(wanted: str | list[str]) -> Array:
        if isinstance(wanted, str):
            array = _numbers(values(wanted), wanted, path)
            if array.ndim == 1:
                return array[:, None]
            return array
        return np.stack(
            [_numbers(_flat(values(name), name, path), name, path) for name in wanted], axis=1
        )

    return Columns(path, tuple(arrays), values, features)


# ---- values, whatever the format


def _rows(columns: Columns, name: str) -> Array:
    values = _flat(columns.values(name), name, columns.path)
    if len(values) == 0:
        raise DataError(f"{columns.path}: no rows; expected at least one")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise DataError(
            f"{columns.path}: column {name}, got NaN in row {int(np.isnan(values).argmax())}; expected none"
        )
    if values.dtype.kind not in "iufbU":
        raise DataError(
            f"{columns.path}: column {name}, got {values.dtype}; expected numbers or text"
        )
    return values


def _flat(values: Array, name: str, path: Path) -> Array:
    if values.ndim != 1:
        raise DataError(
            f"{path}: column {name}, got shape {values.shape}; expected one value per row"
        )
    return values


def _numbers(values: Array, name: str, path: Path) -> Array:
    if values.ndim == 0 or values.dtype.kind not in "iufb":
        raise DataError(
            f"{path}: column {name}, got {values.dtype} of shape {values.shape}; expected numbers"
        )
    return values


def _finite(values: Array, path: Path) -> NDArray[np.float32]:
    if values.dtype == np.uint8:
        return images.unit(values)
    with np.errstate(over="ignore"):
        x = values.astype(np.float32)
    bad = ~np.isfinite(x.reshape(len(x), -1)).all(1) if x.size else np.ones(0, bool)
    if bad.any():
        raise DataError(
            f"{path}: features, got NaN or infinity in row {int(bad.argmax())}; expected finite numbers"
        )
    return x


def _shaped(
    x: NDArray[np.float32], shape: list[int] | None, rows: int, path: Path
) -> NDArray[np.float32]:
    if len(x) != rows:
        raise DataError(
            f"{path}: {len(x)} rows of features, {rows} labels; expected as many of each"
        )
    if shape is None:
        return x
    if min(shape, default=0) < 1 or np.prod(shape) * rows != x.size:
        raise DataError(
            f"data.shape: got {shape}; expected {x.size // rows} values, as the file has"
        )
    return x.reshape(rows, *shape)


def _labels(values: Array, path: Path, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if values.dtype.kind == "f":
        if (values != np.round(values)).any():
            raise DataError(
                f"{path}: column {name}, got fractions; expected labels: whole numbers or text"
            )
        values = values.astype(np.int64)
    kinds, y = np.unique(values, return_inverse=True)
    return y.astype(np.int64), tuple(str(kind) for kind in kinds)


def _split(columns: Columns, name: str, rows: int) -> tuple[NDArray[np.int64] | None, int]:
    if name not in columns.names and name == "split":
        return None, rows
    values = _rows(columns, columns.check(name, "split"))
    if len(values) != rows:
        raise DataError(
            f"{columns.path}: {len(values)} values of {name}, {rows} labels; expected as many of each"
        )
    odd = sorted({str(v) for v in np.unique(values)} - {"train", "test"})
    if odd:
        raise DataError(f"{columns.path}: column {name}, got {odd[0]!r}; expected train or test")
    test = values == "test"
    return np.argsort(test, kind="stable"), int((~test).sum())
