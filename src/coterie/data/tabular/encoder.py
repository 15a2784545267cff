"""From columns of every kind to the numbers that a network is given.

The features are those of scikit-learn's ``SimpleImputer``, ``StandardScaler`` and ``OneHotEncoder``.
They are not fitted on rows, which stay with their clients, but on what the clients report
(`coterie.data.tabular.reports`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray
from coterie.core.keys import Key
from coterie.data.tabular.new_rows import NO_VALUE as MISSING
from coterie.data.tabular.new_rows import encoded
from coterie.data.tabular.raw import Column, ColumnKind, Encode, RawTable
from coterie.data.tabular.reports import MOMENTS, ColumnTotals, value_range
from coterie.errors import DataError
from coterie.terminal import first_few

OTHER = "(other)"  # the feature of rare categories, and of those that no training row has
# A variance below this share of the squared mean is rounding, and the column has one value.
_ROUNDING = 1e-24
# Mean and variance of a column of which the noise leaves nothing: evenly within its range.
_EVEN_MEAN = 1 / 2
_EVEN_VARIANCE = 1 / 12
# A smaller share of the squared range is noise, and would blow a feature up.
_LEAST_VARIANCE = 1e-4


@dataclass(frozen=True, slots=True)
class NumberRule:
    """A column of numbers, booleans or dates: ``(x - center) / scale``.

    Args:
        fill: the mean, which replaces missing values.
        flag: whether a further feature is 1 where the value is missing.
    """

    name: str
    kind: ColumnKind
    fill: float
    center: float
    scale: float
    flag: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        if self.flag:
            return (self.name, f"{self.name} {MISSING}")
        return (self.name,)


@dataclass(frozen=True, slots=True)
class CategoryRule:
    """A column of categories: a feature for each common one, and one for all others.

    Args:
        common: categories with a feature of their own, sorted.
        rare: those of training rows that share a feature, sorted; without any, there is none.
    """

    name: str
    common: tuple[str, ...]
    rare: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        names = [f"{self.name} = {category}" for category in self.common]
        if self.rare:
            names.append(f"{self.name} = {OTHER}")
        return tuple(names)

    @property
    def note(self) -> str:
        """What the feature of the other categories stands for; empty where there is none."""
        if not self.rare:
            return ""
        return (
            f"{self.name} = {OTHER} combines rare categories (here {first_few(self.rare)}) and those that no "
            "training row has; data.encode.rare sets the number of rows from which a category "
            "has its own input"
        )


Rule = NumberRule | CategoryRule


@dataclass(frozen=True)
class Encoder:
    """What becomes of each column, and a line for each one that is left out."""

    rules: tuple[Rule, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, totals: Sequence[ColumnTotals], encode: Encode, rows: int) -> Encoder:
        """The encoder for what clients reported of so many training rows."""
        rules: list[Rule] = []
        notes: list[str] = []
        for total in totals:
            made: Rule | str
            if total.column.kind == "category":
                made = _category_rule(total, encode)
            else:
                made = _number_rule(total, encode, rows)
            if isinstance(made, str):
                notes.append(f"column {total.column.name}: {made}; left out")
            else:
                rules.append(made)
        if not rules:
            reasons = "; ".join(notes) or "no column"
            what = "no features remain"
            raise DataError("does-not-fit", "data.features", what, found=reasons)
        return cls(tuple(rules), tuple(notes))

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features, in their order."""
        return tuple(name for rule in self.rules for name in rule.features)

    @property
    def rare_notes(self) -> tuple[str, ...]:
        """A line for each column whose rare categories share a feature."""
        found = (rule.note for rule in self.rules if isinstance(rule, CategoryRule))
        return tuple(note for note in found if note)

    def encode(self, table: RawTable) -> NDArray[np.float32]:
        """The features of each row, float32 ``[R, q]``."""
        columns: dict[str, Any] = {}
        for column, values in zip(table.columns, table.values.T, strict=True):
            columns[column.name] = values
            if column.kind == "category":
                codes = np.where(np.isnan(values), -1, values).astype(np.int64)
                columns[column.name] = (codes, column.categories)
        return encoded(self.record(), columns, len(table.values))

    def record(self) -> list[dict[str, Any]]:
        """As plain values, for a file."""
        return [asdict(rule) for rule in self.rules]

    @classmethod
    def read(cls, record: Sequence[Mapping[str, Any]]) -> Encoder:
        """The encoder of `record`."""
        rules: list[Rule] = []
        for one in record:
            if "common" in one:
                rules.append(CategoryRule(one["name"], tuple(one["common"]), tuple(one["rare"])))
            else:
                rules.append(NumberRule(**one))
        return cls(tuple(rules))


def _number_rule(total: ColumnTotals, encode: Encode, rows: int) -> NumberRule | str:
    """The rule of a column of numbers, or why it is left out."""
    if not total.count:
        return "no value in any training row"
    if total.variance <= _ROUNDING * total.mean**2:
        return f"only the value {total.mean:g} in training rows"
    # A flag of a column that misses nothing would be constant.
    flag = encode.missing_flags and total.count < rows
    column = total.column
    if encode.scaling == "none":
        return NumberRule(column.name, column.kind, total.mean, 0.0, 1.0, flag)
    deviation = float(np.sqrt(total.variance))
    return NumberRule(column.name, column.kind, total.mean, total.mean, deviation, flag)


def _category_rule(total: ColumnTotals, encode: Encode) -> CategoryRule | str:
    """The rule of a column of categories, or why it is left out."""
    if not total.count:
        return "no value in any training row"
    # A missing value is a category like any other, since that it is missing may say something.
    named = zip((*total.column.categories, MISSING), total.counts, strict=True)
    held = {name: count for name, count in named if count}
    common = sorted(name for name, count in held.items() if count >= encode.rare)
    rare = sorted(name for name, count in held.items() if count < encode.rare)
    if len(held) == 1:
        return f"only the value {next(iter(held))!r} in training rows"
    if not common:
        return f"no value in {encode.rare} training rows (data.encode.rare)"
    return CategoryRule(total.column.name, tuple(common), tuple(rare))


# --- from the sum of reports with noise ------------------------------------------------------------


def private_encoder(table: RawTable, reports: FloatArray, key: Key) -> Encoder:
    """The encoder from the noised sum of what clients report of their training rows.

    With ``z`` the noise of ``[data.encode]`` and ``q`` columns of numbers, the sum of all reports
    has normal noise of standard deviation ``z sqrt(3 q)`` on each number. One client more changes
    the sum by a vector of length ``sqrt(3 q)`` at most, so this is one Gaussian mechanism with
    multiplier ``z``, whatever the client holds.
    """
    encode = table.encode
    assert encode.noise is not None
    deviation = encode.noise * math.sqrt(reports.shape[1])
    # A stream of its own, the same whenever the table is described: a resumed run, or a prediction,
    # releases nothing new.
    noise = key.of("privacy/columns").generator().normal(0.0, deviation, reports.shape[1])
    sums = iter((reports.sum(axis=0) + noise).reshape(-1, MOMENTS))
    rules: list[Rule] = []
    for column in table.columns:
        if column.kind == "category":
            common = tuple(sorted(encode.values[column.name]))
            rules.append(CategoryRule(column.name, (MISSING, *common)))
        else:
            rules.append(_noised_number_rule(column, next(sums), deviation, encode))
    return Encoder(tuple(rules))


def _noised_number_rule(
    column: Column, sums: FloatArray, deviation: float, encode: Encode
) -> NumberRule:
    """The rule of a column of numbers, by its noised sums ``[3]``."""
    count, first, second = sums.tolist()
    mean = _EVEN_MEAN
    variance = _EVEN_VARIANCE
    # Fewer clients than that are no more than the noise.
    if count > deviation:
        mean = min(max(first / count, 0.0), 1.0)
        found = second / count - mean**2
        if found >= _LEAST_VARIANCE:
            # No values in the range vary more than those at its two ends.
            variance = min(found, 1 / 4)
    low, high = value_range(column, encode)
    center = low + mean * (high - low)
    if encode.scaling == "none":
        return NumberRule(column.name, column.kind, center, 0.0, 1.0, encode.missing_flags)
    scale = math.sqrt(variance) * (high - low)
    return NumberRule(column.name, column.kind, center, center, scale, encode.missing_flags)
