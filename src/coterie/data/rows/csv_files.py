"""Rows of CSV files."""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np
import pandas as pd

from .errors import DataError, column_error, refuse_twice, unreadable
from .kinds import NUMBER, kind_of_column
from .table import Rows
from .texts import COMMA_PATTERN, EXACT, MISSING, TEXTS, THOUSANDS_PATTERN, beyond_exact, is_text

# Up to pandas 3.0 a number was not always read as the nearest one of float64.
_NEAREST = {} if pd.__version__ >= "3.1" else {"float_precision": "round_trip"}
# The first line of a file that Excel is to open says its separator.
_FOR_EXCEL = re.compile(rb"(?:\xef\xbb\xbf)?\"?sep=(.)\"?\r?\n")
_QUOTED = re.compile(rb'(?:^|(?<=[,;\t|\r\n]))"(?:[^"]|"")*"')
_LONGEST_HEAD = 2**20  # bytes of a head line that are looked at
_BLOCK = 2**20  # bytes of a file that are looked at together


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


def read_csv(path: Path, texts: Collection[str], as_names: Mapping[str, Collection[str]]) -> Rows:
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
        raise unreadable(path, "CSV", error) from None
    if b"\0" in begin:
        raise _zero_bytes(path)
    names = _head(file, separator)
    missing: Any = list(MISSING)
    if as_names:
        missing = {
            name: [word for word in MISSING if word not in as_names.get(name, ())] for name in names
        }
    options = {"sep": separator, "encoding": "utf-8-sig", "index_col": False, "na_values": missing}
    frame = _csv_frame(file, [name for name in texts if name in names], options)
    thousands = _thousands(file, frame, separator, options)
    _refuse_short_rows(file, separator, len(names), len(frame))
    # Where a file has such a name already, pandas gives it another, which would be an input.
    frame.columns = pd.Index([name or f"Unnamed: {at}" for at, name in enumerate(names)])
    padded = [name for name in frame.columns if name != name.strip()]
    lines = []
    if padded:
        shown = ", ".join(map(repr, padded))
        lines.append(f"{path.name}: column {shown}: the name begins or ends with a space")
    return Rows(frame, str(path), False, separator, tuple(lines), as_names, thousands)


def _zero_bytes(path: Path) -> DataError:
    what = "cannot be read as CSV (it has zero bytes)"
    expected = "UTF-8, or UTF-16 with a byte order mark"
    return DataError("cannot-be-read", path, what, allowed=expected)


def _csv_frame(file: _Csv, texts: Collection[str], options: Mapping[str, Any]) -> pd.DataFrame:
    options = {**options, "keep_default_na": False, **_NEAREST}
    try:
        with warnings.catch_warnings():
            # More fields than the head line has: pandas would leave out the last ones.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            # Parts of a column have different types: see below.
            warnings.simplefilter("ignore", pd.errors.DtypeWarning)
            frame = file.frame({**options, "dtype": dict.fromkeys(texts, TEXTS)})
            mixed = [name for name in frame.columns if _is_to_be_text(frame[name])]
            if mixed:
                found = file.frame({**options, "usecols": mixed, "dtype": TEXTS})
                for name in mixed:
                    if frame[name].dtype.kind != "f" or beyond_exact(found[name].unique()):
                        frame[name] = found[name]
            return frame
    except pd.errors.ParserWarning:
        error = ValueError("a row has more fields than the header has names")
        raise unreadable(file.path, "CSV", error) from None
    except UnicodeDecodeError:
        raise _other_encoding(file, options) from None
    except (ValueError, OverflowError) as error:
        raise unreadable(file.path, "CSV", error) from None


def _is_to_be_text(column: pd.Series) -> bool:
    """Whether a column has texts, or numbers so large that whole ones may have been rounded."""
    if column.dtype.kind == "f":
        return bool((column.abs() >= EXACT).any())
    return pd.api.types.is_object_dtype(column.dtype)


def _thousands(
    file: _Csv, frame: pd.DataFrame, separator: str, options: Mapping[str, Any]
) -> dict[str, str]:
    """Columns of which each point may stand before thousands, since others have decimal commas, and a
    value of each."""
    if not any(_has_decimal_commas(frame[name], separator) for name in frame.columns):
        return {}
    numbers = [name for name in frame.columns if frame[name].dtype.kind == "f"]
    read = {**options, "keep_default_na": False, "usecols": numbers, "dtype": TEXTS}
    texts = file.frame(read) if numbers else frame[[]]
    # Labels that may be numbers were read as text.
    others = [name for name in frame.columns if is_text(frame[name])]
    found = {}
    for name in (*numbers, *others):
        column = texts[name] if name in numbers else frame[name]
        values = pd.Series(column.unique(), dtype=TEXTS).dropna().str.strip()
        points = values[values.str.contains(".", regex=False)]
        # A column with commas as well is refused by itself, where it is used.
        has_commas = values.str.fullmatch(COMMA_PATTERN).any()
        if len(points) and not has_commas and points.str.fullmatch(THOUSANDS_PATTERN).all():
            found[str(name)] = points.iloc[0]
    return found


def _has_decimal_commas(column: pd.Series, separator: str) -> bool:
    if not is_text(column) or not column.str.contains(",", regex=False).any():
        return False
    return kind_of_column(column, False, separator) == NUMBER


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
    """What stands most often in the head line, of commas, semicolons, tabs and bars."""
    # What is in quotes is a name, and separates none.
    text = _QUOTED.sub(b"name", begin.removeprefix(codecs.BOM_UTF8))
    head = next(filter(None, text.splitlines()), b"")
    return max((b",", b";", b"\t", b"|"), key=head.count).decode()


def _head(file: _Csv, separator: str) -> list[str]:
    try:
        with file.text(errors="replace") as lines:
            read = csv.reader(lines, delimiter=separator)
            names = next((row for row in read if row), [])
    except csv.Error as error:
        raise unreadable(file.path, "CSV", error) from None
    refuse_twice([name for name in names if name], str(file.path))
    return names


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
        raise unreadable(file.path, "CSV", error) from None
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
            if not part.all():
                raise _zero_bytes(file.path)
            outside = part == ord(separator)
            quote = part == ord('"')
            if quotes or quote.any():
                inside = np.cumsum(quote, dtype=np.int32) + quotes
                outside &= inside % 2 == 0
                quotes = int(inside[-1]) % 2
            found += int(np.count_nonzero(outside))
    return found
