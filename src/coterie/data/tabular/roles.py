"""What the columns of a user's table are for: labels, clients and splits, one value a row, without gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from coterie.core.arrays import IntArray
from coterie.data.rows.arrays import float32_inputs, lists_of, plain_inputs
from coterie.data.rows.errors import missing_column
from coterie.data.rows.kinds import ARRAY, CATEGORY, IDENTIFIER, NUMBER
from coterie.data.rows.table import Rows
from coterie.data.rows.texts import is_code, is_number
from coterie.data.samples import Targets
from coterie.errors import DataError
from coterie.terminal import counted, warn

Array = NDArray[Any]

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

    def __post_init__(self) -> None:
        if not self.label:
            raise DataError("missing", "data.label", "no column", allowed="at least one")

    @property
    def labels(self) -> list[str]:
        return [self.label] if isinstance(self.label, str) else self.label

    def kinds(self, targets: Targets) -> dict[str, str]:
        """The kinds of columns that follow from what they are for."""
        found = {self.client: IDENTIFIER, self.split: CATEGORY}
        kind = CATEGORY
        if targets == "numbers" or not isinstance(self.label, str):
            kind = NUMBER
        return found | dict.fromkeys(self.labels, kind)

    def named_features(self, rows: Rows, forecast: bool = False) -> list[str]:
        """The columns of inputs that are named: each of the file, once, and of no other use.

        Args:
            forecast: whether labels are inputs as well, since their past is known.
        """
        names = [self.features] if isinstance(self.features, str) else self.features
        used = {self.client: "client", self.split: "split"}
        if not forecast:
            used |= dict.fromkeys(self.labels, "label")
        for name in names:
            if name not in rows.names:
                raise missing_column(rows.where, name, [*rows.names, "*"], "features")
            if names.count(name) > 1:
                what = f"{name!r} occurs twice"
                raise DataError("in-conflict", "data.features", what, allowed="each column once")
            if name in used:
                what = f"{name!r} is already used as data.{used[name]}"
                raise DataError("in-conflict", "data.features", what, allowed="other columns")
        return names

    def required(self, rows: Rows) -> list[str]:
        """The columns without whose values a row is of no use."""
        for name in self.labels:
            rows.column(name, "label")
        # The default column may be absent; one that the user named must be there.
        if self.client not in rows.names and self.client == "client":
            return self.labels
        rows.column(self.client, "client")
        return [*self.labels, self.client]

    def owners(self, rows: Rows) -> dict[str, Array]:
        """The client of each row, under the name of the column and under ``client``."""
        if self.client not in rows.names:
            return {}
        # Under both names, so that partitions find the clients whatever the file calls them.
        return dict.fromkeys({self.client, "client"}, identifiers(rows, self.client))


def identifiers(rows: Rows, name: str) -> Array:
    """The identifiers of a column; those that are written as numbers are, so that 9 is before 10."""
    codes, names = rows.factor(name)
    known = np.array(names, dtype=object)
    # By what they say, not by the type of the column: one file has another than several.
    for number in (int, float):
        # Only where the number says the same: 007 and 7 are two clients.
        if all(is_number(one) and _text_of(number, one) == one for one in names):
            known = np.array([number(one) for one in names])
            break
    return known[codes]


def _text_of(number: type[int] | type[float], text: str) -> str:
    """The text of a number that a text says; empty where it is none of this kind."""
    try:
        value = number(text)
    except ValueError:
        return ""
    if number is int and abs(value) >= 2**63:
        return ""
    return str(value)


def complete(rows: Rows, kinds: Mapping[str, str], names: Sequence[str]) -> NDArray[np.bool_]:
    """Which rows have a label and a client; a warning says how many have none."""
    found = np.ones(len(rows), bool)
    for name in names:
        present = rows.present(name, kinds[name])
        lost = int((found & ~present).sum())
        if lost:
            warn(f"{rows.name}: left out {counted(lost, 'row')} without {name}")
        found &= present
    if not found.any():
        what = f"no rows with {', '.join(names)}" if len(rows) else "no rows"
        raise DataError("missing", rows.where, what)
    return found


def read_targets(
    rows: Rows, label: str | list[str], targets: Targets
) -> tuple[Array, tuple[str, ...]]:
    """The labels as classes ``0..c-1`` with their names, or as numbers without names."""
    if targets == "numbers" or (targets == "auto" and look_like_numbers(rows, label)):
        return _numbers(rows, label), ()
    if not isinstance(label, str):
        expected = "one name, or a [task] with several targets"
        raise DataError("does-not-fit", "data.label", found=label, allowed=expected)
    codes, names = rows.factor(label, by_value=True)
    if all(map(is_number, names)) and not all(map(_is_whole, names)):
        raise rows.refused("wrong-type", label, "fractions", "whole numbers or text as labels")
    return codes, names


def _is_whole(text: str) -> bool:
    return text.lstrip("+-").isdigit()


def look_like_numbers(rows: Rows, label: str | list[str]) -> bool:
    """Whether labels are numbers to predict: with fractions, or with nearly as many values as rows."""
    if not isinstance(label, str):
        return True
    _, names = rows.factor(label)
    # Text of a file with types is no number, whatever it looks like; decimals are.
    if rows.typed and rows.kind(label) != NUMBER:
        return False
    # Codes with leading zeros are no numbers.
    if not all(is_number(one) and not is_code(one) for one in names):
        return False
    if not all(map(_is_whole, names)):
        return True
    # Codes of many classes have many rows each; measurements rarely repeat.
    return len(names) > MANY_VALUES and len(names) * FEW_ROWS > len(rows)


def _numbers(rows: Rows, label: str | list[str]) -> Array:
    """Targets as they are: float32, or int64 for rows of whole numbers such as tokens."""
    if isinstance(label, str) and rows.kind(label) == ARRAY:
        values = lists_of(rows, label)
    else:
        values = plain_inputs(rows, label)
        columns = rows.frame[[label] if isinstance(label, str) else label]
        if all(map(pd.api.types.is_integer_dtype, columns.dtypes)):
            values = values.astype(np.int64)
    if values.shape[1:] == (1,):
        values = values[:, 0]
    if values.dtype.kind in "iu" and values.ndim > 1:
        return values.astype(np.int64)
    names = label
    if values.ndim == 1 and not isinstance(label, str):
        names = label[0]
    return float32_inputs(values, rows.where, names)


def train_rows_first(rows: Rows, name: str) -> tuple[IntArray, int]:
    """An order of the rows that puts training rows first, int64 ``[R]``, and how many there are: all
    where the file has no split."""
    if name not in rows.names and name == "split":
        return np.arange(len(rows)), len(rows)
    rows.column(name, "split")
    values = rows.texts(name, "nothing")
    unknown = sorted(set(values) - {"train", "test"})
    if unknown:
        raise rows.refused("unknown-choice", name, repr(unknown[0]), "train or test")
    is_test = values == "test"
    # Stable: within train and within test the rows keep the order of the file.
    return np.argsort(is_test, kind="stable"), int((~is_test).sum())
