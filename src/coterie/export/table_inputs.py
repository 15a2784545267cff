"""Rows of a table as inputs of a network, by the file `columns.json`.

Written by `coterie export`, beside `load.py`; needs torch and no Coterie.

    from inputs import inputs
    x = inputs([{"age": 63, "sex": "male"}])   # float32 [n, features]

A row has the names of the columns of `columns.json`. Values are numbers, text, True or False, and
dates as ISO text or `datetime`. A value is missing where there is none, or where it is None, NaN or
one of the words of MISSING.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FOLDER = Path(__file__).resolve().parent
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "?")
SECONDS_A_DAY = 86_400.0
START = datetime(1970, 1, 1, tzinfo=UTC)


def columns() -> list[dict[str, Any]]:
    """What becomes of each column, in the order of the features."""
    found: list[dict[str, Any]] = json.loads((FOLDER / "columns.json").read_text(encoding="utf-8"))
    return found


def inputs(rows: Iterable[Mapping[str, Any]]) -> Tensor:
    """The features of some rows, float32 [n, features].

    An input of a series is a stack of such rows, the oldest first.
    """
    rules = columns()
    values = [
        [number for rule in rules for number in features(rule, row.get(rule["name"]))]
        for row in rows
    ]
    return torch.tensor(values, dtype=torch.float64).float()


def features(rule: Mapping[str, Any], value: Any) -> list[float]:
    """The features of one value."""
    # NaN alone differs from itself.
    missing = value is None or value != value or value in MISSING
    if "common" in rule:
        return category_features(rule, "(missing)" if missing else category(value))
    number = rule["fill"]
    if not missing:
        number = as_number(value, rule["kind"])
    scaled = (number - rule["center"]) / rule["scale"]
    if rule["flag"]:
        return [scaled, float(missing)]
    return [scaled]


def category_features(rule: Mapping[str, Any], name: str) -> list[float]:
    """1 for the category of a value, or for all that are rare or unknown; 0 for the others."""
    found = [float(name == one) for one in rule["common"]]
    if rule["rare"]:
        found.append(float(name not in rule["common"]))
    return found


def category(value: Any) -> str:
    """A category as text: whole numbers as such."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def as_number(value: Any, kind: str) -> float:
    """A number, a boolean as 0 or 1, or the days of a date since 1 January 1970."""
    if kind == "boolean" and isinstance(value, str):
        return float(value.strip().lower() in ("true", "1"))
    if kind != "date":
        return float(value)
    moment = value
    if isinstance(value, str):
        moment = datetime.fromisoformat(value.strip())
    elif not isinstance(value, datetime) and isinstance(value, date):
        moment = datetime(value.year, value.month, value.day)
    # A time without a zone is that of Greenwich.
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return float((moment - START).total_seconds()) / SECONDS_A_DAY
