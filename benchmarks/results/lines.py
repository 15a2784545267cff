"""Lines of ``reproduce.json`` as records of result files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.results.papers import printed_values
from benchmarks.results.records import Printed, Record

Line = Mapping[str, Any]

UNITS = {"percent": "%", "share": "%", "count": "", "number": "", "ratio": ""}
LAST_TEN = "last ten"  # the metric of means of the last ten rounds
# Keys of the printed tables that say which row it is.
NAMES_OF_ROWS = ("dataset", "model", "method", "classes", "classes_per_device")
DECIMALS = {"percent": 1, "share": 1, "count": 0, "number": 4, "ratio": 2}


def place_text(line: Line) -> str | None:
    """Where a printed value is, as `papers.printed_at` finds it; ``None`` if there is none.

    The place of a line is a path of keys and indices. The index of a row is replaced by values that
    tell the row from the others.
    """
    if line["printed"] is None or line["place"] is None:
        return None
    paper, table, *path = line["place"]
    words = [f"{paper}.{table}"]
    if path[:1] == ["rows"]:
        rows = printed_values()[paper][table]["rows"]
        words += _telling(rows, path[1])
        path = path[2:]
    return " ".join([*words, *map(str, path)])


def _telling(rows: Sequence[Mapping[str, Any]], number: int) -> list[str]:
    """Values of a row that no other row has all of: those that name it, and more where they must."""
    wanted = rows[number]
    names = [key for key in NAMES_OF_ROWS if key in wanted]
    words = [str(wanted[key]) for key in names]
    for key, value in wanted.items():
        if _rows_with(rows, words) == 1:
            break
        # The 10 of ten classes is a number of rounds in another row.
        if key not in names:
            words.append(str(value))
    return words


def _rows_with(rows: Sequence[Mapping[str, Any]], words: Sequence[str]) -> int:
    return sum(set(words) <= {str(value) for value in row.values()} for row in rows)


def record_of(line: Line, measured: str, note: str | None) -> Record:
    """The record of a line.

    Args:
        line: of ``reproduce.json``.
        measured: key of its measurement.
        note: why it differs from print, as it was written for the record before.
    """
    at = place_text(line)
    places = DECIMALS[line["unit"]]
    return Record(
        case=case_of(line["table"]),
        subject=line["line"],
        metric="ours",
        unit=unit_of(line),
        values=tuple(round(value, places) for value in line["values"]),
        seeds=tuple(line["seeds"]) or None,
        rounds=line["rounds"] or None,
        measured=measured,
        printed=None if at is None else Printed(value=line["printed"], at=at),
        note=note,
    )


def unit_of(line: Line) -> str:
    """The unit of a line: accuracies are in percent, and their differences in points.

    Example:
        >>> unit_of({"unit": "percent", "how": "difference"}), unit_of({"unit": "share"})
        ('points', '%')
    """
    if line["unit"] == "percent" and line.get("how") == "difference":
        return "points"
    return UNITS[line["unit"]]


def last_ten_of(line: Line, measured: str) -> Record | None:
    """The record of the mean of the last ten rounds beside a maximum."""
    if line["metric"] not in ("max", "median") or len(line["last10"]) != len(line["seeds"]):
        return None
    return Record(
        case=case_of(line["table"]),
        subject=line["line"],
        metric=LAST_TEN,
        unit=UNITS[line["unit"]],
        values=tuple(round(value, 1) for value in line["last10"]),
        seeds=tuple(line["seeds"]),
        rounds=line["rounds"],
        measured=measured,
    )


def case_of(table: str) -> str:
    """What a page calls a table or figure.

    Example:
        >>> case_of("4a"), case_of("fig6")
        ('Table 4a', 'Fig. 6')
    """
    if table.startswith("fig"):
        return f"Fig. {table.removeprefix('fig')}"
    return f"Table {table}"
