"""The rows of all training files, and the kind of each column over all of them."""

from __future__ import annotations

import mmap
import re
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
    NUMBER,
    TEXT,
    TIME,
    decide_kinds,
    kinds_in_files,
)
from coterie.data.rows.reading import read_rows
from coterie.data.rows.table import FILE_NAME, Rows
from coterie.data.rows.texts import (
    CODE_PATTERN,
    TEXTS,
    is_missing_word,
    is_plain,
    is_text,
    words_are_missing,
)
from coterie.data.tabular.new_rows import names_of_file
from coterie.data.tabular.notes import missing_words
from coterie.errors import DataError
from coterie.files import UTF_16

NAMES_OF_NOTHING = {"None", "none"}  # words that name a class, as in: pain: none


def read_training_rows(
    sources: Sequence[Any],
    known: Mapping[str, str],
    time: str | None = None,
    used: Collection[str] | None = None,
    labels: Collection[str] = (),
    left_out: Collection[str] = (),
    missing: Collection[str] = (),
) -> tuple[Rows, dict[str, str]]:
    """The rows of all training files, and the kind of each column over all of them.

    Args:
        known: kinds that are said by the user, or by what a column is for.
        time: the column that orders series, which holds no codes.
        used: columns that have a use; ``None``: all but those of ``left_out``. Of the others nothing
            is refused.
        labels: those that are numbers in each file are read as such, also where they are classes.
        missing: words of the user's that are missing values.
    """
    files = _read_files(sources, known, missing)
    names = list(dict.fromkeys(name for rows in files for name in rows.names))
    decided = decide_kinds(files, [name for name in names if name not in known])
    numbers = [name for name, kind in decided.items() if kind == NUMBER and name != time]
    # Zeros before a number say that it is a code: 007 and 7 are two.
    codes = {name: code for rows in files for name, code in _codes(rows, numbers).items()}
    kinds = {name: known.get(name) or decided[name] for name in names}
    kinds |= dict.fromkeys(codes, CATEGORY)
    files = [_read_as_text(rows, _text_columns(kinds)) for rows in files]
    long = [
        name for name in codes if TEXT in {one.kind(name) for one in files if name in one.names}
    ]
    kinds |= dict.fromkeys(long, TEXT)
    numbers = [name for name in labels if _is_number_in_each(files, name)]
    classes = [name for name in labels if kinds.get(name) == CATEGORY]
    has_use = [name for name in kinds if name not in left_out and (used is None or name in used)]
    numeric = [name for name in has_use if name in numbers or kinds[name] == NUMBER]
    on_commas = [line for rows in files for line in rows.lines_on_commas(numeric)]
    files, lines = _without_words_of_labels(files, classes)
    lines += on_commas
    stored = kinds | dict.fromkeys([name for name in numbers if name in kinds], NUMBER)
    rows = files[0] if len(files) == 1 else _joined(files, stored, has_use)
    if len(files) > 1:
        # Of one file they are found later: its texts are still there.
        numeric = [name for name in has_use if kinds[name] in (NUMBER, TIME, BOOLEAN)]
        lines += _missing_words_of_all(files, numeric)
    for name, code in codes.items():
        why = f"treated as codes, because values such as {code!r} begin with zeros"
        if_not = f"if they are numbers: [data.columns] {name} = 'number'"
        lines.append(f"column {name}: {why}; {if_not}")
    for name in dict.fromkeys([*has_use, *labels]):
        if name in decided or name in labels:
            lines += _kinds_that_differ(files, name, labels)
    return replace(rows, lines=(*rows.lines, *lines)), kinds


def _missing_words_of_all(files: Sequence[Rows], names: Sequence[str]) -> list[str]:
    """Lines about the words of all files that are missing values among numbers."""
    lines = []
    for name in names:
        columns = [rows.frame[name] for rows in files if name in rows.names]
        texts = [column for column in columns if is_text(column)]
        if texts:
            lines += missing_words(pd.concat(texts), name)
    return lines


def _read_files(
    sources: Sequence[Any], known: Mapping[str, str], missing: Collection[str]
) -> list[Rows]:
    """The rows of each file, by what is known of its columns."""
    texts = _text_columns(known)
    files = [read_rows(source, texts, missing=missing) for source in sources]
    if FILE_NAME not in known:
        return files
    named = zip(files, _names_of_files(files), strict=True)
    return [_with_file_name(rows, name) for rows, name in named]


def _text_columns(kinds: Mapping[str, str]) -> list[str]:
    """The columns that are text from the first byte on."""
    return [name for name, kind in kinds.items() if kind in AS_TEXT]


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
    what = f"{files[group[0]].where} and {files[group[1]].where} have the same name"
    allowed = f"files with different names, because each is a client ({FILE_NAME})"
    raise DataError("in-conflict", "data.path", what, allowed=allowed)


def _kinds_that_differ(files: Sequence[Rows], name: str, labels: Collection[str]) -> list[str]:
    """A line for a column that has other kinds in other files."""
    found: dict[str, Rows] = {}
    for rows, kind in kinds_in_files(files, name):
        found.setdefault(kind, rows)
    found.pop(EMPTY, None)
    # In tables 1 and 0 are a way to say yes and no; among labels they are other classes.
    if len(found) < 2 or (name not in labels and set(found) == {NUMBER, BOOLEAN}):
        return []
    # Numbers in one file and codes such as 1B in another are classes of both, if they share some.
    if name in labels and set(found) == {NUMBER, CATEGORY}:
        one, other = (set(rows.factor(name)[1]) for rows in found.values())
        if one & other:
            return []
    shown = ", ".join(f"{kind} in {rows.name}" for kind, rows in found.items())
    return [f"column {name}: {shown}; all of its values are read as categories"]


def _is_number_in_each(files: Sequence[Rows], name: str) -> bool:
    found = {kind for _, kind in kinds_in_files(files, name)}
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
            lines += missing_words(pd.concat([rows.frame[name] for rows in present]), name)
            files = [rows.with_number_texts(name) if name in rows.names else rows for rows in files]
        elif words - NAMES_OF_NOTHING:
            shown = ", ".join(map(repr, sorted(words - NAMES_OF_NOTHING)))
            lines.append(
                f"column {name}: {shown} treated as a class; if it means a missing label, list it in "
                "data.missing, or leave the field empty"
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
    again = read_rows(rows.where, texts, missing=rows.missing)
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
    for name in _text_columns(kinds):
        frame[name] = _one_spelling(frame[name])
    where = f"{files[0].where} and others"
    return Rows(frame, where, lines=tuple(lines), missing=files[0].missing)


def _one_spelling(column: pd.Series) -> pd.Series:
    """Truth values as Python writes them, where the files write them in several ways."""
    first = column.first_valid_index()
    # A column that is not used may hold anything.
    if first is None or str(column[first]).lower() not in ("true", "false"):
        return column
    spelled = set(column.dropna().astype(str))
    words = {text.lower() for text in spelled}
    if len(spelled) == len(words) or words != {"true", "false"}:
        return column
    return column.str.capitalize()


def _column_of_kind(rows: Rows, name: str, kind: str, is_used: bool) -> Any:
    try:
        if kind in AS_TEXT:
            return pd.Series(rows.texts(name), dtype=TEXTS)
        if kind == TIME:
            return pd.Series(rows.moments(name))
        if kind == ARRAY:
            return rows.frame[name].reset_index(drop=True)
        if is_plain(rows.frame[name]):
            rows.refuse_unclear_signs(name)
            return rows.frame[name].reset_index(drop=True)
        return rows.values(name, kind)
    except DataError:
        if is_used:
            raise
        return rows.frame[name].astype(object).reset_index(drop=True)


def _codes(rows: Rows, names: Sequence[str]) -> dict[str, str]:
    """Columns of whole numbers of which some have zeros before them, and a value of each."""
    whole = [name for name in names if name in rows.names and _is_whole(rows.frame[name])]
    if rows.typed or not whole or not _may_have_codes(rows):
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


def _may_have_codes(rows: Rows) -> bool:
    """Whether a field of a file may begin with a zero and another digit."""
    separator = re.escape(rows.separator.encode())
    # The zero first, for which a whole file is searched in no time.
    code = re.compile(rb'0(?<=[\s"%s]0)[0-9]' % separator)
    with (
        Path(rows.where).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        # In UTF-16, zero bytes stand between digits.
        return data[:2] in UTF_16 or code.search(data) is not None
