"""What a user should know of the values of a table's columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from coterie.data.rows.kinds import (
    ARRAY,
    AS_TEXT,
    BOOLEAN,
    CATEGORY,
    IDENTIFIER,
    NUMBER,
    TEXT_ROWS,
    TIME,
)
from coterie.data.rows.table import Rows
from coterie.data.rows.texts import (
    CODE_PATTERN,
    CODES,
    MISSING,
    MISSING_WORDS,
    NUMBER_PATTERN,
    SHOWN,
    TEXTS,
    TIME_PATTERN,
    is_text,
    near_equal,
    text_of,
)
from coterie.errors import DataError
from coterie.terminal import counted

# Texts that a person reads as numbers or times, where most of more than a few values are such.
FEW = 5
MOST_OF = 0.8
FEW_ROWS = 20  # in which numbers may follow each other by chance
DECIMAL_COMMA = "numbers with a decimal comma"
OTHER_FORMS = {
    # With three digits behind it, a comma may stand before thousands.
    DECIMAL_COMMA: r"[-+]?[0-9]*,([0-9]{1,2}|[0-9]{4,})",
    "numbers with other characters between or around their digits": (
        r"[-+\u2212]?\s*[$\u20ac\u00a3\u00a5]?\s*[-+\u2212]?"
        r"[0-9]{1,3}([,.' \u00a0\u202f_]?[0-9]{3})*([.,][0-9]+)?"
        r"\s*[%$\u20ac\u00a3\u00a5]?"
    ),
    "dates in a different format from 2013-03-01": (
        r"[0-9]{1,4}[./-][0-9]{1,2}[./-][0-9]{1,4}([ T][0-9:.]+)?( ?(?i:[ap]m))?"
    ),
}
TIMES = "times"
AS_STORED = "they are stored as text"
PLAINLY = "[%$\u20ac\u00a3\u00a5/]"  # in numbers and dates, and hardly in codes
# One value of these is enough.
LIMIT = r"[<>\u2264\u2265]=?\s*" + f"({NUMBER_PATTERN})"
TWO_SIGNS = (
    r"[-+\u2212]?[0-9]{1,3}(([.' \u00a0\u202f][0-9]{3})+,|([,' \u00a0\u202f][0-9]{3})+\.)[0-9]+"
)


def notes_on_values(
    rows: Rows, kinds: Mapping[str, str], codes: Collection[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Lines about words that were taken for missing values, numbers that were taken for categories,
    and categories that differ by their spelling alone; and why the columns of such numbers are
    text.

    Args:
        codes: columns of which the user says that they are categories.
    """
    lines = []
    why = {}
    for name, kind in kinds.items():
        column = rows.frame[name]
        if kind == ARRAY or not (is_text(column) or pd.api.types.is_object_dtype(column.dtype)):
            continue
        if kind in (NUMBER, TIME, BOOLEAN):
            lines += missing_words(column, name)
        elif kind in (CATEGORY, IDENTIFIER):
            names = rows.factor(name)[1]
            lines += near_equal(names, name)
            lines += _numbers_and_texts(column, name)
            words = [one for one in names if one.strip() in MISSING_WORDS]
            if words and rows.typed:
                shown = ", ".join(map(repr, words[:SHOWN]))
                lines.append(f"column {name}: {shown} as text, not treated as missing values")
            if kind == CATEGORY and name not in codes:
                meant, reason = _meant(rows, names, name)
                if reason:
                    why[name] = reason
                    lines.append(_taken_for_text(name, meant, reason))
    return lines, why


def row_numbers(rows: Rows, features: Collection[str]) -> list[str]:
    """A line about inputs that number the rows, such as the index of a frame that became a column."""
    found = []
    for name in features:
        column = rows.frame[name]
        if not pd.api.types.is_integer_dtype(column.dtype) or column.isna().any():
            continue
        counts = len(column) >= FEW_ROWS and column.iloc[0] in (0, 1)
        # The names that pandas gives, also of a frame that was filtered or shuffled.
        if name in ("index", "level_0") or (counts and (np.diff(column.to_numpy()) == 1).all()):
            found.append(name)
    if not found:
        return []
    shown = ", ".join(found)
    return [
        f"column {shown}: contains row numbers, and is an input; if it is an index, leave it out"
    ]


def numbers_of_rows(rows: Rows, features: Collection[str]) -> list[str]:
    """Lines about inputs that have another whole number in each of many rows, as identifiers do."""
    if len(rows) < TEXT_ROWS:
        return []
    return [
        f"column {name}: has a different whole number in each row, and is an input; if it is an "
        f"identifier, set [data.columns] {name} = 'identifier'"
        for name in features
        if pd.api.types.is_integer_dtype(rows.frame[name].dtype) and rows.frame[name].is_unique
    ]


def why_no_input(rows: Rows, name: str, kind: str) -> str:
    """Why no feature is made of a column of identifiers or of long text."""
    if kind == IDENTIFIER:
        return "identifiers"
    different = rows.frame[name].nunique()
    return f"text with {different:,} different values in {counted(len(rows), 'row')}"


def described_columns(
    rows: Rows, kinds: Mapping[str, str], roles: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Each column, its kind, and why it has it.

    Args:
        roles: columns that are no inputs -> what they are.
    """
    return [
        (name, kind, _why(rows, name, kind, roles.get(name, ""))) for name, kind in kinds.items()
    ]


def _why(rows: Rows, name: str, kind: str, role: str) -> str:
    column = rows.frame[name]
    if kind == ARRAY:
        return role or rows.type_of(name)
    parts = [role] if role else []
    try:
        present = rows.present(name, kind)
    except DataError as error:
        # Nothing is refused of a column that may have no use.
        return "; ".join([*parts, f"not readable as {kind}: {error.problems[0].got}"])
    different = int(column[present].nunique())
    values = counted(different, "different value")
    natural = rows.kind(name)
    if not role and natural != kind:
        parts.append(f"set in the configuration; {values}, which look like {natural}")
    elif kind in AS_TEXT:
        parts.append(values)
    else:
        parts.append(counted(different, f"different {kind}"))
    if not present.all():
        parts.append(f"{int((~present).sum()):,} of {len(rows):,} missing")
    if kind in (CATEGORY, IDENTIFIER):
        words = [word for word in rows.factor(name)[1] if word.strip() in MISSING_WORDS]
        if words:
            parts.append(f"{', '.join(map(repr, words[:SHOWN]))} look like missing values")
    return "; ".join(parts)


def missing_words(column: pd.Series, name: str) -> list[str]:
    """A line about words that were taken for missing values."""
    looked_for = MISSING_WORDS - set(MISSING)
    texts = column.dropna().astype("str").str.strip()
    found = texts[texts.isin(looked_for)]
    words = found.value_counts().to_dict()
    if not words:
        return []
    shown = ", ".join(map(repr, list(words)[:SHOWN]))
    return [
        f"column {name}: {shown} treated as missing values in {counted(sum(words.values()), 'row')}"
    ]


def _numbers_and_texts(column: pd.Series, name: str) -> list[str]:
    """A line where a number or a truth value, and a text, are one category or client."""
    if not pd.api.types.is_object_dtype(column.dtype):
        return []
    values = pd.factorize(column)[1].tolist()
    texts = {value for value in values if isinstance(value, str)}
    others = [value for value in values if not isinstance(value, str) and text_of(value) in texts]
    if not others:
        return []
    shown = "; ".join(f"{value} and {text_of(value)!r}" for value in others[:SHOWN])
    return [f"column {name}: {shown} treated as the same value"]


def _taken_for_text(name: str, meant: str, why: str) -> str:
    """The line for a column of text that was meant as something else."""
    its = f"its {meant} are " if meant else ""
    line = f"column {name}: {its}treated as categories, because {why}"
    if meant == TIMES:
        return f"{line}; to read them as times, set [data.columns] {name} = 'time'"
    if DECIMAL_COMMA in why:
        return f"{line}; write decimal points, or separate the fields with semicolons"
    codes = "if they are codes, list the column in data.encode.categories"
    if meant and why != AS_STORED:
        missing = "list words for missing values in data.missing, or leave these fields empty"
        return f"{line}; {missing}; {codes}"
    return f"{line}; {codes}"


def _meant(rows: Rows, names: Sequence[str], column: str) -> tuple[str, str]:
    """What a column of text was meant as, where one word says it, and why it is text; the latter is
    empty where it was meant as text."""
    known = pd.Series(names, dtype=TEXTS)
    times = known[known.str.fullmatch(TIME_PATTERN)]
    if len(times) > MOST_OF * len(known):
        return TIMES, _why_text(rows, column, known, times, TIMES)
    form = _other_form(known)
    if form:
        first = known[~known.str.fullmatch(NUMBER_PATTERN)].iloc[0]
        return "", f"values such as {first!r} are {form}"
    numbers = known[known.str.fullmatch(NUMBER_PATTERN)]
    limits = known[known.str.fullmatch(LIMIT)]
    have_limits = len(limits) > 0 and len(numbers) + len(limits) > MOST_OF * len(known)
    # A few numbers as text are codes.
    is_few = len(numbers) <= (0 if have_limits else CODES)
    if is_few or numbers.str.fullmatch(CODE_PATTERN).any():
        return "", ""
    return "numbers", _why_text(rows, column, known, numbers, "numbers")


def _why_text(rows: Rows, column: str, names: pd.Series, read: pd.Series, what: str) -> str:
    """Why texts, of which most or all could be read as something, are categories."""
    if len(read) == len(names):
        return AS_STORED
    odd = names.drop(read.index)
    codes, _ = rows.factor(column)
    codes = codes[codes >= 0]
    lost = int(np.isin(codes, odd.index).sum())
    return f"{lost} of {len(codes)} are not {what}, such as {odd.iloc[0]!r}"


def _other_form(names: pd.Series) -> str:
    """What a person reads in texts that are neither numbers nor times here; empty where it is nothing."""
    plain = names.str.fullmatch(NUMBER_PATTERN)
    odd = int((~plain).sum())
    enough = odd > (0 if names.str.fullmatch(TWO_SIGNS).any() else FEW)
    # A few such as 1.2.3 may be codes, but none has a sign of a currency.
    plainly = bool(names[~plain].str.contains(PLAINLY).all())
    for form, pattern in OTHER_FORMS.items():
        share = (plain | names.str.fullmatch(pattern)).mean()
        if odd and ((plainly and share == 1) or (enough and share > MOST_OF)):
            return form
    return ""
