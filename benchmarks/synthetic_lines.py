"""Does the draw of Synthetic(1,1) explain gaps to print? Lines of two papers on other draws of the data.

    python -m benchmarks.synthetic_lines --out runs/synthetic-lines.json [--minutes 60]

The draw of the paper is not published. Those of `benchmarks.synthetic_draws` have nearly as many samples
as it prints; this takes the first three, of which the first is that of the lines. Each run is one of
`coterie reproduce --profile full` with seed 0. Runs that the file has already are not done again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.resumable import RunsFile
from benchmarks.synthetic_draws import DATA_SEEDS
from coterie.experiment import check
from coterie.runs.compose import compose
from coterie.runs.run import Run
from coterie.runs.summary import figures_of
from coterie.studies.reproduce.command import choose
from coterie.studies.reproduce.papers import Line
from coterie.studies.reproduce.tables import overlay

DRAWS = DATA_SEEDS[:3]
TABLES = (
    ("flexcfl", "4a"),
    ("flexcfl", "4b"),
    ("flexcfl", "4c"),
    ("flexcfl", "4d"),
    ("flexcfl", "3"),
    ("fedgroup", "3"),
)
# Lines with a fault of the authors' code, and with their detector of drift, stand beside those of a printed
# value.
LEFT_OUT = ("-c1", "-counts")


def lines_of(paper: str, table: str) -> Iterator[Line]:
    """The lines of a table on Synthetic(1,1) that stand for a printed value."""
    for line in choose([paper], "full", table, ["synthetic-mclr"]):
        if line.tables is not None and not line.name.endswith(LEFT_OUT):
            yield line


def one_run(line: Line, draw: int) -> dict[str, Any]:
    """The best round and the mean of the last ten, in percent."""
    tables = overlay(line.tables or {}, {"data": {"seed": draw}, "seed": 0})
    composed = compose(check(tables))
    began = time.perf_counter()
    with composed.clients() as clients:
        rows = [result.row for result in Run.start(composed.spec, clients).rounds()]
    found = figures_of(rows)
    assert found["max"] is not None, "every line is evaluated"
    assert found["last10_mean"] is not None, "every line is evaluated"
    return {
        "max": round(100 * found["max"], 2),
        "last10": round(100 * found["last10_mean"], 2),
        "rounds": len(rows),
        "seconds": round(time.perf_counter() - began, 1),
    }


def measure(runs: RunsFile, end: float) -> None:
    """Do the runs that the file lacks, until a time of the clock."""
    for draw in DRAWS:
        for paper, table in TABLES:
            for line in lines_of(paper, table):
                of = {"paper": paper, "table": table, "line": line.name, "draw": draw}
                if of in runs:
                    continue
                if time.monotonic() > end:
                    return
                runs.add(of | one_run(line, draw))


def main() -> None:
    """Measure what is not measured yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the file of the runs")
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    measure(RunsFile(options.out), time.monotonic() + 60 * options.minutes)


if __name__ == "__main__":
    main()
