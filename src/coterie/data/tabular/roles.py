"""What the columns of a user's file are for: labels, clients and splits, one value a row, without gaps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import IntArray
from coterie.data.images.pixels import unit
from coterie.data.samples import Targets
from coterie.data.tabular.arrow import Array, require_one_per_row
from coterie.data.tabular.columns import Columns
from coterie.errors import DataError

# Up to it every whole number is a float64.
EXACT = 2**53
# A column of numbers with more different values than this, and with fewer rows for each, is taken
# for numbers to predict.
MANY_VALUES = 20
FEW_ROWS = 4


@dataclass(frozen=True, slots=True)
class Roles:
    """What columns of a file are for.

    Args:
        features: inputs: a column, a list of them, or ``*``.
        label: the column of labels, or several.
        client: the column that names the client; the default one may be absent.
        split: the column of ``train`` and ``test``; the default one may be absent.
    """

    features: str | list[str]
    label: str | list[str]
    client: str = "client"
    split: str = "split"

    @property
    def labels(self) -> list[str]:
        """The columns of labels."""
        return [self.label] if isinstance(self.label, str) else self.label

    def owners(self, columns: Columns, order: IntArray | None) -> dict[str, Array]:
        """The client of each row, under the name of the column and under ``client``."""
        # The default column may be absent; one that the user named must be there.
        if self.client not in columns.names and self.client == "client":
            return {}
        owners = one_per_row(columns, columns.check(self.client, "client"))
        if order is not None:
            owners = owners[order]
        # Under both names, so that partitions find the clients whatever the file calls them.
        return dict.fromkeys({self.client, "client"}, owners)


def read_targets(
    columns: Columns, label: str | list[str], targets: Targets
) -> tuple[Array, tuple[str, ...]]:
    """The labels as classes ``0..c-1`` with their names, or as numbers without names."""
    if targets == "numbers" or (targets == "auto" and look_like_numbers(columns, label)):
        return _numbers(columns, label), ()
    if not isinstance(label, str):
        raise DataError(
            f"data.label: a class has one column, got {label}; "
            "expected one name, or a [task] with several targets"
        )
    labels = one_per_row(columns, columns.check(label, "label"))
    return _whole_labels(labels, columns.path, label)


def look_like_numbers(columns: Columns, label: str | list[str]) -> bool:
    """Whether labels are numbers to predict: with fractions, or with nearly as many values as rows."""
    if not isinstance(label, str):
        return True
    values = one_per_row(columns, columns.check(label, "label"))
    if values.dtype.kind not in "iuf":
        return False
    if values.dtype.kind == "f" and (values != np.round(values)).any():
        return True
    # Codes of many classes have many rows each; measurements rarely repeat.
    found = len(np.unique(values))
    return found > MANY_VALUES and found * FEW_ROWS > len(values)


def _numbers(columns: Columns, label: str | list[str]) -> Array:
    """Targets as they are: float32, or int64 for rows of whole numbers such as tokens."""
    for name in [label] if isinstance(label, str) else label:
        columns.check(name, "label")
    values = columns.features(label)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind in "iu" and values.ndim > 1:
        return values.astype(np.int64)
    return finite(values.astype(np.float64), columns.path, "label")


def one_per_row(columns: Columns, name: str) -> Array:
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


def finite(values: Array, path: Path, what: str = "features") -> NDArray[np.float32]:
    """Numbers as float32; bytes are taken for pixels."""
    if values.dtype == np.uint8:
        return unit(values)
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


def train_rows_first(columns: Columns, name: str, rows: int) -> tuple[IntArray | None, int]:
    """An order of the rows that puts training rows first, and how many there are.

    The order is ``None`` where the file has no split: all rows are training rows, as they stand.
    """
    if name not in columns.names and name == "split":
        return None, rows
    values = one_per_row(columns, columns.check(name, "split"))
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
