"""The runs in the folders that a page is made of: runs themselves, and sweeps."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from coterie.runs.store import RunFolder


def run_folders(paths: Sequence[Path | str]) -> list[Path]:
    """The folders of runs, and the runs of folders of sweeps, each once."""
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        is_run = (path / "config.toml").is_file()
        inside = [path] if is_run else _runs_of_sweep(path)
        if not inside:
            RunFolder.open(path)  # raises: it says what the folder lacks
        for folder in inside:
            # Each once, however it is spelled: `report sweep sweep/run-1` would count a seed twice.
            found.setdefault(folder.resolve(), folder)
    return list(found.values())


def _runs_of_sweep(sweep: Path) -> list[Path]:
    """The runs of a sweep, in the order of its table where it has one."""
    # A folder whose name begins with a dot is being written by another process.
    runs = [
        file.parent
        for file in sorted(sweep.glob("*/config.toml"))
        if not file.parent.name.startswith(".")
    ]
    try:
        with (sweep / "runs.csv").open(newline="", encoding="utf-8") as file:
            listed = [row.get("run") for row in csv.DictReader(file)]
    except (OSError, ValueError, csv.Error):
        return runs

    def place(run: Path) -> int:
        if run.name in listed:
            return listed.index(run.name)
        return len(listed)

    return sorted(runs, key=place)
