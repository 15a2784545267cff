"""The user's own data: one parquet or npz file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.core.arrays import IntArray
from coterie.data.samples import Samples, Targets
from coterie.data.sources import images
from coterie.data.sources.checks import Array, require_one_per_row
from coterie.data.sources.columns import Columns, open_columns
from coterie.data.sources.folders import find_file
from coterie.errors import DataError

# Up to it every whole number is a float64.
EXACT = 2**53


def file(
    root: Path | None,
    *,
    path: str,
    features: str | list[str] = "x",
    label: str | list[str] = "y",
    client: str = "client",
    split: str = "split",
    shape: list[int] | None = None,
    targets: Targets = "classes",
) -> Samples:
    """Your own data: one .parquet or .npz file with features, labels and the client of each row.

    Labels, text or numbers, are mapped to ``0..c-1`` in sorted order; for a task of numbers they are
    kept as they are. ``uint8`` features and images
    are divided by 255.

    Args:
        root: a relative ``path`` that is not in the current folder is looked for here.
        path: the file.
        features: a column of lists, of image files (PNG or JPEG bytes) or of numbers, or a list of
            number columns.
        label: the column of labels; for several targets a list of columns, or one of lists.
        client: the column that names the client; it may be absent. The partition `natural` finds it
            as ``client``.
        split: a column with the values ``train`` and ``test``; without it, all rows are training
            rows.
        shape: shape of one input, where the file has it flat (``[1, 28, 28]``).
        targets: whether labels are classes, or numbers for a task such as regression.

    Raises:
        DataError: for an unreadable file, a missing column (naming the nearest), NaN, or no rows.
    """
    place = find_file(path, root)
    if place is None:
        raise DataError(f"data.path: no such file, got {path}; expected a .parquet or .npz file")
    columns = open_columns(place)
    for name in [features] if isinstance(features, str) else features:
        columns.check(name, "features")
    y, names = _targets(columns, label, targets)
    # `Samples` has training rows first; everything that has a value per row is put in this order.
    order, train_rows = _train_rows_first(columns, split, len(y))
    if not features:
        raise DataError(f"data.features: got no column of {place.name}; expected at least one")
    x = _finite(columns.features(features), place)
    if x.size == 0:
        raise DataError(f"{place}: features, got none in {len(x)} rows; expected at least one")
    x = _shaped(x, shape, len(y), place)
    # Under both names, so that partitions find the clients whatever the file calls them.
    extra: dict[str, Array] = {}
    # The default column may be absent; one that the user named must be there.
    if client in columns.names or client != "client":
        owners = _one_per_row(columns, columns.check(client, "client"))
        if order is not None:
            owners = owners[order]
        extra = dict.fromkeys({client, "client"}, owners)
    if order is not None:
        x = x[order]
        y = y[order]
    return Samples(torch.from_numpy(x), torch.from_numpy(y), len(names), train_rows, extra, names)


def _targets(
    columns: Columns, label: str | list[str], targets: Targets
) -> tuple[Array, tuple[str, ...]]:
    """The labels as classes ``0..c-1`` with their names, or as numbers without names."""
    if targets == "numbers":
        return _numbers(columns, label), ()
    if not isinstance(label, str):
        raise DataError(
            f"data.label: a class has one column, got {label}; "
            "expected one name, or a [task] with several targets"
        )
    labels = _one_per_row(columns, columns.check(label, "label"))
    return _whole_labels(labels, columns.path, label)


def _numbers(columns: Columns, label: str | list[str]) -> Array:
    """Targets as they are: float32, or int64 for rows of whole numbers such as tokens."""
    for name in [label] if isinstance(label, str) else label:
        columns.check(name, "label")
    values = columns.features(label)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind in "iu" and values.ndim > 1:
        return values.astype(np.int64)
    return _finite(values.astype(np.float64), columns.path, "label")


def _one_per_row(columns: Columns, name: str) -> Array:
    """A column of labels, clients or splits: numbers or text, without gaps."""
    values = require_one_per_row(columns.values(name), name, columns.path)
    if len(values) == 0:
        raise DataError(f"{columns.path}: no rows; expected at least one")
    if values.dtype.kind == "f" and np.isnan(values).any():
        row = int(np.isnan(values).argmax())
        raise DataError(f"{columns.path}: column {name}, got NaN in row {row}; expected none")
    if values.dtype.kind not in "iufbU":
        raise DataError(
            f"{columns.path}: column {name}, got {values.dtype}; expected numbers or text"
        )
    return values


def _finite(values: Array, path: Path, what: str = "features") -> NDArray[np.float32]:
    """Numbers as float32; bytes are taken for pixels."""
    if values.dtype == np.uint8:
        return images.unit(values)
    # A float64 beyond float32's range becomes infinite, and is refused below with its row.
    with np.errstate(over="ignore"):
        x = values.astype(np.float32)
    if not x.size:
        return x
    bad = ~np.isfinite(x.reshape(len(x), -1)).all(1)
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"{path}: {what}, got NaN or infinity in row {row}; expected finite numbers"
        )
    return x


def _shaped(
    x: NDArray[np.float32], shape: list[int] | None, rows: int, path: Path
) -> NDArray[np.float32]:
    """The inputs in the shape that the user named."""
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


def _whole_labels(values: Array, path: Path, name: str) -> tuple[IntArray, tuple[str, ...]]:
    """Labels as ``0..c-1`` in sorted order, and their names."""
    if values.dtype.kind == "f":
        # pandas writes whole labels as floating-point numbers where a column once had gaps.
        if (values != np.round(values)).any():
            raise DataError(
                f"{path}: column {name}, got fractions; expected labels: whole numbers or text"
            )
        # Beyond it not every whole number has a value of its own, and int64 ends soon after.
        if (np.abs(values) > EXACT).any():
            largest = float(np.abs(values).max())
            raise DataError(
                f"{path}: column {name}, got a label of {largest:g} as a floating-point number; "
                "expected at most 2^53, or text"
            )
        values = values.astype(np.int64)
    classes, y = np.unique(values, return_inverse=True)
    return y.astype(np.int64), tuple(str(label) for label in classes)


def _train_rows_first(columns: Columns, name: str, rows: int) -> tuple[IntArray | None, int]:
    """An order of the rows that puts training rows first, and how many there are.

    The order is ``None`` where the file has no split: all rows are training rows, as they stand.
    """
    if name not in columns.names and name == "split":
        return None, rows
    values = _one_per_row(columns, columns.check(name, "split"))
    if len(values) != rows:
        raise DataError(
            f"{columns.path}: {len(values)} values of {name}, {rows} labels; "
            "expected as many of each"
        )
    unknown = sorted({str(value) for value in np.unique(values)} - {"train", "test"})
    if unknown:
        raise DataError(
            f"{columns.path}: column {name}, got {unknown[0]!r}; expected train or test"
        )
    is_test = values == "test"
    # Stable: within train and within test the rows keep the order of the file.
    return np.argsort(is_test, kind="stable"), int((~is_test).sum())
