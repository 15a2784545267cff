"""The rows of a table, and the values of a column by its kind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .errors import DataError, column_error, missing_column
from .kinds import (
    ARRAY,
    AS_TEXT,
    BOOLEAN,
    NUMBER,
    TIME,
    is_array,
    is_array_type,
    kind_of_column,
    types_of,
)
from .texts import (
    COMMA_PATTERN,
    EXACT,
    GROUPS_PATTERN,
    MISSING,
    MISSING_WORDS,
    NUMBER_PATTERN,
    SHOWN,
    TEXTS,
    TIME_PATTERN,
    beyond_exact,
    boolean_of,
    commas_are_decimal,
    in_microseconds,
    is_missing_word,
    is_number,
    is_real,
    is_text,
    moment_of,
    read_number,
    text_of,
)

FRAME = "data"  # where rows are that are in no file
FILE_NAME = "(file)"  # as the column of clients: the name of the file that a row is in
FLOAT32_MAX = 3.4028234e38
SECONDS_A_DAY = 86_400.0


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a file, of several, or of a frame.

    Args:
        where: the file, for messages.
        typed: whether the file says which columns are numbers and which are text, as parquet does.
        separator: between the fields of a CSV file.
        lines: what a user should know, a line each.
        as_names: column -> words for missing values that are names in it.
        thousands: columns whose points may stand before thousands -> such a value.
        missing: words of the user's that were read as missing values.
    """

    frame: pd.DataFrame
    where: str = FRAME
    typed: bool = True
    separator: str = ","
    lines: tuple[str, ...] = ()
    as_names: Mapping[str, Collection[str]] = field(default_factory=dict)
    thousands: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, without those of an index."""
        return tuple(self.frame.columns)

    def column(self, name: str, option: str = "") -> pd.Series:
        """A column; ``option`` is what asks for it, for the error line."""
        if name not in self.frame.columns:
            raise missing_column(self.where, name, self.names, option)
        return self.frame[name]

    def kept(self, keep: Any) -> Rows:
        """Some of the rows, by a mask or by their numbers."""
        if keep.dtype.kind == "b":
            if keep.all():
                return self
            keep = np.flatnonzero(keep)
        return replace(self, frame=self.frame.take(keep))

    @property
    def name(self) -> str:
        """The name of the file, without its folder."""
        return Path(self.where).name

    def present(self, name: str, kind: str | None = None) -> Any:
        """Whether each row has a value, bool ``[R]``."""
        if kind in (NUMBER, BOOLEAN, TIME) and self.kind(name) != ARRAY:
            return ~np.isnan(self.values(name, kind))
        if kind is None or kind in AS_TEXT:
            return self.factor(name)[0] >= 0
        return self.frame[name].notna().to_numpy()

    def type_of(self, name: str) -> str:
        """What the values of a column are, for messages."""
        kind = self.frame[name].dtype
        if isinstance(kind, pd.ArrowDtype):
            return str(kind.pyarrow_dtype)
        arrays = sorted(one.__name__ for one in types_of(self.frame[name]) if is_array_type(one))
        return ", ".join(arrays) or str(kind)

    def kind(self, name: str) -> str:
        """The kind of the values of a column, one of `KINDS`, `ARRAY` or `EMPTY`."""
        return kind_of_column(self.column(name), self.typed, self.separator)

    def factor(self, name: str, by_value: bool = False) -> tuple[Any, tuple[str, ...]]:
        """A column as text: int64 ``[R]`` places, -1 where a value is missing, and the sorted texts.

        Args:
            by_value: numbers are sorted as such, so that 9 comes before 10.
        """
        column = self._single(name)
        self._refuse_truths_among_numbers(name)
        codes, values = pd.factorize(column)
        _refuse_inexact(values, name, self.where)
        # In their own width: 0.1 of float32 is 0.10000000149011612 as a number of Python.
        each: Any = values.tolist()
        if column.dtype.kind == "f":
            kind: Any = getattr(column.dtype, "numpy_dtype", column.dtype)
            each = np.asarray(values, kind)
        texts = [self._text(value, name) for value in each]
        known = {text for text in texts if text is not None}
        ordered = sorted(known)
        if by_value and not (self.typed and is_text(column)) and all(map(is_number, known)):
            ordered = sorted(known, key=lambda text: (float(text), text))
        place = {text: at for at, text in enumerate(ordered)}
        # The last is for missing values, whose code is -1.
        places = [-1 if text is None else place[text] for text in texts]
        return np.array([*places, -1], np.int64)[codes], tuple(ordered)

    def refused(self, code: Any, name: str, got: object, allowed: object) -> DataError:
        """The error about the values of a column."""
        return column_error(code, self.where, name, got, allowed)

    def _single(self, name: str) -> pd.Series:
        column = self.column(name)
        if is_array(column):
            raise self.refused("wrong-shape", name, self.type_of(name), "one value per row")
        return column

    def texts(self, name: str, missing: str | None = None) -> Any:
        """A column as text, object ``[R]``."""
        codes, names = self.factor(name)
        return np.array([*names, missing], dtype=object)[codes]

    def _text(self, value: Any, name: str) -> str | None:
        text = text_of(value, comma=self.separator != ",")
        word = text.strip()
        # Text without a letter says nothing in any file; a word may be a name where there are types.
        if not word or (
            not self.typed and word in MISSING and word not in self.as_names.get(name, ())
        ):
            return None
        return text

    def numbers(self, name: str, largest: float = FLOAT32_MAX) -> Any:
        """A column of numbers or booleans, float64 ``[R]``, NaN where a value is missing.

        Args:
            largest: a larger number is refused.
        """
        column = self._single(name)
        self.refuse_unclear_signs(name)
        if (
            is_text(column)
            or pd.api.types.is_object_dtype(column.dtype)
            or isinstance(column.dtype, pd.CategoricalDtype)
        ):
            values = self._numbers_of_texts(name)
        elif pd.api.types.is_numeric_dtype(column.dtype) and column.dtype.kind != "c":
            if pd.api.types.is_integer_dtype(column.dtype):
                _refuse_rounded(column, name, self.where)
            values = np.array(column.to_numpy(np.float64, na_value=np.nan), np.float64)
        else:
            raise self._wrong(name, NUMBER, str(column.dtype))
        # By default that of float32, with which networks compute.
        large = np.abs(values) > largest
        if large.any():
            row = int(large.argmax())
            got = "infinity" if np.isinf(values[row]) else f"{values[row]:g}"
            expected = f"numbers up to {largest:.1e}"
            raise self.refused("out-of-range", name, f"{got} in row {row}", expected)
        return values

    def _numbers_of_texts(self, name: str) -> Any:
        try:
            parse = partial(read_number, comma=self.has_decimal_commas(name))
            values = self._parsed(name, NUMBER, parse)
        except DataError:
            # With missing values, pandas reads yes and no as text.
            if self.kind(name) != BOOLEAN:
                raise
            return self.booleans(name)
        # Among fractions, large numbers are measurements, and no identifiers.
        if (np.isnan(values) | (values == np.floor(values))).all():
            # 2^53 itself may be one more that was rounded.
            _refuse_rounded(self.frame[name][np.abs(values) >= EXACT], name, self.where)
        return values

    def booleans(self, name: str) -> Any:
        """A column of yes and no as 1 and 0, float64 ``[R]``, NaN where a value is missing."""
        return self._parsed(name, BOOLEAN, boolean_of)

    def times(self, name: str) -> Any:
        """A column of times as days since 1 January 1970, float64 ``[R]``, NaN where one is missing."""
        moments = self.moments(name)
        days = moments.astype(np.int64) / 1e6 / SECONDS_A_DAY
        return np.where(np.isnat(moments), np.nan, days)

    def moments(self, name: str) -> Any:
        """A column of times, datetime64 in microseconds ``[R]``."""
        column = self.column(name)
        if pd.api.types.is_datetime64_any_dtype(column.dtype):
            return in_microseconds(pd.DatetimeIndex(column))
        if not is_text(column):
            return self._parsed(name, TIME, moment_of, np.datetime64("NaT", "us"))
        codes, values = pd.factorize(column)
        texts = pd.Series(values, dtype=column.dtype).str.strip()
        texts = texts.mask(texts.isin(MISSING_WORDS))
        wrong = texts.notna() & ~texts.str.fullmatch(TIME_PATTERN).fillna(True).astype(bool)
        moments = pd.to_datetime(texts.mask(wrong), format="ISO8601", utc=True, errors="coerce")
        wrong |= texts.notna() & moments.isna()
        if wrong.any():
            at = int(wrong.to_numpy().argmax())
            raise self._wrong(name, TIME, repr(texts[at]), codes == at)
        return np.append(in_microseconds(pd.DatetimeIndex(moments)), np.datetime64("NaT", "us"))[
            codes
        ]

    def values(self, name: str, kind: str) -> Any:
        """A column by its kind, float64 ``[R]``; of categories see `factor`."""
        if kind == TIME:
            return self.times(name)
        if kind == BOOLEAN:
            return self.booleans(name)
        return self.numbers(name)

    def _different_texts(self, name: str) -> pd.Series:
        """The different texts of a column, without spaces at their ends."""
        column = self._single(name)
        values = []
        if is_text(column) or pd.api.types.is_object_dtype(column.dtype):
            values = [value for value in column.unique() if isinstance(value, str)]
        return pd.Series(values, dtype=TEXTS).str.strip()

    def has_decimal_commas(self, name: str) -> bool:
        """Whether commas in the numbers of a column are decimal marks."""
        return commas_are_decimal(self._different_texts(name), self.separator)

    def lines_on_commas(self, names: Collection[str]) -> list[str]:
        """A line about columns of numbers whose commas are decimal marks, in a file whose fields are
        separated by commas."""
        found = []
        for name in names:
            if self.separator == "," and name in self.names:
                texts = self._different_texts(name)
                commas = texts[texts.str.fullmatch(COMMA_PATTERN)]
                found += [f"{name} ({value!r})" for value in commas.iloc[:1]]
        if not found:
            return []
        shown = ", ".join(found[:SHOWN])
        if len(found) > SHOWN:
            shown += f" and {len(found) - SHOWN} more"
        remedy = "if a column holds codes, set it to 'category' in [data.columns]"
        return [f"{self.name}: commas are read as decimal points in column {shown}; {remedy}"]

    def with_number_texts(self, name: str) -> Rows:
        """The rows with a text column of numbers as these are read, but as text: with points, and
        without the words of missing values."""
        column = self.frame[name]
        if pd.api.types.is_object_dtype(column.dtype):
            values = [None if is_missing_word(value) else value for value in column]
            read = pd.Series(values, column.index, dtype=object)
            return replace(self, frame=self.frame.assign(**{name: read}))
        if not is_text(column):
            return self
        self.refuse_unclear_signs(name)
        texts = pd.Series(column, dtype=TEXTS).str.strip()
        read = texts.mask(texts.isin(MISSING_WORDS))
        if not self.typed and self.has_decimal_commas(name):
            commas = read.str.fullmatch(COMMA_PATTERN).fillna(False).astype(bool)
            read = read.mask(commas, read.str.replace(",", ".", regex=False))
        return replace(self, frame=self.frame.assign(**{name: read}))

    def refuse_unclear_signs(self, name: str) -> None:
        """Refuse a column with points and commas, or with commas that may stand before thousands: whether
        1.234 is more than 1000 cannot be known."""
        if name in self.thousands:
            got = f"{self.thousands[name]!r}, while other columns have decimal commas"
            raise self.refused("in-conflict", name, got, "one decimal mark in the whole file")
        texts = self._different_texts(name)
        # Most columns have none, and the patterns take much longer.
        if not len(texts) or not texts.str.contains(",", regex=False).any():
            return
        commas = texts[texts.str.fullmatch(f"{COMMA_PATTERN}|{GROUPS_PATTERN}")]
        if len(commas) and not commas_are_decimal(texts, self.separator):
            expected = (
                "numbers without a comma, which could be a decimal mark or separate thousands"
            )
            raise self.refused("in-conflict", name, repr(commas.iloc[0]), expected)
        points = texts[texts.str.fullmatch(NUMBER_PATTERN) & texts.str.contains(".", regex=False)]
        if len(commas) and len(points):
            got = f"{points.iloc[0]!r} and {commas.iloc[0]!r}"
            expected = (
                "the same decimal mark in all rows, and no thousands separators (if they are "
                f"codes: [data.columns] {name} = 'category')"
            )
            raise self.refused("in-conflict", name, got, expected)

    def _refuse_truths_among_numbers(self, name: str) -> None:
        """Refuse True among numbers: pandas takes it for 1, or 1 for it, whichever is first."""
        column = self.column(name)
        if not pd.api.types.is_object_dtype(column.dtype):
            return
        present = column[column.notna()]
        truths = [value for value in present if isinstance(value, (bool, np.bool_))]
        numbers = [value for value in present if is_real(value)]
        if truths and numbers:
            got = f"{truths[0]} and {numbers[0]}"
            raise self.refused("in-conflict", name, got, "numbers alone, or True and False alone")

    def _parsed(
        self, name: str, kind: str, parse: Callable[[Any], Any], missing: Any = np.float64("nan")
    ) -> Any:
        """Each different value once, by ``parse``."""
        column = self._single(name)
        codes, values = pd.factorize(column)
        found = []
        for at, value in enumerate(values.tolist()):
            if is_missing_word(value):
                found.append(missing)
                continue
            try:
                found.append(parse(value))
            except (ValueError, TypeError):
                raise self._wrong(name, kind, repr(value), codes == at) from None
        return np.array([*found, missing], missing.dtype)[codes]

    def _wrong(self, name: str, kind: str, got: str, rows: Any = None) -> DataError:
        """The error about a value that is not of its column's kind, with the first row that has it."""
        word = "date" if kind == TIME else kind
        expected = f"a {word} in each row"
        if rows is not None:
            got += f" in row {self.frame.index[rows][0]}, counted from 0"
            expected = (
                f"a {word} or an empty field; data.missing lists other words for missing values"
            )
        return self.refused("wrong-type", name, got, expected)


def missing_values(rows: Rows, name: str, count: int) -> DataError:
    """The error for a column that lacks values."""
    return rows.refused("missing", name, f"{count} missing values", "a value in every row")


def _too_large(got: str, name: str, where: str) -> DataError:
    return column_error("out-of-range", where, name, got, "at most 2^53, or text")


def _refuse_rounded(column: pd.Series, name: str, where: str) -> None:
    """Float64 would make different whole numbers of this size one; they are mostly identifiers."""
    values: Any = column.unique()
    if pd.api.types.is_integer_dtype(column.dtype):
        values = [column.min(), column.max()]
    for value in beyond_exact(values):
        raise _too_large(f"the whole number {value}", name, where)


def _refuse_inexact(values: Any, name: str, where: str) -> None:
    if not pd.api.types.is_float_dtype(values.dtype):
        return
    sizes = np.abs(np.asarray(values, np.float64))
    if (sizes > EXACT).any():
        raise _too_large(f"{sizes.max():g} as a floating-point number", name, where)
