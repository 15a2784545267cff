"""Runs of a measurement that may be stopped and goes on later: one JSON file."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections.abc import Mapping
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


def today() -> dict[str, str]:
    """Date and commit of a measurement that is written down now."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return {"date": datetime.date.today().isoformat(), "commit": commit}
