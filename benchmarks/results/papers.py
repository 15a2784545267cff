"""What the papers print, and on which page each of their tables is measured."""

from __future__ import annotations

import functools
import json
import tomllib
from typing import Any

from benchmarks.results.records import FOLDER

ROOT = FOLDER.parents[1]


def tables() -> list[dict[str, Any]]:
    """``papers.json``: papers with their tables, and the pages that measure each of them."""
    loaded: list[dict[str, Any]] = json.loads((FOLDER / "papers.json").read_text(encoding="utf-8"))
    return loaded


@functools.cache
def printed_values() -> dict[str, Any]:
    """``paper_tables.toml`` of ``coterie reproduce``, wherever it lies in the package."""
    (path,) = (ROOT / "src" / "coterie").rglob("paper_tables.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def printed_at(place: str) -> float:
    """The value at a place such as ``flexcfl.table4 MNIST MCLR FedAvg 0``.

    Words after the table are values that tell its row, then the column, then, where the column is a
    list, the index.

    Raises:
        KeyError: no row, or more than one, has these values.
    """
    table, *words = place.split()
    value: Any = printed_values()
    for part in table.split("."):
        value = value[part]
    if "rows" in value:
        value, words = _row(value["rows"], words)
    for word in words:
        value = value[int(word)] if isinstance(value, list) else value[word]
    return float(value)


def _row(rows: list[dict[str, Any]], words: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The row that has the leading words among its values, and the words after them."""
    used = 0
    while used < len(words) and not any(words[used] in row for row in rows):
        used += 1
    wanted = set(words[:used])
    found = [row for row in rows if wanted <= {str(value) for value in row.values()}]
    if len(found) != 1:
        raise KeyError(f"{' '.join(words)}: {len(found)} rows")
    return found[0], words[used:]
