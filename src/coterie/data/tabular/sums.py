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
from coterie.data.tabular.raw import Column, RawTable

MOMENTS = 3  # count, mean, sum of squares around the mean
_FLOAT = 8  # bytes of a value in a report: means of large numbers need float64


@dataclass(frozen=True, slots=True)
class ColumnTotals:
    """What is known of a column over all clients.

    Args:
        column: which.
        count: training rows with a value.
        mean: of the values; 0 without any.
        variance: ``sum (x - mean)^2 / count``; 0 without any.
        counts: int64 ``[c + 1]``, training rows of each category, the last: without one.
    """

    column: Column
    count: int
    mean: float = 0.0
    variance: float = 0.0
    counts: tuple[int, ...] = ()


def report_width(columns: Sequence[Column]) -> int:
    """How many numbers a client reports.

    Example:
        >>> report_width([Column("age", "number"), Column("sex", "category", ("f", "m"))])
        6
    """
    return sum(_width(column) for column in columns)


def _width(column: Column) -> int:
    if column.kind == "category":
        return len(column.categories) + 1
    return MOMENTS


def column_report(table: RawTable, first: IntArray) -> FloatArray:
    """What a client reports of its training rows, float64 ``[report_width]``.

    Args:
        table: all rows.
        first: int64 ``[n]``, the first row of each of its training inputs.
    """
    values = table.values[table.rows(first)]
    parts = []
    for at, column in enumerate(table.columns):
        if column.kind == "category":
            parts.append(_category_counts(values[:, at], len(column.categories)))
        else:
            parts.append(_moments(values[:, at]))
    return np.concatenate([*parts, np.empty(0)])


def _category_counts(codes: FloatArray, categories: int) -> FloatArray:
    places = np.where(np.isnan(codes), categories, codes).astype(np.int64)
    return np.bincount(places, minlength=categories + 1).astype(np.float64)


def _moments(values: FloatArray) -> FloatArray:
    known = values[~np.isnan(values)]
    if not len(known):
        return np.zeros(MOMENTS)
    mean = known.mean()
    # Around the client's own mean: squares of large numbers, such as dates, would lose digits.
    return np.array([len(known), mean, np.square(known - mean).sum()])


def report_bytes(columns: Sequence[Column], reports: FloatArray) -> IntArray:
    """Bytes of each report, int64 ``[n]``: its numbers, and the names of the categories in it.

    Args:
        columns: of the table.
        reports: float64 ``[n, report_width]``.
    """
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

    Args:
        columns: of the table.
        reports: float64 ``[n, report_width]``, one row a client.

    Example:
        >>> columns = [Column("age", "number")]
        >>> (age,) = add_reports(columns, np.array([[2.0, 1.5, 0.5], [1.0, 3.0, 0.0]]))
        >>> age.count, age.mean, round(age.variance, 6)
        (3, 2.0, 0.666667)
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
            found.append(_add_moments(column, part))
    return tuple(found)


def _add_moments(column: Column, part: FloatArray) -> ColumnTotals:
    count, means, squares = part.T
    n = count.sum()
    if n == 0:
        return ColumnTotals(column, 0)
    mean = (count * means).sum() / n
    variance = (squares + count * np.square(means - mean)).sum() / n
    return ColumnTotals(column, int(n), float(mean), float(variance))
