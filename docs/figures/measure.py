"""Reads the landing page's figures from a page of `coterie demo`, into demo.json.

coterie demo --out runs/demo
python docs/figures/measure.py runs/demo/demo.html
"""

from __future__ import annotations

import json
import re
import sys
from datetime import date
from pathlib import Path
from typing import Any

import coterie as ct

DIGITS = (0, 1, 2, 4)


def tables(page: str, chart: str) -> list[list[dict[str, Any]]]:
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', page, re.DOTALL)[1])
    found = specs[chart]["datasets"].values()
    return [[dict(zip(t["fields"], row, strict=True)) for row in t["rows"]] for t in found]


def first_rounds(page: str) -> dict[str, int]:
    """The round, counted from 1, in which each client first had a group."""
    stays = next(rows for rows in tables(page, "members-1") if "from" in rows[0])
    found: dict[str, int] = {}
    for row in stays:
        found[row["client"]] = min(row["from"], found.get(row["client"], row["from"]))
    return found


def measured(page: str) -> dict[str, Any]:
    accuracy = next(rows for rows in tables(page, "accuracy") if "mean" in rows[0])
    runs = {row["run"]: [] for row in accuracy}
    for row in accuracy:
        runs[row["run"]].append(round(row["mean"], 2))
    joined = first_rounds(page)
    clients = [
        [
            round(row["x"], 3),
            round(row["y"], 3),
            int(row["group"].split()[-1]),
            row["late"],
            joined[row["client"]],
        ]
        for row in tables(page, "map-1")[0]
    ]
    data = ct.load("digits", partition={"kind": "planted", "clients": 60, "groups": 3})
    pixels = [data.x[int((data.y == digit).nonzero()[0])][0] for digit in DIGITS]
    return {
        "command": "coterie demo",
        "version": ct.__version__,
        "date": date.today().isoformat(),
        "seed": 0,
        "accuracy": runs,
        "clients": clients,
        "digits": [[[round(float(p), 2) for p in line] for line in image] for image in pixels],
    }


if __name__ == "__main__":
    found = measured(Path(sys.argv[1]).read_text(encoding="utf-8"))
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    Path(__file__).with_name("demo.json").write_text(text, encoding="utf-8")
