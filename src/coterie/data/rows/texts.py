"""Numbers, times and yes or no as text, and texts as these."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

# Fields of a file without types that are missing values, whatever the column's kind.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
# Words that are missing values in a column of numbers or times, and may be categories in another.
MISSING_WORDS = frozenset(
    [*MISSING, "None", "none", "n/a", "na", "-", "--", ".", "..", "#N/A", "#NA", "<NA>", "NaT", "*"]
)
# The type of columns of text, with NaN where a value is missing.
TEXTS = pd.StringDtype(na_value=np.nan)
SHOWN = 5  # values, words or names in a line
# Up to it every whole number is a float64.
EXACT = 2**53
_LONG = re.compile(r"[+-]?[0-9]{16,}(\.0*)?")  # with at least as many digits
_WHOLE = re.compile(r"(-?[1-9][0-9]*|0)\.0+")
_WHOLE_WITH_COMMA = re.compile(r"(-?[1-9][0-9]*|0)[.,]0+")
_ZEROS = re.compile(r"[+-]?[0-9]*[.,][0-9]*[1-9]0+")  # behind a fraction
_MIDNIGHT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]00:00(:00(\.0+)?)?(Z|[+-]00(:?00)?)?")
# As text, since pandas matches whole columns by them.
CODE_PATTERN = "0[0-9]+"  # digits with zeros before them, such as 007
NUMBER_PATTERN = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
THOUSANDS_PATTERN = r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}"  # or a number with three decimals
COMMA_PATTERN = r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?"
# A comma that may stand before thousands, and one that does.
GROUPS_PATTERN = r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?"
# With more different values than this, numbers are no codes.
CODES = 20
TIME_PATTERN = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:?([0-9]{2})?)?)?"
)
_TRUE = ("true", "1", "1.0", "1,0")
_FALSE = ("false", "0", "0.0", "0,0")


def words_as_names(known: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Column -> those of its names that are words for missing values, such as ``NA`` for Namibia."""
    found = {
        column: [word for word in MISSING[1:] if word in names] for column, names in known.items()
    }
    return {column: words for column, words in found.items() if words}


def near_equal(names: Collection[str], column: str, known: Collection[str] = ()) -> list[str]:
    """A line where texts are equal but for case, spaces, or how letters are composed.

    Args:
        known: names that an earlier message was about.
    """
    alike: dict[str, list[str]] = {}
    for name in sorted({*names, *known}):
        folded = unicodedata.normalize("NFKC", name).casefold()
        # Of 1.50 and 1.5; the zeros of 1.0 are gone already (see `text_of`).
        if _ZEROS.fullmatch(folded):
            folded = folded.rstrip("0")
        alike.setdefault(" ".join(folded.split()), []).append(name)
    pairs = [group for group in alike.values() if len(group) > 1 and not set(group) <= set(known)]
    if not pairs:
        return []
    shown = "; ".join(" and ".join(map(repr, group)) for group in pairs[:SHOWN])
    return [f"column {column}: {shown} differ only in spelling, and count as different values"]


def is_missing_word(value: Any) -> bool:
    """Whether a value is a word for a missing one in a column of numbers, times or yes and no."""
    return isinstance(value, str) and value.strip() in MISSING_WORDS


def words_are_missing(texts: Collection[str]) -> bool:
    """Whether a word such as n/a is a missing value among these: numbers, codes, or yes and no."""
    return all(map(is_number, texts)) or {text.lower() for text in texts} <= {"true", "false"}


def known_spelling(name: str, known: Collection[str]) -> str:
    """A truth value as others have it: files without types write it in small letters, too."""
    for spelling in (name.capitalize(), name.lower()):
        if name.lower() in ("true", "false") and name not in known and spelling in known:
            return spelling
    return name


def is_real(value: Any) -> bool:
    """Whether a value of Python is a number, and not True or False."""
    return isinstance(value, (Real, Decimal)) and not isinstance(value, bool)


def beyond_exact(values: Iterable[Any]) -> list[str]:
    """The whole numbers, as text or of Python, that float64 might round."""
    texts = [str(value).strip() for value in values if not isinstance(value, float)]
    return [text for text in texts if _LONG.fullmatch(text) and _is_beyond_exact(text)]


def _is_beyond_exact(text: str) -> bool:
    # By their digits: Python makes no number of more than 4,300.
    digits = text.partition(".")[0].lstrip("+-0")
    most = str(EXACT)
    return (len(digits), digits) > (len(most), most)


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


def text_of(value: Any, comma: bool = False) -> str:
    """A value as text: a whole number that passed through a fraction as the whole number, and a date
    that has a time of day in files of another type as the date.

    Args:
        comma: whether the file may have decimal commas.

    Example:
        >>> [text_of(value) for value in (1, 1.0, "1.0", "01", "true", True, 1.5)]
        ['1', '1', '1', '01', 'true', 'True', '1.5']
        >>> text_of(pd.Timestamp("2024-02-28")), text_of("2024-02-28 05:00:00")
        ('2024-02-28', '2024-02-28 05:00:00')
        >>> text_of("1,0"), text_of("1,0", comma=True)
        ('1,0', '1')
    """
    if isinstance(value, (float, np.floating)) and value.is_integer():
        return str(int(value))
    text = str(value)
    whole = (_WHOLE_WITH_COMMA if comma else _WHOLE).fullmatch(text)
    if whole:
        return whole[1]
    date = _MIDNIGHT.fullmatch(text)
    return date[1] if date else text


def read_number(value: Any, comma: bool) -> float:
    """A value as a number.

    Args:
        comma: whether a comma in it is a decimal mark.
    """
    if not isinstance(value, str):
        return float(value)
    value = value.strip()
    if re.fullmatch(NUMBER_PATTERN, value):
        return float(value)
    if comma and re.fullmatch(COMMA_PATTERN, value):
        return float(value.replace(",", "."))
    raise ValueError(value)


def commas_are_decimal(texts: pd.Series, separator: str) -> bool:
    """Whether commas in numbers are decimal marks. In a file whose fields are separated by commas, one
    of them must say so: 6,5 does, and 1,234 may be more than 1000."""
    if separator != ",":
        return True
    commas = texts[texts.str.fullmatch(COMMA_PATTERN)]
    return not commas.str.fullmatch(GROUPS_PATTERN).all()


def boolean_of(value: Any) -> float:
    """Yes as 1 and no as 0."""
    text = str(value).strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise ValueError(value)
    return float(text in _TRUE)


def moment_of(value: Any) -> Any:
    """A time in ISO form, or one of Python or pandas, as datetime64."""
    # Whole numbers would be taken for nanoseconds since 1970.
    if isinstance(value, (bool, int, float)) or (
        isinstance(value, str) and not re.fullmatch(TIME_PATTERN, value.strip())
    ):
        raise ValueError(value)
    moment = pd.Timestamp(value.strip() if isinstance(value, str) else value)
    return in_microseconds(pd.DatetimeIndex([moment]))[0]


def in_microseconds(moments: pd.DatetimeIndex) -> Any:
    """In microseconds; a time without a zone is that of Greenwich."""
    if moments.tz is not None:
        moments = moments.tz_convert("UTC").tz_localize(None)
    return moments.to_numpy("datetime64[us]")
