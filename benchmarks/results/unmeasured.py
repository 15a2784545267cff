"""The lines of ``coterie reproduce`` that a page has no value of, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.results.lines import case_of
from benchmarks.results.markdown import distinct, table
from benchmarks.results.records import ResultPage
from coterie.studies.reproduce.papers import Line
from coterie.studies.reproduce.reproduction import STARTUP_SECONDS
from coterie.studies.reproduce.tables import paper

NOT_AT_HAND = ("svhn",)  # data that no page could be measured with
MOST_NAMED = 5  # columns; a row of more is said to lack so many of all


def unmeasured(page: ResultPage, name: str) -> str:
    """Rows with lines that have no record: which, and how long a run of one takes.

    Args:
        page: of a paper.
        name: of the paper.
    """
    missing = missing_lines(page, name)
    # Rows that lack the same for the same reason stand together.
    rows: dict[tuple[str, str], list[str]] = {}
    lacking: dict[tuple[str, str], int] = {}
    for row in distinct(_row(line) for line in missing):
        lines = [line for line in missing if _row(line) == row]
        tables = distinct(line.table for line in lines)
        key = (", ".join(_lacking(name, at, row, lines) for at in tables), _why(lines))
        rows.setdefault(key, []).append(row)
        lacking[key] = lacking.get(key, 0) + len(lines)
    cells = [[", ".join(rows[key]), key[0], str(lacking[key]), key[1]] for key in rows]
    return table(["row", "without a value", "lines", "reason"], cells)


def missing_lines(page: ResultPage, name: str) -> list[Line]:
    """The lines of a paper without a record, in its order.

    Args:
        page: of the paper.
        name: of the paper.
    """
    known = {(record.case, record.subject) for record in page.records}
    lines = [line for one in paper(name).tables for line in one.lines]
    return [line for line in lines if (case_of(line.table), line.name) not in known]


def _row(line: Line) -> str:
    return line.name.split("/")[0]


def _lacking(name: str, at: str, row: str, missing: Iterable[Line]) -> str:
    """A table, and which of the row's columns it lacks if it has others."""
    (found,) = (one for one in paper(name).tables if one.name == at)
    of_row = [line for line in found.lines if _row(line) == row]
    columns = [line.name.split("/")[1] for line in missing if line.table == at]
    case = case_of(at)
    if len(columns) == len(of_row):
        return case
    if len(columns) > MOST_NAMED:
        return f"{case} ({len(columns)} of {len(of_row)} lines)"
    return f"{case} ({', '.join(columns)})"


def _why(lines: Sequence[Line]) -> str:
    """The time of a run on two idle cores, and data that are not at hand."""
    seconds = [STARTUP_SECONDS + line.rounds * line.seconds for line in lines if not line.compute]
    reasons = []
    if seconds:
        shortest = _duration(min(seconds))
        longest = _duration(max(seconds))
        span = shortest if shortest == longest else f"{shortest} to {longest}"
        reasons.append(f"{span} for a run")
    sources = distinct(line.config().data.source for line in lines if line.tables is not None)
    reasons += [f"{source} is not at hand" for source in sources if source in NOT_AT_HAND]
    return "; ".join(reasons)


def _duration(seconds: float) -> str:
    """Rounded, since it is an estimate.

    Example:
        >>> _duration(44), _duration(300), _duration(37000)
        ('44 s', '5 min', '10 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


UNMEASURED: dict[str, Callable[..., str]] = {"unmeasured": unmeasured}
