"""A table as it was read, and the options of how its columns become inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, field_validator

from coterie.config.schema import Bool, Float, Int, Table
from coterie.core.arrays import FloatArray, IntArray

Count = Annotated[Int, Field(ge=1)]

ColumnKind = Literal["number", "boolean", "time", "category", "identifier", "text"]


class Encode(Table):
    """``[data.encode]``: how columns become numbers.

    Args:
        scaling: ``standard``: mean 0 and standard deviation 1 over all training rows; ``none``.
        rare: categories with fewer training rows than this share one feature.
        missing_flags: a further feature for each number with missing values: 1 where it is missing.
        categories: columns of numbers that are codes of categories.
        leave_out: columns that are not used.
        noise: standard deviation of the noise on the sum of what clients report, in multiples of
            how far one client can move it; ``None``: they report without noise.
        ranges: with noise, the lowest and the highest value of each column of numbers or dates.
        values: with noise, the categories of each column of text.
    """

    scaling: Literal["standard", "none"] = "standard"
    rare: Count = 5
    missing_flags: Bool = False
    categories: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    noise: Annotated[Float, Field(gt=0)] | None = None
    ranges: dict[str, tuple[Float, Float]] = Field(default_factory=dict)
    values: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @field_validator("ranges")
    @classmethod
    def _low_before_high(
        cls, ranges: dict[str, tuple[float, float]]
    ) -> dict[str, tuple[float, float]]:
        for name, (low, high) in ranges.items():
            if not low < high:
                raise ValueError(f"{name}: expected [lowest, highest], got [{low:g}, {high:g}]")
        return ranges


class Window(Table):
    """``[data.window]``: inputs are the last rows of a series, the target is a later one.

    Args:
        time: the column that orders the rows of a client; numbers or dates.
        past: rows of one input.
        horizon: how many rows after the last one of the input the target is.
        stride: rows between the beginnings of two inputs.
        season: rows of a season, for the seasonal persistence; 0: there is none.
        test_fraction: the last share of each client's rows is for testing.
    """

    time: str = "time"
    past: Count = 24
    horizon: Count = 1
    stride: Count = 1
    season: Annotated[Int, Field(ge=0)] = 0
    test_fraction: Annotated[Float, Field(gt=0, lt=1)] = 0.2


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; ``categories`` has all values of a category, sorted."""

    name: str
    kind: ColumnKind
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """What columns of a table's file are for that are no inputs.

    Args:
        window: the window of a series.
        moments: the kind of the column of its times.
        step: between two rows of a series, in its unit, of times in days.
        kinds: the kinds of all columns, including those that are not used.
        missing: words of the user's for missing values.
        why_text: column -> why it is text although it may have been meant as numbers, or is left
            out as text.
    """

    label: str | list[str] = "y"
    client: str = "client"
    window: Window | None = None
    moments: str = "number"
    step: float = 0.0
    kinds: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()
    why_text: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        return [self.label] if isinstance(self.label, str) else self.label


@dataclass(frozen=True, eq=False, slots=True)
class RawTable:
    """A table as it was read.

    Args:
        values: float64 ``[R, p]``, NaN where a value is missing. Numbers are as in the file,
            booleans 0 or 1, times days since 1 January 1970, categories their place in
            ``categories`` of the column.
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
        """The rows of the inputs that begin in some rows, each once, ascending."""
        if self.past is None:
            return np.unique(first)
        return np.unique(first[:, None] + np.arange(self.past))
