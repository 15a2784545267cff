"""The page of the quick profile: each accuracy beside print, and how many of them are near.

The quick profile trains fewer rounds than the papers do, so its figures have a page of their own and
never replace those of the full profile.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results.figures import middle
from benchmarks.results.lines import Line, case_of, record_of
from benchmarks.results.records import Measurement, Record, ResultPage
from coterie.studies.reproduce.outcome import NEAR
from coterie.studies.reproduce.tables import paper

PAGE = "reproduce-quick"
ACCURACIES = "accuracies"  # key of the measurement, and the case of the counts


def with_accuracies(page: ResultPage, lines: Sequence[Line], how: Measurement) -> ResultPage:
    """The page with these accuracies in place of those that it has.

    Args:
        page: ``reproduce-quick``. What it says of time and size stays, and so do remarks.
        lines: of ``reproduce.json``.
        how: the measurement.
    """
    notes = {record.key: record.note for record in page.records}
    accuracies = [_accuracy(line, notes) for line in lines if _has_gap(line)]
    gaps = [
        abs(middle(record) - record.printed.value)
        for record in accuracies
        if record.printed is not None
    ]
    near = sum(gap <= NEAR for gap in gaps)
    counts = [_count("within 2 points of the paper", near), _count("all", len(gaps))]
    # Counts of an earlier page may belong to a measurement of another name.
    kept = [record for record in page.records if ACCURACIES not in (record.measured, record.case)]
    return ResultPage(
        question=page.question,
        topic=page.topic,
        settings=page.settings,
        measurements={**page.measurements, ACCURACIES: how},
        records=(*kept, *counts, *accuracies),
    )


def _has_gap(line: Line) -> bool:
    # Only accuracies: points of them can be compared across lines.
    return bool(line["values"]) and line["unit"] == "percent" and line["printed"] is not None


def _accuracy(line: Line, notes: dict[str, str | None]) -> Record:
    """The record of a line, whose case is its paper, and whose subject says which rounds it had."""
    found = record_of(line, ACCURACIES, None)
    named = {
        "case": paper(line["paper"]).title,
        "subject": f"{case_of(line['table'])}, {line['line']}, {line['rounds']} rounds",
    }
    record = Record(**{**dict(found), **named})
    return Record(**{**dict(record), "note": notes.get(record.key)})


def _count(subject: str, value: int) -> Record:
    return Record(
        case=ACCURACIES,
        subject=subject,
        metric="number",
        unit="",
        values=(value,),
        seeds=None,
        rounds=None,
        measured=ACCURACIES,
    )
