"""Take what `coterie reproduce` measured into the result files of this folder.

    coterie reproduce flexcfl --table 3 --row mnist-mclr --profile full --seeds 0-2
    python -m benchmarks.results.collect runs/reproduce/reproduce.json --machine "two cores ..."

Every line of a paper becomes a record of ``reproduce-<paper>.json``. If the line is there already,
its record gets the new seeds beside those that it has; a seed that is measured again has its new value.
The note, in which a gap is explained, stays. Delete a record first whose line has another configuration
now, or other seeds: its old values are of something else.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import records
from benchmarks.results.papers import printed_values
from benchmarks.results.records import FOLDER, Measurement, Printed, Record, ResultPage
from coterie.studies.reproduce.tables import paper

Line = Mapping[str, Any]

UNITS = {"percent": "%", "share": "%", "count": "", "number": "", "ratio": ""}
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
        metric="last ten",
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


def merged(page: ResultPage, lines: Sequence[Line], measured: str, how: Measurement) -> ResultPage:
    """The page with the records of some lines, joined to those that it has of them.

    Args:
        page: as it is.
        lines: of ``reproduce.json``.
        measured: key of the measurement.
        how: the measurement.
    """
    notes = {record.key: record.note for record in page.records}
    new: list[Record] = []
    for line in lines:
        if not line["values"]:
            continue
        note = notes.get(f"{case_of(line['table'])}/{line['line']}/ours")
        new.append(record_of(line, measured, note))
        last_ten = last_ten_of(line, measured)
        if last_ten is not None:
            new.append(last_ten)
    # Of other records there are several with one key, one for each number of rounds.
    before = {record.key: record for record in page.records}
    kept = {record.key for record in new}
    joined = [joined_to(before.get(record.key), record) for record in new]
    records = [record for record in page.records if record.key not in kept] + joined
    used = {key for record in records for key in record.sources}
    measurements = {**page.measurements, measured: how}
    return ResultPage(
        question=page.question,
        topic=page.topic,
        settings=page.settings,
        measurements={key: value for key, value in measurements.items() if key in used},
        records=in_order(records, [line["paper"] for line in lines]),
    )


def joined_to(before: Record | None, new: Record) -> Record:
    """A record with the seeds of an earlier one that it does not have itself, in rising order.

    What has no seed, or was measured after another number of rounds, is replaced as a whole.

    Args:
        before: of the same line; ``None`` if there is none.
        new: as measured now.
    """
    if before is None or before.seeds is None or new.seeds is None or before.rounds != new.rounds:
        return new
    values = dict(zip(before.seeds, before.values, strict=True))
    values.update(zip(new.seeds, new.values, strict=True))
    seeds = tuple(sorted(values))
    earlier = {
        key: tuple(seed for seed in of_key or () if seed not in new.seeds)
        for key, of_key in before.sources.items()
        if key != new.measured
    }
    found = {
        "values": tuple(values[seed] for seed in seeds),
        "seeds": seeds,
        "joined": {key: of_key for key, of_key in earlier.items() if of_key} or None,
    }
    return Record(**{**dict(new), **found})


def in_order(found: Iterable[Record], names: Iterable[str]) -> tuple[Record, ...]:
    """Records in the order of the lines of their paper's file; others after them, as they are.

    A line that is measured later would else stand below those that it belongs to.

    Args:
        found: records of a page.
        names: of the papers.
    """
    tables = [table for name in dict.fromkeys(names) for table in paper(name).tables]
    keys = [(case_of(table.name), line.name) for table in tables for line in table.lines]
    places = {key: place for place, key in enumerate(keys)}

    def place_of(record: Record) -> int:
        return places.get((record.case, record.subject), len(places))

    return tuple(sorted(found, key=place_of))


def _empty(name: str) -> ResultPage:
    return ResultPage(
        question=f"What does `coterie reproduce {name}` give beside every printed value?",
        topic="reproduction",
        settings=None,
        measurements={},
        records=(),
    )


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def command_of(name: str, profile: str, seeds: Sequence[int], lines: Sequence[Line]) -> str:
    """The command that measured some lines of a paper.

    A line that names its own seeds has others only if the command names none.

    Args:
        name: of the paper.
        profile: of the lines.
        seeds: of the command, or those that it has by itself.
        lines: of ``reproduce.json``.
    """
    command = f"coterie reproduce {name} --profile {profile}"
    if any(set(line["seeds"]) - set(seeds) for line in lines):
        return command
    return f"{command} --seeds {','.join(map(str, seeds))}"


def main() -> int:
    """Merge a file of results into the pages of its papers."""
    parser = argparse.ArgumentParser(description="Take results of coterie reproduce into pages.")
    parser.add_argument("results", type=Path, help="reproduce.json of the output folder")
    parser.add_argument("--machine", required=True, help="processor, cores and load, in words")
    parser.add_argument("--commit", default=None, help="that measured; default: the current one")
    options = parser.parse_args()
    content = json.loads(options.results.read_text(encoding="utf-8"))
    commit = options.commit or _commit()
    today = datetime.date.today().isoformat()
    for of_paper in dict.fromkeys(line["paper"] for line in content["lines"]):
        name = f"reproduce-{of_paper}"
        page = records.read(name) if (FOLDER / f"{name}.json").exists() else _empty(of_paper)
        lines = [line for line in content["lines"] if line["paper"] == of_paper]
        # A benchmark that fills in lines of a paper says what it was called with.
        command = content.get("command")
        if command is None:
            command = command_of(of_paper, content["profile"], content["seeds"], lines)
        how = Measurement(
            what=f"Lines measured on {today}, commit {commit}",
            settings="",
            machine=options.machine,
            date=today,
            commit=commit,
            command=command,
        )
        records.write(name, merged(page, lines, f"{today} {commit}", how))
        print(f"{name}.json: {sum(bool(line['values']) for line in lines)} lines")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
