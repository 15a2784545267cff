"""Columns of which one client has other values than all others, as in another unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coterie.core.arrays import BoolArray, FloatArray, IntArray
from coterie.data import Population

# So many samples of so many clients show it as well as all of them.
SAMPLES = 50
CLIENTS = 4096
# Fewer rows of a client, or fewer clients, do not show that one has another unit.
ENOUGH_OF_CLIENT = 10
FEWEST_CLIENTS = 4


def some_of(rows: IntArray, most: int) -> IntArray:
    """At most so many of the rows, at equal distances."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, most).astype(np.int64))]


def values_of(population: Population, rows: IntArray) -> FloatArray:
    """The columns of rows as they were read, float64 ``[n, p]``, NaN where a value is missing."""
    table = population.table
    if table is not None:
        return table.raw.values[table.first[rows]]
    return population.x.numpy()[rows].astype(np.float64)


def columns_apart(
    population: Population, names: Sequence[str], label: str | Sequence[str]
) -> list[str]:
    """A line for each column of numbers in which nearly all values of one client are beyond nearly all
    values of all others, while these overlap: as a rule it has another unit."""
    table = population.table
    if population.x.ndim > 2 and table is None:
        return []
    clients = range(min(population.clients, CLIENTS))
    held = [population.train[client] for client in clients]
    columns = dict(enumerate(names))
    if table is not None:
        # Of clients that joined a run there are only the inputs.
        held = [rows[rows < len(table.first)] for rows in held]
        read = enumerate(table.raw.columns)
        columns = {number: column.name for number, column in read if column.kind == "number"}
    looked_at = {at: some_of(rows, SAMPLES) for at, rows in enumerate(held) if len(rows)}
    if len(looked_at) < FEWEST_CLIENTS:
        return []
    values = {at: values_of(population, rows) for at, rows in looked_at.items()}
    if not population.classes and population.y.ndim == 1:
        y = population.y.numpy()
        columns[-1] = str(label)
        values = {at: np.column_stack([x, y[looked_at[at]]]) for at, x in values.items()}
    ends = {at: _usual_range(of_client) for at, of_client in values.items()}
    suspicious = _with_one_beyond(ends)
    lines = []
    for number, name in columns.items():
        if not suspicious[number]:
            continue
        known = {at: range_[:, number] for at, range_ in ends.items()}
        found = client_apart({at: one for at, one in known.items() if not np.isnan(one).any()})
        if found is not None:
            client, (low, high), (least, most) = found
            lines.append(
                f"column {name}: the values of {population.names[client]} ({low:g} to {high:g}) lie "
                f"outside the range of all other clients ({least:g} to {most:g}); check its unit"
            )
    return lines


def _usual_range(values: FloatArray) -> FloatArray:
    """From where to where nine tenths of each column are, ``[2, p]``; NaN for few values."""
    ordered = np.sort(values, axis=0)  # NaN last
    known = np.count_nonzero(~np.isnan(values), axis=0)
    last = np.maximum(known - 1, 0)
    at = np.stack([np.floor(0.05 * last), np.ceil(0.95 * last)]).astype(np.int64)
    return np.where(known >= ENOUGH_OF_CLIENT, np.take_along_axis(ordered, at, axis=0), np.nan)


def _with_one_beyond(ends: Mapping[int, FloatArray]) -> BoolArray:
    """The columns in which one client is beyond all others, bool ``[p]``: all at once, since a table may
    have thousands."""
    low, high = np.stack(list(ends.values()), axis=1)

    def above(low: FloatArray, high: FloatArray) -> BoolArray:
        low, high = (np.nan_to_num(one, nan=-np.inf) for one in (low, high))
        others = high.copy()
        np.put_along_axis(others, low.argmax(axis=0)[None], -np.inf, axis=0)
        found: BoolArray = low.max(axis=0) > others.max(axis=0)
        return found

    return above(low, high) | above(-high, -low)


def client_apart(
    ranges: Mapping[int, FloatArray],
) -> tuple[int, FloatArray, tuple[float, float]] | None:
    """The client whose range of a column is apart from those of all others, its range, and that of the
    others; ``None`` if there is none, or if the others do not overlap either.

    Example:
        >>> usual = {client: np.array([100.0 + client, 150.0]) for client in range(4)}
        >>> client_apart(usual | {4: np.array([13.0, 20.0])})
        (4, array([13., 20.]), (100.0, 150.0))
        >>> client_apart({year: np.array([year, year + 0.9]) for year in range(5)})
    """
    if len(ranges) < FEWEST_CLIENTS:
        return None
    lowest = min(ranges, key=lambda client: ranges[client][1])
    highest = max(ranges, key=lambda client: ranges[client][0])
    for client in (lowest, highest):
        others = sorted(tuple(of_other.tolist()) for at, of_other in ranges.items() if at != client)
        least, most = others[0]
        together = True
        for low, high in others[1:]:
            together = together and low <= most
            most = max(most, high)
        low, high = ranges[client]
        # Where all others have one value, as of a flag, no unit explains the difference.
        if together and least < most and (high < least or low > most):
            return client, ranges[client], (least, most)
    return None
