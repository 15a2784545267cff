"""A table as it was read: columns of every kind as float64, with missing values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.core.arrays import FloatArray, IntArray
from coterie.data.tabular.options import Encode, Window

ColumnKind = Literal["number", "boolean", "date", "category"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Args:
        name: of the column.
        kind: what its values are.
        categories: of a ``category``: all values, sorted.
    """

    name: str
    kind: ColumnKind
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """What columns of a table's file are for that are no inputs.

    Args:
        label: the column of labels, or several.
        client: the column that names the client.
        window: of a series; ``None``: a row is an input.
    """

    label: str | list[str] = "y"
    client: str = "client"
    window: Window | None = None


@dataclass(frozen=True, eq=False, slots=True)
class RawTable:
    """A table as it was read.

    Args:
        columns: ``p`` of them.
        values: float64 ``[R, p]``, NaN where a value is missing. Numbers are as in the file,
            booleans 0 or 1, dates days since 1 January 1970, categories their place in
            ``categories`` of the column.
        encode: how columns become numbers.
        origin: which columns of the file are no inputs.
    """

    columns: tuple[Column, ...]
    values: FloatArray
    encode: Encode
    origin: Origin = Origin()

    @property
    def past(self) -> int | None:
        """Rows of one input of a series; ``None``: an input is one row."""
        if self.origin.window is None:
            return None
        return self.origin.window.past

    def rows(self, first: IntArray) -> IntArray:
        """The rows of some inputs, each once, ascending.

        Args:
            first: int64 ``[n]``, the first row of each input.
        """
        if self.past is None:
            return np.unique(first)
        return np.unique(first[:, None] + np.arange(self.past))
