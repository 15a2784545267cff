"""The course of `make bench` over commits: a file for each run of it, and a page that shows them.

    make bench                          # measures, and writes benchmarks/history/DATE-COMMIT.json
    python -m benchmarks.history        # docs/bench-history.md from these files

A file has the machine, the commit, the date and the load of the machine, and the figures of
`benchmarks/local_sgd.py`. Times of two machines do not compare; ratios to the bare loop, which is
measured in the same rounds, nearly do. Whether a change costs time says `benchmarks.compare`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "history"
PAGE = ROOT / "docs" / "bench-history.md"
HEAD = """<!-- Made by `python -m benchmarks.history` from the files of benchmarks/history. -->

# How did the time of a round change over commits?

Each line is one run of `make bench`: how many times as long a loop written by hand takes as a round
with Coterie, for each network. A load above the number of cores means that other programs used the
machine, and that the line says little.
[How fast is a round?](results/round-time.md) says what is measured. `python -m benchmarks.compare --base
COMMIT` compares two commits on one machine, round by round in turn, and names every network whose
rounds take 5 % longer.
"""


def machine() -> dict[str, Any]:
    """What one needs to know of this machine to read its times."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load": round(os.getloadavg()[0], 1),
    }


def _processor() -> str:
    """The processor's name; that of its kind where the system does not tell."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def commit() -> str:
    """The commit of the tree, with a plus where files were changed since."""
    call = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=7", "--dirty=+"]
    return subprocess.run(call, check=True, capture_output=True, text=True).stdout.strip()


def record(figures: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a run of the benchmark.

    Args:
        figures: by network.
        before: the machine as it was when the run began.
    """
    today = datetime.now(UTC).date().isoformat()
    return {"date": today, "commit": commit(), "machine": dict(before), "figures": dict(figures)}


def keep(made: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Write a record; a commit measured twice on a day keeps both."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{made['date']}-{made['commit']}"
    number = 1
    path = folder / f"{name}.json"
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}.json"
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return path


def records(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """All records in the order of their days, those of a day in the order of their names."""
    # By the stem: with its ending a commit's second file would come before its first.
    paths = sorted(folder.glob("*.json"), key=lambda path: path.stem)
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def page(kept: Sequence[Mapping[str, Any]]) -> str:
    """The page of the course."""
    if not kept:
        return f"{HEAD}\nNo run of `make bench` has been kept yet.\n"
    names = list(dict.fromkeys(name for one in kept for name in one["figures"]))
    titles = ["date", "commit", "machine", "load", *names]
    lines = [f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}"]
    for one in kept:
        host = one["machine"]
        cells = [one["date"], f"`{one['commit']}`", f"{host['cores']} cores, {host['processor']}"]
        cells.append(f"{host['load']:g}")
        cells += [_ratio(one["figures"].get(name)) for name in names]
        lines.append(f"| {' | '.join(cells)} |")
    return HEAD + "\n" + "\n".join(lines) + "\n"


def _ratio(figures: Mapping[str, float] | None) -> str:
    if figures is None:
        return ""
    return f"{figures['ratio']:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="say whether the page is up to date")
    args = parser.parse_args()
    made = page(records())
    if args.check:
        raise SystemExit(made != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
