"""The results of a reproduction as data, for other programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie.runs.folder.files import replace_file
from coterie.studies.reproduce.outcome import Outcome
from coterie.studies.reproduce.papers import Profile

FILE = "reproduce.json"


def write_results_file(
    out: Path, outcomes: Sequence[Outcome], profile: Profile, seeds: Sequence[int]
) -> Path:
    """Write ``reproduce.json``: what is known of every line, seed by seed; returns its path."""
    content = {
        "profile": profile,
        "seeds": list(seeds),
        "lines": [_line(outcome) for outcome in outcomes],
    }
    path = out / FILE
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    replace_file(path, text.encode())
    return path


def _line(outcome: Outcome) -> dict[str, Any]:
    line = outcome.line
    return {
        "paper": line.paper,
        "table": line.table,
        "line": line.name,
        "unit": line.unit,
        "metric": line.metric or line.compute,
        "how": line.how,
        "printed": line.printed,
        "place": line.place,
        "values": outcome.values,
        "seeds": outcome.seeds,
        "last10": outcome.last10,
        "rounds": outcome.rounds,
        "full_rounds": line.full_rounds,
        "notes": line.notes,
        "problem": outcome.problem,
    }
