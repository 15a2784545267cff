"""Rows of tables: what a file says, the kind of each column, and its values by this kind.

It needs NumPy and pandas alone, and pyarrow for parquet, so that `coterie export` can write a copy
of this file beside the models: an export reads rows as Coterie does.

Each column has a kind. `decide_kinds` finds it in the training files, once; later files are read by
it, whatever their values look like. Identifiers and categories are text from the first byte on.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np
import pandas as pd

try:
    from coterie.errors import DataError
except ImportError:  # beside an export, which needs no Coterie

    class DataError(ValueError):  # type: ignore[no-redef]
        """What is wrong with a file, in one line."""

        def __init__(self, code: str, path: object, what: str = "", **more: object) -> None:
            line = f"{path}: {what or code.replace('-', ' ')}"
            words = {
                "found": ", got {}",
                "allowed": "; expected {}",
                "hint": "; did you mean '{}'?",
            }
            parts = [words[name].format(value) for name, value in more.items() if value is not None]
            super().__init__(line + "".join(parts))


IDENTIFIER = "identifier"
CATEGORY = "category"
NUMBER = "number"
BOOLEAN = "boolean"
FRAME = "data"  # where rows are that are in no file
FILE_NAME = "(file)"  # as the column of clients: the name of the file that a row is in
FLOAT32_MAX = 3.4028234e38
# Networks compute with float32: where they multiply an input by itself, as in the step of a weight
# that grew with it, a larger one becomes infinite.
LARGEST_INPUT = 1.8e19
TIME = "time"
TEXT = "text"
KINDS = (IDENTIFIER, CATEGORY, NUMBER, BOOLEAN, TIME, TEXT)
AS_TEXT = (IDENTIFIER, CATEGORY, TEXT)
ARRAY = "array"  # lists, bytes and records, of which no feature of a table is made
EMPTY = "empty"  # a column without any value

# Fields of a file without types that are missing values, whatever the column's kind.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
# Words that are missing values in a column of numbers or times, and may be categories in another.
MISSING_WORDS = frozenset(
    [*MISSING, "None", "none", "n/a", "na", "-", "--", ".", "..", "#N/A", "#NA", "<NA>", "NaT", "*"]
)
# The type of columns of text, with NaN where a value is missing.
TEXTS = pd.StringDtype(na_value=np.nan)
SUFFIXES = (".parquet", ".csv")
# Up to it every whole number is a float64.
EXACT = 2**53
# A text whose values hardly repeat, in so many rows, is no category.
TEXT_SHARE = 0.9
TEXT_ROWS = 100
SECONDS_A_DAY = 86_400.0
SHOWN = 5  # values, words or names in a line

# Up to pandas 3.0 a number was not always read as the nearest one of float64.
_NEAREST = {} if pd.__version__ >= "3.1" else {"float_precision": "round_trip"}
_WHOLE = re.compile(r"(-?[1-9][0-9]*|0)\.0+")
_MIDNIGHT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]00:00:00")
# As text, since pandas matches whole columns by them.
CODE_PATTERN = "0[0-9]+"  # digits with zeros before them, such as 007
NUMBER_PATTERN = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_WITH_COMMA = r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?"
_TIME = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:?([0-9]{2})?)?)?"
)
_LISTS = (list, tuple, np.ndarray)  # values of a column that hold several
_HEAD = 1_000  # values that are looked at first
_TRUE = ("true", "1", "1.0")
_FALSE = ("false", "0", "0.0")
# What pandas calls an index that has no name, and what it makes of it when it reads it again: with
# a further number where it does so twice.
_INDEX = re.compile(r"__index_level_[0-9]+__|Unnamed: [0-9]+(\.[0-9]+)*|")
# The first line of a file that Excel is to open says its separator.
_FOR_EXCEL = re.compile(rb"(?:\xef\xbb\xbf)?\"?sep=(.)\"?\r?\n")
_LONGEST_HEAD = 2**20  # bytes of a head line that are looked at
_BLOCK = 2**20  # bytes of a file that are looked at together


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a file, of several, or of a frame.

    Args:
        where: the file, for messages.
        typed: whether the file says which columns are numbers and which are text, as parquet does.
        separator: between the fields of a CSV file.
        lines: what a user should know, a line each.
    """

    frame: pd.DataFrame
    where: str = FRAME
    typed: bool = True
    separator: str = ","
    lines: tuple[str, ...] = ()

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
        if keep.dtype.kind == "b" and keep.all():
            return self
        places = np.flatnonzero(keep) if keep.dtype.kind == "b" else keep
        return replace(self, frame=self.frame.take(places))

    @property
    def name(self) -> str:
        """The name of the file, without its folder."""
        return Path(self.where).name

    def present(self, name: str, kind: str | None = None) -> Any:
        """Whether each row has a value, bool ``[R]``."""
        if kind == NUMBER and self.kind(name) != ARRAY:
            return ~np.isnan(self.numbers(name))
        if kind is None or kind in AS_TEXT:
            return self.factor(name)[0] >= 0
        return self.frame[name].notna().to_numpy()

    def type_of(self, name: str) -> str:
        """What the values of a column are, for messages."""
        kind = self.frame[name].dtype
        if isinstance(kind, pd.ArrowDtype):
            return str(kind.pyarrow_dtype)
        arrays = sorted(one.__name__ for one in _types(self.frame[name]) if _is_array_type(one))
        return ", ".join(arrays) or str(kind)

    def kind(self, name: str) -> str:
        """The kind of the values of a column, one of `KINDS`, `ARRAY` or `EMPTY`."""
        return _kind(self.column(name), self.typed, self.separator)

    def factor(self, name: str, by_value: bool = False) -> tuple[Any, tuple[str, ...]]:
        """A column as text: int64 ``[R]`` places, -1 where a value is missing, and the sorted texts.

        Args:
            by_value: numbers are sorted as such, so that 9 comes before 10.
        """
        column = self._single(name)
        codes, values = pd.factorize(column)
        _refuse_inexact(values, name, self.where)
        texts = [self._text(value) for value in values.tolist()]
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
        if _is_array(column):
            raise self.refused("wrong-shape", name, self.type_of(name), "one value per row")
        return column

    def texts(self, name: str, missing: str | None = None) -> Any:
        """A column as text, object ``[R]``."""
        codes, names = self.factor(name)
        return np.array([*names, missing], dtype=object)[codes]

    def _text(self, value: Any) -> str | None:
        text = text_of(value)
        if not self.typed and text.strip() in MISSING:
            return None
        return text

    def numbers(self, name: str, largest: float = FLOAT32_MAX) -> Any:
        """A column of numbers or booleans, float64 ``[R]``, NaN where a value is missing.

        Args:
            largest: a larger number is refused.
        """
        column = self.column(name)
        if (
            is_text(column)
            or pd.api.types.is_object_dtype(column.dtype)
            or isinstance(column.dtype, pd.CategoricalDtype)
        ):
            self._refuse_two_signs(name)
            values = self._parsed(name, NUMBER, self._number)
        elif pd.api.types.is_numeric_dtype(column.dtype) and column.dtype.kind != "c":
            _refuse_rounded(column, name, self.where)
            values = np.array(column.to_numpy(np.float64, na_value=np.nan), np.float64)
        else:
            raise _wrong(self.where, name, NUMBER, str(column.dtype))
        # By default that of float32, with which networks compute.
        large = np.abs(values) > largest
        if large.any():
            row = int(large.argmax())
            got = "infinity" if np.isinf(values[row]) else f"{values[row]:g}"
            expected = f"numbers up to {largest:.1e}"
            raise self.refused("out-of-range", name, f"{got} in row {row}", expected)
        return values

    def booleans(self, name: str) -> Any:
        """A column of yes and no as 1 and 0, float64 ``[R]``, NaN where a value is missing."""
        return self._parsed(name, BOOLEAN, _boolean)

    def times(self, name: str) -> Any:
        """A column of times as days since 1 January 1970, float64 ``[R]``, NaN where one is missing."""
        moments = self.moments(name)
        days = moments.astype(np.int64) / 1e6 / SECONDS_A_DAY
        return np.where(np.isnat(moments), np.nan, days)

    def moments(self, name: str) -> Any:
        """A column of times, datetime64 in microseconds ``[R]``."""
        column = self.column(name)
        if pd.api.types.is_datetime64_any_dtype(column.dtype):
            return _moments(pd.DatetimeIndex(column))
        if not is_text(column):
            return self._parsed(name, TIME, _moment, np.datetime64("NaT", "us"))
        codes, values = pd.factorize(column)
        texts = pd.Series(values, dtype=column.dtype).str.strip()
        texts = texts.mask(texts.isin(MISSING_WORDS))
        wrong = texts.notna() & ~texts.str.fullmatch(_TIME).fillna(True).astype(bool)
        moments = pd.to_datetime(texts.mask(wrong), format="ISO8601", utc=True, errors="coerce")
        wrong |= texts.notna() & moments.isna()
        if wrong.any():
            raise _wrong(self.where, name, TIME, repr(texts[wrong].iloc[0]))
        return np.append(_moments(pd.DatetimeIndex(moments)), np.datetime64("NaT", "us"))[codes]

    def values(self, name: str, kind: str) -> Any:
        """A column by its kind, float64 ``[R]``; of categories see `factor`."""
        if kind == TIME:
            return self.times(name)
        if kind == BOOLEAN:
            return self.booleans(name)
        return self.numbers(name)

    def _number(self, value: Any) -> float:
        if not isinstance(value, str):
            return float(value)
        value = value.strip()
        if re.fullmatch(NUMBER_PATTERN, value):
            return float(value)
        if self.separator != "," and re.fullmatch(_WITH_COMMA, value):
            return float(value.replace(",", "."))
        raise ValueError(value)

    def with_number_texts(self, name: str) -> Rows:
        """The rows with a text column of numbers as these are read, but as text: with points, and
        without the words of missing values."""
        column = self.frame[name]
        if not is_text(column):
            return self
        self._refuse_two_signs(name)
        texts = pd.Series(column, dtype=TEXTS).str.strip()
        read = texts.mask(texts.isin(MISSING_WORDS))
        if self.separator != "," and not self.typed:
            commas = read.str.fullmatch(_WITH_COMMA).fillna(False).astype(bool)
            read = read.mask(commas, read.str.replace(",", ".", regex=False))
        return replace(self, frame=self.frame.assign(**{name: read}))

    def _refuse_two_signs(self, name: str) -> None:
        """Refuse points and commas in a column: whether 1.234 is more than 1000 cannot be known."""
        column = self.column(name)
        if self.typed or self.separator == "," or not is_text(column):
            return
        texts = pd.Series(column.unique(), dtype=TEXTS).dropna().str.strip()
        commas = texts[texts.str.fullmatch(_WITH_COMMA)]
        points = texts[texts.str.fullmatch(NUMBER_PATTERN) & texts.str.contains(".", regex=False)]
        if len(commas) and len(points):
            got = f"{points.iloc[0]!r} and {commas.iloc[0]!r}"
            expected = (
                "a decimal point or a decimal comma in all rows, and no sign between thousands "
                f"(where they are codes: [data.columns] {name} = 'category')"
            )
            raise self.refused("in-conflict", name, got, expected)

    def _parsed(
        self, name: str, kind: str, parse: Callable[[Any], Any], missing: Any = np.float64("nan")
    ) -> Any:
        """Each different value once, by ``parse``."""
        column = self._single(name)
        codes, values = pd.factorize(column)
        found = []
        for value in values.tolist():
            if isinstance(value, str) and value.strip() in MISSING_WORDS:
                found.append(missing)
                continue
            try:
                found.append(parse(value))
            except (ValueError, TypeError):
                raise _wrong(self.where, name, kind, repr(value)) from None
        return np.array([*found, missing], missing.dtype)[codes]


def column_error(code: Any, where: object, name: str, got: object, allowed: object) -> DataError:
    """The error about the values of a column."""
    return DataError(code, where, f"column {name}", found=got, allowed=allowed)


def missing_values(rows: Rows, name: str, count: int) -> DataError:
    """The error for a column that lacks values."""
    return rows.refused("missing", name, f"{count} missing values", "none")


def missing_column(where: str, name: str, present: Collection[str], option: str = "") -> DataError:
    """The error for a column that a file does not have: it names those it has, and the nearest."""
    known = sorted(present)
    near = get_close_matches(name, known, n=1)
    hint = next(iter(near), None)
    path = where
    what = f"no column {name!r}"
    if option:
        path = f"data.{option}"
        what = f"{where}: {what}"
    expected = f"one of {', '.join(known) or '(none)'}"
    return DataError("not-found", path, what, allowed=expected, hint=hint)


def _wrong(where: str, name: str, kind: str, got: str) -> DataError:
    word = "date" if kind == TIME else kind
    return column_error("wrong-type", where, name, got, f"a {word} in each row")


def near_equal(names: Collection[str], column: str, known: Collection[str] = ()) -> list[str]:
    """A line where texts are equal but for case, spaces, or how letters are composed.

    Args:
        known: those of which a user has been told already.
    """
    alike: dict[str, list[str]] = {}
    for name in sorted({*names, *known}):
        folded = unicodedata.normalize("NFKC", name).casefold()
        alike.setdefault(" ".join(folded.split()), []).append(name)
    pairs = [group for group in alike.values() if len(group) > 1 and not set(group) <= set(known)]
    if not pairs:
        return []
    shown = "; ".join(" and ".join(map(repr, group)) for group in pairs[:SHOWN])
    return [f"column {column}: {shown} differ by their spelling alone, and are taken for others"]


def is_number(text: str) -> bool:
    """Whether a text is written as a number."""
    return re.fullmatch(NUMBER_PATTERN, text) is not None


def is_code(text: str) -> bool:
    """Whether a text has the digits of a number, with zeros before it: a code, such as 007."""
    return len(text) > 1 and text.startswith("0") and text.isdigit()


def is_text(column: pd.Series) -> bool:
    """Whether a column has the type of text, or of categories of text."""
    kind = column.dtype
    if isinstance(kind, pd.CategoricalDtype):
        kind = kind.categories.dtype
    return isinstance(kind, pd.StringDtype)


def is_plain(column: pd.Series) -> bool:
    """Whether a column has numbers or booleans alone, and all of them."""
    return pd.api.types.is_numeric_dtype(column.dtype) and not column.isna().any()


def plain_values(column: pd.Series) -> Any:
    """The values of such a column in the type of the file."""
    kind: Any = getattr(column.dtype, "numpy_dtype", column.dtype)
    return column.to_numpy(kind)


def text_of(value: Any) -> str:
    """A value as text: a whole number that passed through a fraction as the whole number, and a date
    that has a time of day in files of another type as the date.

    Example:
        >>> [text_of(value) for value in (1, 1.0, "1.0", "01", "true", True, 1.5)]
        ['1', '1', '1', '01', 'true', 'True', '1.5']
        >>> text_of(pd.Timestamp("2024-02-28")), text_of("2024-02-28 05:00:00")
        ('2024-02-28', '2024-02-28 05:00:00')
    """
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value)
    if _WHOLE.fullmatch(text):
        return text.partition(".")[0]
    date = _MIDNIGHT.fullmatch(text)
    return date[1] if date else text


def _boolean(value: Any) -> float:
    text = str(value).strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise ValueError(value)
    return float(text in _TRUE)


def _moment(value: Any) -> Any:
    # Whole numbers would be taken for nanoseconds since 1970.
    if isinstance(value, (bool, int, float)) or (
        isinstance(value, str) and not re.fullmatch(_TIME, value.strip())
    ):
        raise ValueError(value)
    moment = pd.Timestamp(value.strip() if isinstance(value, str) else value)
    return _moments(pd.DatetimeIndex([moment]))[0]


def _moments(moments: pd.DatetimeIndex) -> Any:
    """In microseconds; a time without a zone is that of Greenwich."""
    if moments.tz is not None:
        moments = moments.tz_convert("UTC").tz_localize(None)
    return moments.to_numpy("datetime64[us]")


def _is_array(column: pd.Series) -> bool:
    """Whether values are lists, bytes or records, or times of a day or durations of Arrow."""
    return isinstance(column.dtype, pd.ArrowDtype) or any(map(_is_array_type, _types(column)))


def _is_array_type(kind: type) -> bool:
    # What has no hash cannot be compared, such as sets and images of Pillow.
    return issubclass(kind, (*_LISTS, dict, bytes)) or kind.__hash__ is None


def _refuse_rounded(column: pd.Series, name: str, where: str) -> None:
    """Float64 would make different whole numbers of this size one; they are mostly identifiers."""
    if not pd.api.types.is_integer_dtype(column.dtype):
        return
    for value in (column.min(), column.max()):
        if not pd.isna(value) and abs(int(value)) > EXACT:
            got = f"the whole number {value}"
            raise column_error("out-of-range", where, name, got, "at most 2^53, or text")


def _refuse_inexact(values: Any, name: str, where: str) -> None:
    if not pd.api.types.is_float_dtype(values.dtype):
        return
    sizes = np.abs(np.asarray(values, np.float64))
    if (sizes > EXACT).any():
        got = f"{sizes.max():g} as a floating-point number"
        raise column_error("out-of-range", where, name, got, "at most 2^53, or text")


# --- kinds ----------------------------------------------------------------------------------------


def _kind(column: pd.Series, typed: bool, separator: str) -> str:
    kind = column.dtype
    if _is_array(column):
        return ARRAY
    if column.isna().all():
        return EMPTY
    if pd.api.types.is_bool_dtype(kind):
        return BOOLEAN
    if pd.api.types.is_numeric_dtype(kind):
        return NUMBER
    if pd.api.types.is_datetime64_any_dtype(kind):
        return TIME
    if not is_text(column):
        values = pd.factorize(column)[1]
        if not all(isinstance(value, str) for value in values):
            return _kind_of_objects(values.tolist())
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
    # In a file whose fields stand between commas, a comma may stand between thousands.
    number = NUMBER_PATTERN if separator == "," else f"{NUMBER_PATTERN}|{_WITH_COMMA}"
    patterns = {NUMBER: number, TIME: _TIME, BOOLEAN: "(?i:true|false)"}
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
    if NUMBER in patterns and words.str.fullmatch(CODE_PATTERN).any():
        return CATEGORY
    return next(iter(patterns))


def _words(column: pd.Series) -> pd.Series:
    """Values without spaces at their ends, and without those that are missing."""
    values: Any = column
    # Where they repeat, each once.
    if column.iloc[:_HEAD].nunique() < _HEAD / 2:
        values = column.unique()
    texts = pd.Series(values, dtype=TEXTS).dropna().str.strip()
    return texts[~texts.isin(MISSING_WORDS)]


def _kind_of_objects(values: Sequence[Any]) -> str:
    """The kind of values of Python."""
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
    return CATEGORY


def decide_kinds(files: Sequence[Rows], names: Sequence[str]) -> dict[str, str]:
    """The kind of each column over all files: where they differ, it is a category."""
    kinds = {}
    for name in names:
        found = {rows.kind(name) for rows in files if name in rows.names} - {EMPTY}
        if found == {NUMBER, BOOLEAN}:
            # Yes and no as 1 and 0, in a file that has no other way to say so.
            found = {NUMBER}
        if len(found) > 1:
            found = {ARRAY} if ARRAY in found else {CATEGORY}
        kinds[name] = found.pop() if found else NUMBER
    return kinds


# --- reading --------------------------------------------------------------------------------------


def frame_columns(source: Any) -> list[str] | None:
    """The names of the columns of a frame of pandas, or of a table of pyarrow or Polars; ``None``
    for anything else."""
    if isinstance(source, pd.DataFrame):
        return list(source.columns)
    if isinstance(source, type | Mapping):
        return None
    names = getattr(source, "column_names", getattr(source, "columns", None))
    if isinstance(names, str) or not isinstance(names, Iterable):
        return None
    return list(names)


def read_rows(
    source: Any, texts: Collection[str] = (), columns: Collection[str] | None = None
) -> Rows:
    """The rows of a file, a pandas or pyarrow table, or of dictionaries, one a row.

    Args:
        texts: columns that are read as text from the first byte on.
        columns: of a parquet file, those that are read; ``None``: all.
    """
    if isinstance(source, pd.DataFrame):
        return _without_index(_of_frame(source))
    if hasattr(source, "column_names") or hasattr(source, "to_arrow"):
        return _without_index(_of_arrow(source))
    if isinstance(source, (list, tuple)):
        return _without_index(_of_frame(pd.DataFrame(list(source), dtype=object), typed=False))
    if not isinstance(source, (str, PathLike)):
        got = type(source).__name__
        allowed = "a frame of pandas, pyarrow or Polars (a LazyFrame: frame.collect())"
        raise DataError("wrong-type", FRAME, found=got, allowed=allowed)
    path = Path(source)
    suffix = path.suffix.lower()
    if not path.is_file():
        raise DataError("not-found", path, allowed="a .parquet or .csv file")
    if suffix == ".parquet":
        return _without_index(Rows(_read_parquet(path, columns), str(path)))
    if suffix == ".csv":
        return _without_index(_read_csv(path, texts))
    raise DataError(
        "cannot-be-read", "data.path", found=path.name, allowed="a .parquet, .csv or .npz file"
    )


def _of_arrow(source: Any) -> Rows:
    """The rows of a table of pyarrow, or of what can be made one, as a frame of Polars."""
    try:
        table = source.to_arrow() if hasattr(source, "to_arrow") else source
        return Rows(frame_of_arrow(table))
    # The errors of Arrow are of all three kinds.
    except (ValueError, TypeError, NotImplementedError) as error:
        raise _unreadable(FRAME, "a table of Arrow", error) from None


def _without_index(rows: Rows) -> Rows:
    """The rows without the columns that pandas made of an index."""
    names = [str(name) for name in rows.frame.columns]
    index = [name for name in names if _INDEX.fullmatch(name)]
    _refuse_twice([name for name in names if name not in index], rows.where)
    if not index:
        return rows
    shown = ", ".join(name or "without a name" for name in index)
    line = f"{rows.name}: column {shown}: an index of pandas or without a name, left out"
    return replace(rows, frame=rows.frame.drop(columns=index), lines=(*rows.lines, line))


def _of_frame(frame: pd.DataFrame, typed: bool = True) -> Rows:
    """A frame whose columns have names that are text; an index with a name is a column, unless a
    column has this name already."""
    names = [str(name) for name in frame.columns]
    levels = {at: str(name) for at, name in enumerate(frame.index.names) if name is not None}
    kept = [at for at, name in levels.items() if name not in names]
    lines = [
        f"{FRAME}: the index {name} has the name of a column, left out"
        for at, name in levels.items()
        if at not in kept and not _same_values(frame.index.get_level_values(at), frame, name)
    ]
    if kept:
        frame = frame.reset_index(level=kept, allow_duplicates=True)
    frame = frame.reset_index(drop=True)
    frame.columns = pd.Index([str(name) for name in frame.columns])
    return Rows(_with_types_of_parquet(frame), typed=typed, lines=tuple(lines))


def _same_values(index: pd.Index, frame: pd.DataFrame, name: str) -> bool:
    place = [str(one) for one in frame.columns].index(name)
    return index.equals(pd.Index(frame.iloc[:, place]))


def _with_types_of_parquet(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame whose columns of Arrow, and of the bytes of images, are those of a parquet file."""
    arrow = [at for at in range(frame.shape[1]) if _is_of_arrow(frame.iloc[:, at])]
    if arrow:
        import pyarrow as pa

        try:
            table = pa.table({str(at): pa.array(frame.iloc[:, at].array) for at in arrow})
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise _unreadable(FRAME, "columns of Arrow, or of bytes", error) from None
        found = frame_of_arrow(table)
        columns = [
            found[str(at)] if at in arrow else frame.iloc[:, at] for at in range(frame.shape[1])
        ]
        frame = pd.concat(columns, axis=1, keys=frame.columns)
    return frame


def _is_of_arrow(column: pd.Series) -> bool:
    if isinstance(column.dtype, pd.ArrowDtype):
        return True
    # Image files: bytes, or records with them.
    types = _types(column)
    return bool(types) and types <= {bytes, dict}


def _types(column: pd.Series) -> set[type]:
    """The types of the values of a column of Python's objects, without those that are missing."""
    if not pd.api.types.is_object_dtype(column.dtype):
        return set()
    return set(map(type, column.array[column.notna().to_numpy()]))


def frame_of_arrow(table: Any) -> pd.DataFrame:
    """A pyarrow table as a frame whose whole numbers stay whole where values are missing."""
    import pyarrow as pa
    import pyarrow.types as kinds

    fields = []
    for one in table.schema:
        kind = one.type
        # Polars writes views, which pandas does not know.
        if str(kind) in ("string_view", "large_string"):
            kind = pa.large_string()
        elif str(kind) == "binary_view":
            kind = pa.large_binary()
        fields.append(pa.field(one.name, kind))
    whole = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.uint8(): pd.UInt8Dtype(),
        pa.uint16(): pd.UInt16Dtype(),
        pa.uint32(): pd.UInt32Dtype(),
        pa.uint64(): pd.UInt64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.string(): TEXTS,
        pa.large_string(): TEXTS,
    }

    def mapped(kind: Any) -> Any:
        other = kinds.is_nested(kind) or kinds.is_duration(kind) or kinds.is_time(kind)
        if other or kinds.is_binary(kind) or kinds.is_large_binary(kind):
            return pd.ArrowDtype(kind)
        return whole.get(kind)

    table = table.cast(pa.schema(fields))
    return table.to_pandas(types_mapper=mapped, ignore_metadata=True, date_as_object=False)


def _read_parquet(path: Path, columns: Collection[str] | None) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Checksums of pages, where the file has them: a bit that flipped would be another value.
        with pq.ParquetFile(path, page_checksum_verification=True) as reader:
            names = reader.schema_arrow.names
            _refuse_twice(names, str(path))
            wanted = [name for name in names if columns is None or name in columns]
            return frame_of_arrow(reader.read(wanted))
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise _unreadable(path, "parquet", error) from None


def _unreadable(path: object, kind: str, error: Exception) -> DataError:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return DataError("cannot-be-read", path, f"cannot be read as {kind} ({line})")


@dataclass(frozen=True)
class _Csv:
    """A CSV file.

    Args:
        utf8: what is read in its place, where the file is in UTF-16.
        start: the bytes before the head line, of a line for Excel.
    """

    path: Path
    utf8: bytes | None = None
    start: int = 0

    def open(self) -> BinaryIO:
        """The file as UTF-8, from its head line on."""
        opened = self.path.open("rb") if self.utf8 is None else io.BytesIO(self.utf8)
        opened.seek(self.start)
        return opened

    def begin(self) -> bytes:
        """The first bytes, with the head line."""
        with self.open() as opened:
            return opened.read(_LONGEST_HEAD)

    def frame(self, options: Mapping[str, Any]) -> pd.DataFrame:
        """The file as pandas reads it: by several threads where it is a path."""
        if self.utf8 is None and not self.start:
            return pd.read_csv(str(self.path), compression=None, **options)
        with self.open() as opened:
            return pd.read_csv(opened, **options)

    def text(self, **options: Any) -> TextIO:
        """The file as text, as the module csv reads it."""
        return io.TextIOWrapper(self.open(), "utf-8-sig", newline="", **options)


def _read_csv(path: Path, texts: Collection[str]) -> Rows:
    """A CSV file with a head line."""
    try:
        file = _Csv(path)
        begin = file.begin()
        if begin[:2] in (b"\xff\xfe", b"\xfe\xff"):
            file = _Csv(path, path.read_bytes().decode("utf-16").encode())
            begin = file.begin()
        separator = _separator(begin)
        said = _FOR_EXCEL.match(begin)
        if said:
            separator = said[1].decode()
            file = replace(file, start=said.end())
    except (OSError, UnicodeError) as error:
        raise _unreadable(path, "CSV", error) from None
    if b"\0" in begin:
        what = "cannot be read as CSV (it has zero bytes)"
        expected = "UTF-8, or UTF-16 with a byte order mark"
        raise DataError("cannot-be-read", path, what, allowed=expected)
    names = _head(file, separator)
    options = {"sep": separator, "encoding": "utf-8-sig", "index_col": False}
    frame = _csv_frame(file, [name for name in texts if name in names], options)
    _refuse_short_rows(file, separator, len(names), len(frame))
    # Where a file has such a name already, pandas gives it another, which would be an input.
    frame.columns = pd.Index([name or f"Unnamed: {at}" for at, name in enumerate(names)])
    padded = [name for name in frame.columns if name != name.strip()]
    lines = []
    if padded:
        shown = ", ".join(map(repr, padded))
        lines.append(f"{path.name}: column {shown}: the name begins or ends with a space")
    return Rows(frame, str(path), typed=False, separator=separator, lines=tuple(lines))


def _csv_frame(file: _Csv, texts: Collection[str], options: Mapping[str, Any]) -> pd.DataFrame:
    options = {**options, "na_values": list(MISSING), "keep_default_na": False, **_NEAREST}
    try:
        with warnings.catch_warnings():
            # More fields than the head line has: pandas would leave out the last ones.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            # Parts of a column have different types: see below.
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)
            frame = file.frame({**options, "dtype": dict.fromkeys(texts, TEXTS)})
            mixed = [
                at for at, kind in enumerate(frame.dtypes) if pd.api.types.is_object_dtype(kind)
            ]
            if mixed:
                names = frame.columns[mixed]
                again = {**options, "usecols": list(names), "dtype": TEXTS}
                frame[names] = file.frame(again)[names]
            return frame
    except pd.errors.ParserWarning:
        error = ValueError("a row has more fields than the header has names")
        raise _unreadable(file.path, "CSV", error) from None
    except UnicodeDecodeError:
        raise _other_encoding(file, options) from None
    except (ValueError, OverflowError) as error:
        raise _unreadable(file.path, "CSV", error) from None


def _other_encoding(file: _Csv, options: Mapping[str, Any]) -> DataError:
    """The line that names the first column whose text is not UTF-8."""
    other = {**options, "encoding_errors": "surrogateescape", "dtype": object}
    frame = file.frame(other)
    for name in frame.columns:
        values = [str(name), *map(str, frame[name].unique())]
        if any("\udc80" <= letter <= "\udcff" for value in values for letter in value):
            break
    expected = "UTF-8, which spreadsheet programs call 'CSV UTF-8'"
    return column_error("cannot-be-read", str(file.path), name, "text that is not UTF-8", expected)


def _separator(begin: bytes) -> str:
    """What stands between the names of the head line: commas, or else semicolons, tabs or bars."""
    head = next(filter(None, begin.splitlines()), b"")
    for separator in (b",", b";", b"\t", b"|"):
        if separator in head:
            return separator.decode()
    return ","


def _head(file: _Csv, separator: str) -> list[str]:
    try:
        with file.text(errors="replace") as lines:
            read = csv.reader(lines, delimiter=separator)
            names = next((row for row in read if row), [])
    except csv.Error as error:
        raise _unreadable(file.path, "CSV", error) from None
    _refuse_twice([name for name in names if name], str(file.path))
    return names


def _refuse_twice(names: Sequence[str], where: str) -> None:
    """Refuse two columns of one name: which is meant cannot be known."""
    for name in names:
        if names.count(name) > 1:
            got = f"{names.count(name)} columns of this name"
            raise column_error("in-conflict", where, name, got, "one")


def _refuse_short_rows(file: _Csv, separator: str, width: int, rows: int) -> None:
    """Refuse rows with fewer fields than names, which pandas would fill with missing values."""
    if _separators(file, separator) == (width - 1) * (rows + 1):
        return
    before = csv.field_size_limit(2**31 - 1)
    try:
        with file.text() as lines:
            reader = csv.reader(lines, delimiter=separator)
            for row in reader:
                if row and len(row) != width:
                    fields = f"line {reader.line_num} has {len(row)} of {width} fields"
                    what = f"cannot be read as CSV ({fields})"
                    raise DataError("cannot-be-read", file.path, what)
    except csv.Error as error:
        raise _unreadable(file.path, "CSV", error) from None
    finally:
        csv.field_size_limit(before)


def _separators(file: _Csv, separator: str) -> int:
    """How many separators stand outside of quotes."""
    found = 0
    quotes = 0
    # One buffer for the whole file.
    buffer = bytearray(_BLOCK)
    with file.open() as opened:
        while size := opened.readinto(buffer):  # type: ignore[attr-defined]
            part = np.frombuffer(buffer, np.uint8, size)
            outside = part == ord(separator)
            quote = part == ord('"')
            if quotes or quote.any():
                inside = np.cumsum(quote, dtype=np.int32) + quotes
                outside &= inside % 2 == 0
                quotes = int(inside[-1]) % 2
            found += int(np.count_nonzero(outside))
    return found


# --- inputs ---------------------------------------------------------------------------------------


def plain_inputs(
    rows: Rows, features: str | Sequence[str], kinds: Mapping[str, str] | None = None
) -> Any:
    """A column of lists ``[R, ...]`` in the type of the file, or columns of numbers as they are,
    float64 ``[R, p]``. Lists of bytes are pixels, divided by 255."""
    if isinstance(features, str) and rows.kind(features) == ARRAY:
        values = lists_of(rows, features)
        # The type of a column of numbers says nothing: a CSV file has none.
        return values.astype(np.float32) / np.float32(255) if values.dtype == np.uint8 else values
    names = [features] if isinstance(features, str) else features
    found = []
    for name in names:
        if (kinds or {}).get(name) == BOOLEAN:
            found.append(rows.booleans(name))
        else:
            found.append(rows.numbers(name, np.inf))
    return np.stack(found, axis=1)


def float32_inputs(values: Any, where: str, names: str | Sequence[str]) -> Any:
    """Inputs or targets ``[R, ...]`` as float32; those with which a network would overflow are refused.

    Args:
        names: the column, or those of the second dimension, for the error line.
    """
    # NaN is in no range, and no copy is needed to find that all is well. As floats of Python, since
    # the bound is infinite in half precision.
    if not values.size or (
        float(values.min()) >= -LARGEST_INPUT and float(values.max()) <= LARGEST_INPUT
    ):
        return values.astype(np.float32)
    at = np.argwhere(~(np.abs(values.astype(np.float64)) <= LARGEST_INPUT))[0].tolist()
    name = names if isinstance(names, str) else names[at[1]]
    got = f"{values[tuple(at)]:g} in row {at[0]}"
    expected = f"finite numbers up to {LARGEST_INPUT:.1e}, which fit into float32"
    raise column_error("not-finite", where, name, got, expected)


# --- lists ----------------------------------------------------------------------------------------


def lists_of(rows: Rows, name: str) -> Any:
    """A column of lists, or of lists of lists, of numbers as an array ``[R, ...]``."""
    column = rows.column(name)
    lacking = int(column.isna().sum())
    if lacking:
        raise missing_values(rows, name, lacking)
    try:
        if isinstance(column.dtype, pd.ArrowDtype):
            values = _flattened(column)
        else:
            other = sorted(kind.__name__ for kind in _types(column) if kind not in _LISTS)
            if other:
                got = f"values of type {other[0]}"
                raise rows.refused("wrong-type", name, got, "lists of numbers")
            values = np.array(column.tolist())
    except DataError:
        raise
    except ValueError as error:
        what = f"lists of different lengths, or empty lists ({error})" if str(error) else "lists"
        raise rows.refused("wrong-shape", name, what, "lists of the same length") from None
    if values.dtype.kind not in "iufb" or values.ndim < 2:
        got = f"{values.dtype} of shape {values.shape}"
        raise rows.refused("wrong-type", name, got, "lists of numbers")
    return values


def _flattened(column: pd.Series) -> Any:
    """Lists of Arrow as an array, without a Python object for each number."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    values = column.array.__arrow_array__().combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    shape = [len(values)]
    while kinds.is_nested(values.type) and not kinds.is_struct(values.type):
        lengths = pc.unique(pc.list_value_length(values)).to_pylist()
        if len(lengths) != 1 or not lengths[0]:
            raise ValueError("different lengths")
        shape.append(lengths[0])
        values = values.flatten()
    if values.null_count:
        raise ValueError(f"{values.null_count} missing values")
    # A copy: what Arrow holds must not be written to.
    return np.array(values.to_numpy(zero_copy_only=False)).reshape(shape)
