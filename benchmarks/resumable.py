"""Runs of a measurement that may be stopped and goes on later: one JSON file."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Run = Mapping[str, Any]


class RunsFile:
    """The runs of a file, which each new one is added to at once.

    Args:
        path: of the file, which need not be there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs: list[Run] = json.loads(path.read_text()) if path.exists() else []

    def of(self, **where: Any) -> list[Run]:
        """The runs with these values."""
        return [
            one for one in self.runs if all(one[name] == value for name, value in where.items())
        ]

    def __contains__(self, where: Mapping[str, Any]) -> bool:
        return bool(self.of(**where))

    def add(self, run: Run) -> None:
        """Write one more run. Whoever stops the process leaves a whole file."""
        self.runs.append(run)
        print(run, flush=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.runs) + "\n", encoding="utf-8")
        os.replace(new, self.path)


@dataclass(frozen=True, slots=True)
class Request:
    """What a measurement is asked to do.

    Args:
        runs: the file of the runs.
        page: make the figures of the page from the runs, and measure nothing.
        machine: what the page says of it.
        seeds: of the runs.
        end: of `time.monotonic`, after which no further run begins.
        options: the measurement's own options.
    """

    runs: RunsFile
    page: bool
    machine: str | None
    seeds: list[int]
    end: float
    options: argparse.Namespace


def request_parser(description: str) -> argparse.ArgumentParser:
    """The options that measurements with a file of runs have in common; each adds its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, required=True, help="the file of the runs")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--page", action="store_true", help="make the figures of the page")
    parser.add_argument("--machine")
    return parser


def read_request(parser: argparse.ArgumentParser) -> Request:
    """The request of the command line."""
    options = parser.parse_args()
    return Request(
        RunsFile(options.out),
        options.page,
        options.machine,
        [int(seed) for seed in options.seeds.split(",")],
        time.monotonic() + 60 * options.minutes,
        options,
    )


def today() -> dict[str, str]:
    """Date and commit of a measurement that is written down now."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return {"date": datetime.date.today().isoformat(), "commit": commit}
