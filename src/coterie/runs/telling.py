"""Columns that give the label away: a second label, or what was written down after it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.core.arrays import FloatArray, IntArray
from coterie.data import Population

# With fewer training rows a column may agree with the label by chance.
ENOUGH_ROWS = 50
# So many training rows show it as well as all of them.
LOOKED_AT = 4096
# A column whose values have this many rows each on average repeats, and is no name of a row.
ROWS_A_VALUE = 4
# A number this much in line with the target is the target in another unit.
NEARLY_ONE = 0.9999


def telling_columns(
    population: Population, names: Sequence[str], label: str | Sequence[str]
) -> list[str]:
    """A line for each column that alone tells the label in every training row.

    A model then learns this column and nothing else, and its score says nothing. It is not left
    out, since it may be known in time.

    Args:
        population: with inputs ``[S, q]``, or made from a table.
        names: of the ``q`` features, where no table names its columns.
    """
    held = np.concatenate(population.train)
    table = population.table
    if table is not None:
        # Of clients that joined a run there are only the inputs, and no columns as they were read.
        held = held[held < len(table.first)]
    # The past of a series has what is predicted, and several targets have no single column.
    if population.y.ndim > 1 or len(held) < ENOUGH_ROWS or population.x.ndim > 2:
        return []
    rows = held[np.unique(np.linspace(0, len(held) - 1, LOOKED_AT).astype(np.int64))]
    targets = population.y.numpy()[rows]
    remedy = "take it out of data.features"
    if table is None:
        values = population.x.numpy()[rows].astype(np.float64)
    else:
        names = [column.name for column in table.raw.columns]
        values = table.raw.values[table.first[rows]]
    lines = []
    for name, column in zip(names, values.T, strict=True):
        if not _tells(column, targets, numbers=not population.classes):
            continue
        if table is not None:
            remedy = f"[data.encode] leave_out = ['{name}']"
        lines.append(
            f"column {name}: alone tells {label} in each of {len(rows)} training rows; unless it is "
            f"known before {label} is, leave it out: {remedy}"
        )
    return lines


def _tells(column: FloatArray, targets: IntArray | FloatArray, *, numbers: bool) -> bool:
    if numbers:
        return _in_line(column, targets.astype(np.float64))
    return _separates(column, targets.astype(np.int64))


def _in_line(column: FloatArray, targets: FloatArray) -> bool:
    """Whether targets are nearly a linear function of a column that has no missing values."""
    if np.isnan(column).any() or not column.std() or not targets.std():
        return False
    return bool(abs(np.corrcoef(column, targets)[0, 1]) > NEARLY_ONE)


def _separates(column: FloatArray, labels: IntArray) -> bool:
    """Whether each value of a column, a missing one among them, goes with a single class.

    That is no wonder where hardly a value repeats. Then the classes have to follow one another in
    the order of the values.
    """
    _, value = np.unique(column, return_inverse=True)
    order = np.lexsort((labels, value))
    ordered = labels[order]
    changes = ordered[1:] != ordered[:-1]
    same_value = np.diff(value[order]) == 0
    if (changes & same_value).any():
        return False
    classes = len(np.unique(labels))
    repeats = ROWS_A_VALUE * (value.max() + 1) <= len(labels)
    return bool(classes > 1 and (repeats or changes.sum() == classes - 1))
