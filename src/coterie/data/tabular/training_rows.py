"""The rows of all training files, the kind of each column over all of them, and what a user should
know of their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from coterie.data.rows.kinds import (
    ARRAY,
    AS_TEXT,
    BOOLEAN,
    CATEGORY,
    EMPTY,
    IDENTIFIER,
    NUMBER,
    TEXT,
    TIME,
    decide_kinds,
)
from coterie.data.rows.reading import read_rows
from coterie.data.rows.table import FILE_NAME, Rows
from coterie.data.rows.texts import (
    CODE_PATTERN,
    MISSING,
    MISSING_WORDS,
    NUMBER_PATTERN,
    SHOWN,
    TEXTS,
    is_missing_word,
    is_plain,
    is_text,
    near_equal,
    text_of,
    words_are_missing,
)
from coterie.data.tabular.new_rows import names_of_file
from coterie.errors import DataError
from coterie.terminal import counted

# Text with more different numbers than this is no code.
CODES = 20
# Texts that a person reads as numbers or times, where most of more than a few values are such.
FEW = 5
MOST_OF = 0.8
OTHER_FORMS = {
    "numbers with other characters between or around their digits": (
        r"[-+\u2212]?\s*[$\u20ac\u00a3\u00a5]?\s*[-+\u2212]?"
        r"[0-9]{1,3}([,.' \u00a0\u202f_]?[0-9]{3})*([.,][0-9]+)?"
        r"\s*[%$\u20ac\u00a3\u00a5]?"
    ),
    "dates in a different format than 2013-03-01": (
        r"[0-9]{1,4}[./-][0-9]{1,2}[./-][0-9]{1,4}([ T][0-9:.]+)?( ?(?i:[ap]m))?"
    ),
}
# One value of these is enough.
LIMIT = r"[<>\u2264\u2265]=?\s*" + f"({NUMBER_PATTERN})"
TWO_SIGNS = (
    r"[-+\u2212]?[0-9]{1,3}(([.' \u00a0\u202f][0-9]{3})+,|([,' \u00a0\u202f][0-9]{3})+\.)[0-9]+"
)
NAMES_OF_NOTHING = {"None", "none"}  # words that name a class, as in: pain: none
_STEP = 2**20  # bytes of a file that are looked at together


def read_training_rows(
    sources: Sequence[Any],
    known: Mapping[str, str],
    time: str | None = None,
    used: Collection[str] | None = None,
    labels: Collection[str] = (),
    left_out: Collection[str] = (),
) -> tuple[Rows, dict[str, str]]:
    """The rows of all training files, and the kind of each column over all of them.

    Args:
        known: kinds that are said by the user, or by what a column is for.
        time: the column that orders series, which holds no codes.
        used: columns that have a use; ``None``: all but those of ``left_out``. Of the others nothing
            is refused.
        labels: those that are numbers in each file are read as such, also where they are classes.
    """
    files = _read_files(sources, known)
    names = list(dict.fromkeys(name for rows in files for name in rows.names))
    decided = decide_kinds(files, [name for name in names if name not in known])
    numbers = [name for name, kind in decided.items() if kind == NUMBER and name != time]
    # Zeros before a number say that it is a code: 007 and 7 are two.
    codes = {name: code for rows in files for name, code in _codes(rows, numbers).items()}
    kinds = {name: known.get(name) or decided[name] for name in names}
    kinds |= dict.fromkeys(codes, CATEGORY)
    files = [_read_as_text(rows, _text_columns(kinds)) for rows in files]
    kinds |= dict.fromkeys([name for name in codes if _is_long_text(files, name)], TEXT)
    numbers = [name for name in labels if _is_number_in_each(files, name)]
    classes = [name for name in labels if kinds.get(name) == CATEGORY]
    files, lines = _without_words_of_labels(files, classes)
    stored = kinds | dict.fromkeys([name for name in numbers if name in kinds], NUMBER)
    has_use = [name for name in kinds if name not in left_out and (used is None or name in used)]
    rows = files[0] if len(files) == 1 else _joined(files, stored, has_use)
    lines += [_taken_for_codes(name, code) for name, code in codes.items()]
    return replace(rows, lines=(*rows.lines, *lines)), kinds


def _read_files(sources: Sequence[Any], known: Mapping[str, str]) -> list[Rows]:
    """The rows of each file, by what is known of its columns."""
    files = [read_rows(source, _text_columns(known)) for source in sources]
    if FILE_NAME not in known:
        return files
    named = zip(files, _names_of_files(files), strict=True)
    return [_with_file_name(rows, name) for rows, name in named]


def _text_columns(kinds: Mapping[str, str]) -> list[str]:
    """The columns that are text from the first byte on."""
    return [name for name, kind in kinds.items() if kind in AS_TEXT]


def _is_long_text(files: Sequence[Rows], name: str) -> bool:
    return TEXT in {rows.kind(name) for rows in files if name in rows.names}


def _taken_for_codes(name: str, code: str) -> str:
    return (
        f"column {name}: treated as codes, because values such as {code!r} begin with zeros; if "
        f"they are numbers: [data.columns] {name} = 'number'"
    )


def _names_of_files(files: Sequence[Rows]) -> list[str]:
    """The client of each file: its name, with as many folders as tell it from other files."""
    forms = [names_of_file(Path(rows.where)) for rows in files]
    found = [names[0] for names in forms]
    for name, count in Counter(found).items():
        if count > 1:
            group = [at for at, names in enumerate(forms) if names[0] == name]
            _tell_apart(found, forms, group, files)
    return found


def _tell_apart(
    found: list[str], forms: Sequence[Sequence[str]], group: Sequence[int], files: Sequence[Rows]
) -> None:
    """Give each file of a group another name, all of the same form."""
    for form in range(1, min(len(forms[at]) for at in group)):
        for at in group:
            found[at] = forms[at][form]
        if all(found.count(found[at]) == 1 for at in group):
            return
    got = f"{files[group[0]].where} and {files[group[1]].where}"
    allowed = f"files with different names, because each is a client ({FILE_NAME})"
    raise DataError("in-conflict", "data.path", found=got, allowed=allowed)


def _is_number_in_each(files: Sequence[Rows], name: str) -> bool:
    found = {rows.kind(name) for rows in files if name in rows.names}
    return bool(found) and found <= {NUMBER, EMPTY}


def _without_words_of_labels(
    files: Sequence[Rows], names: Sequence[str]
) -> tuple[list[Rows], list[str]]:
    """The files with classes that are numbers written as these, without words for missing values,
    and lines about such words."""
    lines = []
    for name in names:
        present = [rows for rows in files if name in rows.names]
        if ARRAY in {rows.kind(name) for rows in present}:
            continue
        texts: set[str] = set()
        if not _is_number_in_each(files, name):
            texts = {text for rows in present for text in rows.factor(name)[1]}
        words = {text for text in texts if is_missing_word(text)}
        if words_are_missing(texts - words):
            lines += _missing_words(pd.concat([rows.frame[name] for rows in present]), name)
            files = [rows.with_number_texts(name) if name in rows.names else rows for rows in files]
        elif words - NAMES_OF_NOTHING:
            shown = ", ".join(map(repr, sorted(words - NAMES_OF_NOTHING)))
            lines.append(
                f"column {name}: {shown} taken for a class; where it is a missing label, leave it empty"
            )
    return list(files), lines


def _with_file_name(rows: Rows, name: str) -> Rows:
    values = pd.Series([name] * len(rows), dtype=TEXTS)
    return replace(rows, frame=rows.frame.assign(**{FILE_NAME: values}))


def _read_as_text(rows: Rows, texts: Sequence[str]) -> Rows:
    """The rows of a file in which some columns are text from the first byte on."""
    wrong = [name for name in texts if name in rows.names and not is_text(rows.frame[name])]
    if rows.typed or not wrong:
        return rows
    again = read_rows(rows.where, texts)
    if FILE_NAME not in rows.names:
        return again
    return replace(again, frame=again.frame.assign(**{FILE_NAME: rows.frame[FILE_NAME]}))


def _joined(files: Sequence[Rows], kinds: Mapping[str, str], used: Collection[str]) -> Rows:
    """The rows of several files one after another, each column by its kind."""
    frames = []
    lines = [line for rows in files for line in rows.lines]
    for rows in files:
        absent = [name for name in used if name not in rows.names]
        if absent:
            lines.append(
                f"{Path(rows.where).name}: no column {', '.join(absent)}: missing in every row"
            )
        columns = {
            name: _column_of_kind(rows, name, kind, name in used)
            for name, kind in kinds.items()
            if name in rows.names
        }
        frames.append(pd.DataFrame(columns))
    frame = pd.concat(frames, ignore_index=True)[list(kinds)]
    return Rows(frame, f"{files[0].where} and others", lines=tuple(lines))


def _column_of_kind(rows: Rows, name: str, kind: str, is_used: bool) -> Any:
    try:
        if kind in AS_TEXT:
            return pd.Series(rows.texts(name), dtype=TEXTS)
        if kind == TIME:
            return pd.Series(rows.moments(name))
        if kind == ARRAY or is_plain(rows.frame[name]):
            return rows.frame[name].reset_index(drop=True)
        return rows.values(name, kind)
    except DataError:
        if is_used:
            raise
        return rows.frame[name].astype(object).reset_index(drop=True)


def _codes(rows: Rows, names: Sequence[str]) -> dict[str, str]:
    """Columns of whole numbers of which some have zeros before them, and a value of each."""
    whole = [name for name in names if name in rows.names and _is_whole(rows.frame[name])]
    if rows.typed or not whole or not _may_have_codes(rows, whole):
        return {}
    texts = read_rows(rows.where, whole)
    found = {}
    for name in whole:
        values = texts.frame[name].str.strip()
        codes = values[values.str.fullmatch(CODE_PATTERN).fillna(False).astype(bool)]
        if len(codes):
            found[name] = codes.iloc[0]
    return found


def _is_whole(column: pd.Series) -> bool:
    """Whether a column was read as whole numbers; they are fractions where values are missing."""
    if column.dtype.kind == "f":
        values = column.to_numpy()
        return bool((np.isnan(values) | (values == np.floor(values))).all())
    return column.dtype.kind in "iu"


def _may_have_codes(rows: Rows, names: Sequence[str]) -> bool:
    """Whether a field of some columns begins with a zero and another digit; also where that cannot
    be seen from the bytes alone."""
    with Path(rows.where).open("rb") as file:
        line = file.readline().decode("utf-8-sig", "replace").rstrip("\r\n")
        head = line.split(rows.separator)
        if "\r" in line or not set(names) <= set(head):
            return True
        places = [head.index(name) for name in names]
        while part := file.read(_STEP) + file.readline():
            alone = part.count(b"\r") != part.count(b"\r\n")
            if b'"' in part or alone or _may_have_code(part, rows.separator, len(head), places):
                return True
    return False


def _may_have_code(part: bytes, separator: str, width: int, places: Sequence[int]) -> bool:
    """Whether a field at some places begins with a zero and another digit, or with a space, in lines
    without quotes."""
    data = np.frombuffer(part.rstrip(b"\r\n") + b"\n0", np.uint8)
    ends = np.flatnonzero((data == ord(separator)) | (data == ord("\n")))
    if len(ends) % width or (data[ends[width - 1 :: width]] != ord("\n")).any():
        return True
    begins = np.append(0, ends[:-1] + 1).reshape(-1, width)[:, places]
    first = data[begins]
    digit = (data[begins + 1] >= ord("0")) & (data[begins + 1] <= ord("9"))
    # A code may stand behind any white space but that which ends fields.
    space = np.isin(first, list(b" \t\v\f")) & (first != ord(separator))
    return bool((space | (first == ord("0")) & digit).any())


# --- what a user should know ----------------------------------------------------------------------


def notes_on_values(rows: Rows, kinds: Mapping[str, str], codes: Collection[str] = ()) -> list[str]:
    """Lines about words that were taken for missing values, numbers that were taken for categories,
    and categories that differ by their spelling alone.

    Args:
        codes: columns of which the user says that they are categories.
    """
    lines = []
    for name, kind in kinds.items():
        column = rows.frame[name]
        if kind == ARRAY or not (is_text(column) or pd.api.types.is_object_dtype(column.dtype)):
            continue
        if kind in (NUMBER, TIME, BOOLEAN):
            lines += _missing_words(column, name)
        elif kind in (CATEGORY, IDENTIFIER):
            names = rows.factor(name)[1]
            lines += near_equal(names, name)
            lines += _numbers_and_texts(column, name)
            if kind == CATEGORY and name not in codes:
                lines += _numbers_as_text(rows, names, name)
    return lines


def why_no_input(rows: Rows, name: str, kind: str) -> str:
    """Why no feature is made of a column of identifiers or of long text."""
    if kind == IDENTIFIER:
        return "identifiers"
    different = rows.frame[name].nunique()
    return f"text with {different:,} different values in {len(rows):,} rows"


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
    present = rows.present(name, kind)
    parts = [role] if role else []
    different = int(column[present].nunique())
    values = counted(different, "different value")
    natural = rows.kind(name)
    if not role and natural != kind:
        parts.append(f"said to be one; {values}, which look like {natural}")
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


def _missing_words(column: pd.Series, name: str) -> list[str]:
    looked_for = MISSING_WORDS - set(MISSING)
    texts = column.dropna().astype("str").str.strip()
    found = texts[texts.isin(looked_for)]
    words = found.value_counts().to_dict()
    if not words:
        return []
    shown = ", ".join(map(repr, list(words)[:SHOWN]))
    return [f"column {name}: {shown} treated as missing values in {sum(words.values())} rows"]


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
    return [f"column {name}: {shown} taken for the same"]


def _numbers_as_text(rows: Rows, names: Sequence[str], column: str) -> list[str]:
    """A line for a column of text that was meant as numbers: it has many of them."""
    known = pd.Series(names, dtype=TEXTS)
    form = _other_form(known)
    if form:
        first = known[~known.str.fullmatch(NUMBER_PATTERN)].iloc[0]
        return [
            f"column {column}: treated as categories, because values such as {first!r} are {form}; "
            "if they are codes, name it in data.encode.categories"
        ]
    numbers = known[known.str.fullmatch(NUMBER_PATTERN)]
    limits = known[known.str.fullmatch(LIMIT)]
    have_limits = len(limits) > 0 and len(numbers) + len(limits) > MOST_OF * len(known)
    # A few numbers as text are codes.
    is_few = len(numbers) <= (0 if have_limits else CODES)
    if is_few or numbers.str.fullmatch(CODE_PATTERN).any():
        return []
    why = "they are stored as text"
    if len(numbers) < len(names):
        odd = known.drop(numbers.index)
        codes, _ = rows.factor(column)
        codes = codes[codes >= 0]
        lost = int(np.isin(codes, odd.index).sum())
        why = f"{lost} of {len(codes)} are not numbers, such as {odd.iloc[0]!r}"
    return [
        f"column {column}: its numbers are treated as categories, because {why}; if they are "
        "codes, name it in data.encode.categories"
    ]


def _other_form(names: pd.Series) -> str:
    """What a person reads in texts that are neither numbers nor times here; empty where it is nothing."""
    plain = names.str.fullmatch(NUMBER_PATTERN)
    least = 0 if names.str.fullmatch(TWO_SIGNS).any() else FEW
    if (~plain).sum() <= least:
        return ""
    for form, pattern in OTHER_FORMS.items():
        if (plain | names.str.fullmatch(pattern)).mean() > MOST_OF:
            return form
    return ""
