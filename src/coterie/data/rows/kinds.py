"""The kinds of columns, and how they are found."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import time, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .texts import (
    CODE_PATTERN,
    CODES,
    COMMA_PATTERN,
    GROUPS_PATTERN,
    MISSING_WORDS,
    NUMBER_PATTERN,
    TEXTS,
    TIME_PATTERN,
    commas_are_decimal,
    is_missing_word,
    is_number,
    is_real,
    is_text,
)

if TYPE_CHECKING:
    from .table import Rows

IDENTIFIER = "identifier"
CATEGORY = "category"
NUMBER = "number"
BOOLEAN = "boolean"
TIME = "time"
TEXT = "text"
KINDS = (IDENTIFIER, CATEGORY, NUMBER, BOOLEAN, TIME, TEXT)
AS_TEXT = (IDENTIFIER, CATEGORY, TEXT)
# Lists, bytes, records, times of a day and durations, of which no feature of a table is made.
ARRAY = "array"
EMPTY = "empty"  # a column without any value
# A text whose values hardly repeat, in so many rows, is no category.
TEXT_SHARE = 0.9
TEXT_ROWS = 100
LISTS = (list, tuple, np.ndarray)  # values of a column that hold several
_ARRAYS = (*LISTS, dict, bytes, time, timedelta, np.timedelta64)
_HEAD = 1_000  # values that are looked at first


def kind_of_column(column: pd.Series, typed: bool, separator: str) -> str:
    """The kind of the values of a column, by its type, or in a file without types by its texts."""
    kind = column.dtype
    if is_array(column):
        return ARRAY
    if column.isna().all():
        return EMPTY
    # Codes such as 1, 2 and 3 that were made categories are not meant as numbers.
    if isinstance(kind, pd.CategoricalDtype) and kind.categories.dtype.kind in "iu":
        return CATEGORY
    if pd.api.types.is_bool_dtype(kind):
        return BOOLEAN
    if pd.api.types.is_numeric_dtype(kind):
        return NUMBER
    if pd.api.types.is_datetime64_any_dtype(kind):
        return TIME
    if not is_text(column):
        different = pd.factorize(column)[1].tolist()
        values = [value for value in different if not is_missing_word(value)]
        if not all(isinstance(value, str) for value in values):
            return _kind_of_objects(values)
    found = CATEGORY if typed else _kind_of_texts(column, separator)
    if found == CATEGORY and _hardly_repeats(column):
        return TEXT
    return found


def _hardly_repeats(column: pd.Series) -> bool:
    """Whether a column has more different values than a category."""
    # Most columns repeat so much in their first rows that the others need not be counted.
    rows = len(column)
    most = TEXT_SHARE * max(rows, TEXT_ROWS)
    first = column.iloc[: rows // 8]
    if first.nunique() + rows - len(first) <= most:
        return False
    return column.nunique() > most


def _kind_of_texts(column: pd.Series, separator: str) -> str:
    number = f"{NUMBER_PATTERN}|{COMMA_PATTERN}"
    patterns = {NUMBER: number, TIME: TIME_PATTERN, BOOLEAN: "(?i:true|false)"}
    # The first values rule most kinds out, and spare a look at a million of others.
    for part in (column.iloc[:_HEAD], column):
        words = _words(part)
        if part is column and words.empty:
            return EMPTY
        patterns = {
            kind: pattern
            for kind, pattern in patterns.items()
            if words.str.fullmatch(pattern).all()
        }
        if not patterns:
            return CATEGORY
    if NUMBER in patterns and not _are_numbers(words, separator):
        return CATEGORY
    return next(iter(patterns))


def _are_numbers(words: pd.Series, separator: str) -> bool:
    """Whether texts that are written as numbers are meant as such."""
    if words.str.fullmatch(CODE_PATTERN).any():
        return False
    if separator != "," or not words.str.contains(",", regex=False).any():
        return True
    # A few such as 1,2 may be codes, or lists of two.
    return commas_are_decimal(words, separator) and words.nunique() > CODES


def _words(column: pd.Series) -> pd.Series:
    """Values without spaces at their ends, and without those that are missing."""
    values: Any = column
    # Where they repeat, each once.
    if column.iloc[:_HEAD].nunique() < _HEAD / 2:
        values = column.unique()
    texts = pd.Series(values, dtype=TEXTS).dropna().str.strip()
    return texts[~texts.isin(MISSING_WORDS)]


def _kind_of_objects(values: Sequence[Any]) -> str:
    found = pd.api.types.infer_dtype(values)
    kinds = {
        "boolean": BOOLEAN,
        "integer": NUMBER,
        "floating": NUMBER,
        "mixed-integer-float": NUMBER,
        "decimal": NUMBER,
        "date": TIME,
        "datetime": TIME,
        "datetime64": TIME,
    }
    if found in kinds:
        return kinds[found]
    # Decimals among numbers of another type.
    return NUMBER if all(map(is_real, values)) else CATEGORY


def decide_kinds(files: Sequence[Rows], names: Sequence[str]) -> dict[str, str]:
    """The kind of each column over all files: where they differ, it is a category."""
    kinds = {}
    for name in names:
        found = {kind for _, kind in kinds_in_files(files, name)} - {EMPTY}
        if found == {NUMBER, BOOLEAN}:
            # Yes and no as 1 and 0, in a file that has no other way to say so.
            found = {NUMBER}
        if len(found) > 1:
            found = {ARRAY} if ARRAY in found else {CATEGORY}
        kinds[name] = found.pop() if found else NUMBER
    return kinds


def kinds_in_files(files: Sequence[Rows], name: str) -> list[tuple[Rows, str]]:
    """The files that have a column, and its kind in each: where it has numbers in another file, a few
    numbers with commas are no categories."""
    found = [(rows, rows.kind(name)) for rows in files if name in rows.names]
    if NUMBER not in {kind for _, kind in found}:
        return found
    return [
        (rows, NUMBER if kind in (CATEGORY, TEXT) and _has_number_texts(rows, name) else kind)
        for rows, kind in found
    ]


def _has_number_texts(rows: Rows, name: str) -> bool:
    if rows.typed:
        return False
    words = _words(rows.column(name))
    if words.str.fullmatch(CODE_PATTERN).any():
        return False
    numbers = f"{NUMBER_PATTERN}|{COMMA_PATTERN}|{GROUPS_PATTERN}"
    return bool(words.str.fullmatch(numbers).all())


def is_array(column: pd.Series) -> bool:
    """Whether values are lists, bytes or records, or times of a day or durations."""
    if isinstance(column.dtype, pd.ArrowDtype) or column.dtype.kind == "m":
        return True
    return any(map(is_array_type, types_of(column)))


def is_array_type(kind: type) -> bool:
    # What has no hash cannot be compared, such as sets and images of Pillow.
    return issubclass(kind, _ARRAYS) or kind.__hash__ is None


def types_of(column: pd.Series) -> set[type]:
    """The types of the values of a column of Python's objects, without those that are missing."""
    if not pd.api.types.is_object_dtype(column.dtype):
        return set()
    return set(map(type, column.array[column.notna().to_numpy()]))


def without_words(column: pd.Series, words: Collection[str]) -> pd.Series:
    """A column with missing values in place of these words, and of the numbers among them."""
    if is_array(column) or pd.api.types.is_bool_dtype(column.dtype):
        return column
    numbers = [float(word) for word in words if is_number(word)]
    if is_text(column):
        found = column.str.strip().isin(words)
    elif pd.api.types.is_object_dtype(column.dtype):
        found = column.map(lambda value: str(value).strip() in words)
    elif pd.api.types.is_numeric_dtype(column.dtype):
        found = column.isin(numbers)
    else:
        return column
    if pd.api.types.is_integer_dtype(column.dtype) and found.any():
        # Else pandas would make fractions of them, which hold fewer digits.
        column = column.astype("UInt64" if column.dtype.kind == "u" else "Int64")
    return column.mask(found)
