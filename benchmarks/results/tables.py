"""The kinds of table that a page may have, one function each, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.results.figures import (
    decimals,
    difference,
    number,
    own_decimals,
    summary,
    verdict,
)
from benchmarks.results.markdown import distinct, matching, table
from benchmarks.results.records import Measurement, Record, ResultPage

NOT_RECORDED = "not recorded"
CHOSEN = "rounds"  # a metric of runs that choose how long they train
TRAINED = ("accuracy", "drift", "groups")  # topics whose figures come from training


def comparison(page: ResultPage, case: str) -> str:
    """Methods below each other in one case: every metric, the paper's value, seeds.

    The printed value, the difference and the aim belong to the first metric.
    """
    records = page.of(case)
    metrics = distinct(record.metric for record in records)
    places = _by_unit(records)
    columns = [_headed(metric, records) for metric in metrics]
    header = ["", *columns, "published", "difference", "aim", "seeds", "remark"]
    rows = []
    for subject in distinct(record.subject for record in records):
        found = {record.metric: record for record in records if record.subject == subject}
        first = next(iter(found.values()))
        row = [subject]
        for metric in metrics:
            cell = ""
            if metric in found:
                cell = summary(found[metric], places.get((metric, found[metric].unit)))
            row.append(cell)
        row += [_printed(first), difference(first), verdict(first), _seeds(first)]
        row.append(_notes(found.values()))
        rows.append(row)
    return table(header, rows)


def pivot(page: ResultPage, rows: str, columns: str, **where: str) -> str:
    """Records by two of their fields (``case``, ``subject``, ``metric``), others held fixed.

    A column whose figures have an aim is followed by one that says whether it was reached.
    """
    records = matching(page, where)
    down = distinct(getattr(record, rows) for record in records)
    header = [""]
    lines = [[row] for row in down]
    for column in distinct(getattr(record, columns) for record in records):
        of_column = [record for record in records if getattr(record, columns) == column]
        header += [_headed(column, of_column), "aim"]
        by_row = {getattr(record, rows): record for record in of_column}
        for line, cells in zip(lines, _column(down, by_row), strict=True):
            line += cells
    for line in lines:
        line.append(_notes(record for record in records if getattr(record, rows) == line[0]))
    return table([*header, "remark"], lines)


def _column(down: Sequence[str], by_row: dict[str, Record]) -> list[list[str]]:
    """Values and aims of a column, line by line; a unit that differs stands in the cell."""
    found = list(by_row.values())
    one_unit = len({record.unit for record in found}) == 1
    places = _places(found)
    cells = []
    for row in down:
        record = by_row.get(row)
        if record is None:
            cells.append(["", ""])
        else:
            cells.append([_cell(record, one_unit, places), verdict(record)])
    return cells


def grid(page: ResultPage, case: str, metric: str = "ours") -> str:
    """Lines ``row/column`` of a case as rows and columns, one metric."""
    records = [record for record in page.of(case) if record.metric == metric]
    cells = {tuple(record.subject.split("/")): record for record in records}
    rows = distinct(row for row, _ in cells)
    columns = distinct(column for _, column in cells)
    lines = [[row] for row in rows]
    header = [""]
    for column in columns:
        found = [cells[row, column] for row in rows if (row, column) in cells]
        places = decimals([value for record in found for value in record.known])
        units = {record.unit for record in found}
        unit = units.pop() if len(units) == 1 else ""
        header.append(f"{column}, {unit}" if unit else column)
        for line in lines:
            record = cells.get((line[0], column))
            line.append("" if record is None else summary(record, places))
    for line in lines:
        line.append(_notes(record for (row, _), record in cells.items() if row == line[0]))
    return table([*header, "remark"], lines)


def course(page: ResultPage, case: str) -> str:
    """One metric round after round, a method a line."""
    records = page.of(case)
    after = sorted({record.rounds for record in records if record.rounds is not None})
    metric = _headed(records[0].metric, records)
    header = [f"{metric}, after round", *map(str, after)]
    has_print = any(record.printed for record in records)
    if has_print:
        header.append("published")
    rows = []
    for subject in distinct(record.subject for record in records):
        of_subject = [record for record in records if record.subject == subject]
        found = {record.rounds: summary(record) for record in of_subject}
        row = [subject, *(found.get(rounds, "") for rounds in after)]
        if has_print:
            row.append(next((_printed(record) for record in of_subject if record.printed), ""))
        rows.append(row)
    return table(header, rows)


def listing(page: ResultPage, case: str) -> str:
    """One record a line, for figures of different kinds."""
    records = page.of(case)
    metrics = distinct(record.metric for record in records)
    one = len(metrics) == 1
    header = ["", metrics[0] if one else "measured", "aim", "remark"]
    rows = []
    for record in records:
        name = record.subject if one else f"{record.subject}: {record.metric}"
        rows.append([name, _cell(record), verdict(record), record.note or ""])
    return table(header, rows)


def measured(page: ResultPage) -> str:
    """Machine, date, command, seeds and rounds of every measurement of the page."""
    lines = []
    if page.settings is not None:
        lines += [f"Settings, unless stated otherwise: {page.settings}", ""]
    machines = {source.machine for source in page.measurements.values()}
    if len(machines) == 1:
        lines += [f"Machine: {machines.pop() or NOT_RECORDED}.", ""]
        machines = set()
    for key, source in page.measurements.items():
        facts = [*_facts(page, source, key)]
        if machines:
            facts.insert(-2, f"Machine: {source.machine or NOT_RECORDED}.")
        lines.append(f"- **{source.what}.** {' '.join(facts)}")
    return "\n".join(lines)


def _facts(page: ResultPage, source: Measurement, key: str) -> list[str]:
    """Sentences; those of speed and the like need no seeds and train no rounds."""
    records = [record for record in page.records if key in record.sources]
    seeds = distinct(_listed(record.sources[key]) for record in records)
    rounds = sorted({record.rounds for record in records if record.rounds is not None})
    trains = page.topic in TRAINED
    if not trains:
        # A formula, or a time, has no seed that could have been recorded.
        seeds = [text for text in seeds if text != NOT_RECORDED]
    facts = [source.settings] if source.settings else []
    if seeds:
        facts.append(f"Seeds: {'; '.join(seeds)}.")
    chosen = [value for record in records if record.metric == CHOSEN for value in record.known]
    if chosen:
        facts.append(f"Rounds: {min(chosen)} to {max(chosen)}, chosen for each run.")
    elif trains or rounds:
        facts.append(f"Rounds: {', '.join(map(str, rounds)) or NOT_RECORDED}.")
    facts += [f"Recorded: {_when(source)}.", f"Command: {_commands(source)}."]
    return facts


def _when(source: Measurement) -> str:
    if source.date is None:
        return NOT_RECORDED
    if source.commit is None:
        return source.date
    return f"{source.date}, commit `{source.commit}`"


def _commands(source: Measurement) -> str:
    text = NOT_RECORDED if source.command is None else f"`{source.command}`"
    if source.again is None:
        return text
    return f"{text}; to measure it again: `{source.again}`"


def _cell(record: Record, unit_in_header: bool = False, places: int | None = None) -> str:
    text = summary(record, places)
    return text if unit_in_header else f"{text} {record.unit}".rstrip()


def _places(records: Sequence[Record]) -> int | None:
    """Decimals that a column shares; columns with large numbers share none."""
    known = [value for record in records for value in record.known]
    return decimals(known) if known and 0.01 < max(known) < 10 else None


def _by_unit(records: Sequence[Record]) -> dict[tuple[str, str], int]:
    """The decimals of a metric, for each of its units.

    What has the same unit has the same decimals, so that 1.5 stands below 3.37 as 1.50. Figures without
    a unit may be counts and ratios below each other, which share none.
    """
    places: dict[tuple[str, str], int] = {}
    for record in records:
        if record.unit:
            key = (record.metric, record.unit)
            places[key] = max(places.get(key, 0), decimals(record.known))
    return places


def _seeds(record: Record) -> str:
    return "" if record.seeds is None else _listed(record.seeds)


def _listed(seeds: Sequence[int] | None) -> str:
    if seeds is None:
        return NOT_RECORDED
    return ", ".join(map(str, seeds))


def _printed(record: Record) -> str:
    if record.printed is None:
        return ""
    value = record.printed.value
    if float(value).is_integer() and not own_decimals(record):
        return number(value, 0)
    return number(value, max(decimals([value]), min(decimals(record.known), 1)))


def _headed(name: str, records: Sequence[Record]) -> str:
    """A column's name, with the unit where all of its figures share one."""
    named = [record for record in records if name in (record.metric, record.case, record.subject)]
    units = {record.unit for record in named}
    unit = units.pop() if len(units) == 1 else ""
    return f"{name}, {unit}" if unit else name


def _notes(records: Iterable[Record]) -> str:
    return " ".join(record.note for record in records if record.note)


TABLES: dict[str, Callable[..., str]] = {
    "comparison": comparison,
    "pivot": pivot,
    "grid": grid,
    "course": course,
    "listing": listing,
    "measured": measured,
}
