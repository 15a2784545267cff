"""What a client reports of the columns of its table, and the totals of all clients.

A client reports, of a column of numbers, booleans or dates, how many values it has, their mean and
the sum of squares around that mean; of a column of categories, how often it has each. Totals follow
from these exactly, so they are those of all training rows in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import FloatArray, IntArray
from coterie.data.tabular.raw import Column, Encode, RawTable
from coterie.errors import ConfigError

# Of a column of numbers: count, mean, sum of squares around the mean; with noise the share of known
# values and two moments.
MOMENTS = 3
BOOLEAN = (0.0, 1.0)  # yes and no are 1 and 0 at every client
_FLOAT = 8  # bytes of a value in a report: means of large numbers need float64


@dataclass(frozen=True, slots=True)
class ColumnTotals:
    """What is known of a column over all clients.

    Args:
        count: training rows with a value.
        mean: the mean of the values; 0 if there are none.
        variance: ``sum (x - mean)^2 / count``; 0 without any.
        counts: int64 ``[c + 1]``, training rows of each category, the last: without one.
    """

    column: Column
    count: int
    mean: float = 0.0
    variance: float = 0.0
    counts: tuple[int, ...] = ()


def report_width(columns: Sequence[Column]) -> int:
    """How many numbers a client reports."""
    return sum(_width(column) for column in columns)


def _width(column: Column) -> int:
    if column.kind == "category":
        return len(column.categories) + 1
    return MOMENTS


def column_report(table: RawTable, first: IntArray) -> FloatArray:
    """What a client reports of its training rows, float64 ``[report_width]``."""
    values = table.values[table.rows(first)]
    parts = []
    for at, column in enumerate(table.columns):
        if column.kind == "category":
            codes = values[:, at]
            categories = len(column.categories)
            places = np.where(np.isnan(codes), categories, codes).astype(np.int64)
            parts.append(np.bincount(places, minlength=categories + 1).astype(np.float64))
        else:
            parts.append(column_moments(values[:, at]))
    return np.concatenate([*parts, np.empty(0)])


def column_moments(values: FloatArray) -> FloatArray:
    """Count, mean, and sum of squares around the mean of the known values, float64 ``[3]``."""
    known = values[~np.isnan(values)]
    if not len(known):
        return np.zeros(MOMENTS)
    mean = known.mean()
    # Around the client's own mean: squares of large numbers, such as dates, would lose digits.
    return np.array([len(known), mean, np.square(known - mean).sum()])


def report_bytes(columns: Sequence[Column], reports: FloatArray) -> IntArray:
    """Bytes of each report, int64 ``[n]``: its numbers, and the names of the categories in it."""
    size = np.full(len(reports), _FLOAT * reports.shape[1], np.int64)
    at = 0
    for column in columns:
        if column.kind == "category":
            lengths = np.array([len(name.encode()) for name in column.categories], np.int64)
            held = reports[:, at : at + len(lengths)] > 0
            size += held @ lengths
        at += _width(column)
    return size


def add_reports(columns: Sequence[Column], reports: FloatArray) -> tuple[ColumnTotals, ...]:
    """The totals of all clients.

    With ``n_i`` values of mean ``m_i`` and squares ``s_i`` around it, the mean is
    ``m = sum n_i m_i / n`` and the variance ``(sum s_i + n_i (m_i - m)^2) / n``.
    """
    found = []
    at = 0
    for column in columns:
        part = reports[:, at : at + _width(column)]
        at += _width(column)
        if column.kind == "category":
            counts = part.sum(axis=0).astype(np.int64)
            found.append(ColumnTotals(column, int(counts[:-1].sum()), counts=tuple(counts)))
        else:
            found.append(ColumnTotals(column, *add_moments(part)))
    return tuple(found)


def add_moments(part: FloatArray) -> tuple[int, float, float]:
    """Count, mean and variance over all clients, of their `column_moments` ``[n, 3]``; zeros without a
    value."""
    count, means, squares = part.T
    n = count.sum()
    if n == 0:
        return 0, 0.0, 0.0
    mean = (count * means).sum() / n
    variance = (squares + count * np.square(means - mean)).sum() / n
    return int(n), float(mean), float(variance)


# --- reports whose sum gets noise -----------------------------------------------------------------
# The means of a few rows say much about each of them, and categories that only one client has give
# it away. With ``[data.encode] noise`` the range of each column of numbers and the categories of
# each column of text are therefore said by the user, and clients report means within these ranges
# alone.


def check_domains(columns: Sequence[Column], encode: Encode) -> None:
    """Refuse columns whose range or categories are not said, where reports have noise."""
    if encode.noise is None:
        for name in ("ranges", "values"):
            if getattr(encode, name):
                what = "has no effect without data.encode.noise"
                raise ConfigError("in-conflict", f"data.encode.{name}", what, do="leave it out")
        return
    for column in columns:
        if column.kind == "category" and column.name not in encode.values:
            raise _unknown_domain("values", column, "its categories")
        if column.kind in ("number", "time") and column.name not in encode.ranges:
            raise _unknown_domain("ranges", column, "[lowest, highest]")


def _unknown_domain(option: str, column: Column, expected: str) -> ConfigError:
    what = f"no entry for the column {column.name!r}"
    why = f"{expected}, because with noise they must be known in advance"
    return ConfigError("missing", f"data.encode.{option}", what, allowed=why)


def bounded_reports(table: RawTable, held: Sequence[IntArray]) -> FloatArray:
    """What clients report of their training rows, float64 ``[n, 3 q]``, each between 0 and 1.

    With ``c`` the share of rows that have a value, and ``u`` the values as shares of the range, it
    is ``c``, ``c mean(u)`` and ``c mean(u^2)`` of each of ``q`` columns of numbers. Clients count
    alike, whatever number of rows they have: a number of rows has no bound.
    """
    numbers = [column for column in table.columns if column.kind != "category"]
    found = np.zeros((len(held), len(numbers), MOMENTS))
    for client, first in enumerate(held):
        rows = table.values[table.rows(first)]
        for at, column in enumerate(numbers):
            values = rows[:, table.columns.index(column)]
            found[client, at] = _bounded_moments(values, value_range(column, table.encode))
    return found.reshape(len(held), -1)


def _bounded_moments(values: FloatArray, limits: tuple[float, float]) -> tuple[float, float, float]:
    """Share of known values, and their first two moments as shares of the range, times this."""
    known = values[~np.isnan(values)]
    if not len(known):
        return 0.0, 0.0, 0.0
    low, high = limits
    shares = np.clip((known - low) / (high - low), 0.0, 1.0)
    present = len(known) / len(values)
    return present, present * float(shares.mean()), present * float(np.square(shares).mean())


def value_range(column: Column, encode: Encode) -> tuple[float, float]:
    """The lowest and the highest value of a column, as the user says it."""
    if column.kind == "boolean":
        return BOOLEAN
    return encode.ranges[column.name]
