"""Tables of means with 95 % intervals, of paired differences, and of who shares a group.

The intervals are by Student's t over the seeds. Seeds that draw test samples anew train on test
samples of each other, so their figures depend on each other, and plain intervals would be too
narrow. With the ratio ``r`` of test to training samples the half width is

    t sd sqrt(1/n + r)

as Nadeau and Bengio have it (Inference for the Generalization Error, 2003). Where the test samples
are the same for every seed, or none is trained on by another seed, ``r`` is 0.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from fractions import Fraction

from benchmarks.results.figures import decimals
from benchmarks.results.markdown import distinct, matching, table
from benchmarks.results.records import Record, ResultPage
from coterie.math.intervals import half_width


def intervals(page: ResultPage, rows: str, columns: str, ratio: str = "0", **where: str) -> str:
    """Records by two of their fields, each a mean ± half the width of its interval.

    Args:
        page: with the records.
        rows: a field of records: ``case``, ``subject`` or ``metric``.
        columns: another one.
        ratio: of test to training samples, as ``1/3``, where seeds draw them anew.
        where: values of the other fields.
    """
    share = float(Fraction(ratio))

    def cell(record: Record) -> str:
        return _interval(record.known, share, decimals(record.known))

    return _cells(matching(page, where), rows, columns, cell)


def gains(
    page: ResultPage, rows: str, columns: str, over: str, ratio: str = "0", **where: str
) -> str:
    """Differences from a subject, paired by seed: mean ± half the width of the interval.

    Args:
        page: with the records.
        rows: a field of records.
        columns: another one.
        over: the subject that others are compared with.
        ratio: as for `intervals`.
        where: values of the other fields.
    """
    share = float(Fraction(ratio))
    apart = _differences(page, over)

    def cell(record: Record) -> str:
        return _interval(apart(record), share, decimals(record.known), signed=True)

    others = [record for record in matching(page, where) if record.subject != over]
    return _cells(others, rows, columns, cell)


def _differences(page: ResultPage, over: str) -> Callable[[Record], list[float]]:
    """A function from a record to its differences from that of another subject, seed by seed."""
    of_other = {(one.case, one.metric): one for one in page.records if one.subject == over}

    def apart(record: Record) -> list[float]:
        other = of_other[record.case, record.metric]
        if record.seeds is None or record.seeds != other.seeds:
            raise ValueError(f"{record.key}: not of the seeds of {other.key}")
        pairs = zip(record.values, other.values, strict=True)
        return [a - b for a, b in pairs if a is not None and b is not None]

    return apart


def clear(page: ResultPage, over: str, better: str, ratio: str = "0", **where: str) -> str:
    """Which differences have an interval without 0, as text: by subject and case, or ``none``.

    Args:
        page: with the records.
        over: the subject that others are compared with.
        better: ``higher`` or ``lower``: the sign of the differences that are listed.
        ratio: as for `intervals`.
        where: values of fields.
    """
    share = float(Fraction(ratio))
    sign = 1 if better == "higher" else -1
    apart = _differences(page, over)
    found = []
    for record in matching(page, where):
        if record.subject == over:
            continue
        gaps = apart(record)
        half = half_width(gaps, share)
        if sign * statistics.fmean(gaps) > half:
            text = _interval(gaps, share, decimals(record.known), signed=True)
            found.append(f"{record.subject} in {record.case} ({text})")
    return "; ".join(found) or "none"


def members(page: ResultPage, metric: str, case: str = "") -> str:
    """The group of each client by seed, as letters: ``A A B`` is group A with two seeds of three.

    Args:
        page: whose records with this metric have clients as subjects, methods as cases, and numbers
            of groups from 1.
        metric: of the records.
        case: only this one.
    """
    where = {"metric": metric, "case": case} if case else {"metric": metric}

    def cell(record: Record) -> str:
        return " ".join(chr(ord("A") + int(value) - 1) for value in record.known)

    return _cells(matching(page, where), "subject", "case", cell)


def _cells(
    records: Sequence[Record], rows: str, columns: str, cell: Callable[[Record], str]
) -> str:
    """A table with a cell for each record."""
    across = distinct(getattr(record, columns) for record in records)
    lines = []
    for row in distinct(getattr(record, rows) for record in records):
        found = {getattr(one, columns): one for one in records if getattr(one, rows) == row}
        lines.append([row, *(cell(found[name]) if name in found else "" for name in across)])
    return table([_corner(records), *across], lines)


def _corner(records: Sequence[Record]) -> str:
    """The unit of all cells, in the corner of the table."""
    units = {record.unit for record in records}
    return units.pop() if len(units) == 1 else ""


def _interval(values: Sequence[float], ratio: float, places: int, signed: bool = False) -> str:
    """A mean ± half the width of its interval, with so many decimals."""
    if not values:
        return ""
    # Zero has no sign, also where it is a small number that was rounded.
    centre = round(statistics.fmean(values), places) + 0.0
    text = f"{centre:{'+' if signed else ''}.{places}f}"
    half = half_width(values, ratio)
    if not math.isfinite(half):
        return text
    return f"{text} ± {half:.{places}f}"


INTERVALS: dict[str, Callable[..., str]] = {
    "intervals": intervals,
    "gains": gains,
    "clear": clear,
    "members": members,
}
