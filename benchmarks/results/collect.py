"""Take what `coterie reproduce` measured into the result files of this folder.

    coterie reproduce flexcfl --table 3 --row mnist-mclr --profile full --seeds 0-2
    python -m benchmarks.results.collect runs/reproduce/reproduce.json --machine "two cores ..."

Every line of a paper becomes a record of ``reproduce-<paper>.json``. If the line is there already,
its record gets the new seeds beside those that it has; a seed that is measured again has its new value.
The note, in which a gap is explained, stays. Delete a record first whose line has another configuration
now, or other seeds: its old values are of something else.

Lines of the quick profile, which has fewer rounds, go to a page of their own, ``reproduce-quick``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import quick, records
from benchmarks.results.lines import LAST_TEN, Line, case_of, last_ten_of, record_of
from benchmarks.results.records import FOLDER, Measurement, Record, ResultPage
from coterie.studies.reproduce.tables import paper

# How the papers write the names of their methods.
TITLES = {
    "fedclust": "FedClust",
    "fedgroup": "FedGroup",
    "fedgsp": "FedGSP",
    "flexcfl": "FlexCFL",
    "rfedavg": "RFedAvg",
}


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
    replaced = {record.key for record in new}
    kept = [record for record in page.records if record.key not in replaced]
    joined = [joined_to(before.get(record.key), record) for record in new]
    records = [record for record in kept if not _is_outdated(record, new)] + joined
    used = {key for record in records for key in record.sources}
    measurements = {**page.measurements, measured: how}
    return ResultPage(
        question=page.question,
        topic=page.topic,
        settings=page.settings,
        measurements={key: value for key, value in measurements.items() if key in used},
        records=in_order(records, [line["paper"] for line in lines]),
    )


def _is_outdated(before: Record, new: Sequence[Record]) -> bool:
    """Whether a mean of the last ten rounds is of runs whose line has new values without one."""
    if before.metric != LAST_TEN:
        return False
    for record in new:
        if (record.case, record.subject) != (before.case, before.subject):
            continue
        again = set(record.seeds or ()) & set(before.seeds or ())
        return bool(again) or record.rounds != before.rounds
    return False


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

    def place_of(record: Record) -> tuple[int, bool]:
        # A table takes the printed value of a line from its first record.
        place = places.get((record.case, record.subject), len(places))
        return place, place < len(places) and record.metric == LAST_TEN

    return tuple(sorted(found, key=place_of))


def _empty(name: str) -> ResultPage:
    return ResultPage(
        question=f"{TITLES.get(name, name)}: our results next to the paper's",
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
    """Merge a file of results into the pages of its papers, or into that of the quick profile."""
    parser = argparse.ArgumentParser(description="Take results of coterie reproduce into pages.")
    parser.add_argument("results", type=Path, help="reproduce.json of the output folder")
    parser.add_argument("--machine", required=True, help="processor, cores and load, in words")
    parser.add_argument("--commit", default=None, help="that measured; default: the current one")
    options = parser.parse_args()
    content = json.loads(options.results.read_text(encoding="utf-8"))
    commit = options.commit or _commit()
    if content["profile"] == "quick":
        _take_quick(content, options.machine, commit)
        return 0
    for of_paper in dict.fromkeys(line["paper"] for line in content["lines"]):
        _take_paper(content, of_paper, options.machine, commit)
    return 0


def _take_quick(content: dict[str, Any], machine: str, commit: str) -> None:
    how = Measurement(
        what="Accuracies",
        settings="One seed.",
        machine=machine,
        date=datetime.date.today().isoformat(),
        commit=commit,
        command="coterie reproduce --profile quick",
    )
    page = quick.with_accuracies(records.read(quick.PAGE), content["lines"], how)
    records.write(quick.PAGE, page)
    print(f"{quick.PAGE}.json: {len(content['lines'])} lines")


def _take_paper(content: dict[str, Any], of_paper: str, machine: str, commit: str) -> None:
    name = f"reproduce-{of_paper}"
    page = records.read(name) if (FOLDER / f"{name}.json").exists() else _empty(of_paper)
    lines = [line for line in content["lines"] if line["paper"] == of_paper]
    # A benchmark that fills in lines of a paper says what it was called with.
    command = content.get("command")
    if command is None:
        command = command_of(of_paper, content["profile"], content["seeds"], lines)
    today = datetime.date.today().isoformat()
    how = Measurement(
        what=f"Lines measured on {today}, commit {commit}",
        settings="",
        machine=machine,
        date=today,
        commit=commit,
        command=command,
    )
    records.write(name, merged(page, lines, f"{today} {commit}", how))
    print(f"{name}.json: {sum(bool(line['values']) for line in lines)} lines")


if __name__ == "__main__":
    raise SystemExit(main())
