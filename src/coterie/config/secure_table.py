"""The table ``[secure]``, and what goes together with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from coterie.config.participation_table import NOT_SECURE
from coterie.config.problems import Problem
from coterie.config.schema import Float, Int, Table


class SecureTable(Table):
    """``[secure]``: sums as secure aggregation computes them; see ``docs/secure-sums.md``."""

    reach: Annotated[Float, Field(gt=0)] = 8.0
    levels: Annotated[Int, Field(ge=2, le=2**31)] = 2**22
    bits: Annotated[Int, Field(ge=8, le=62)] = 32
    most_samples: Annotated[Float, Field(gt=0)] = 1000.0
    neighbours: Annotated[Int, Field(ge=2, multiple_of=2)] | None = None
    threshold: Annotated[Float, Field(gt=0, le=1)] = 0.5
    least_group: Annotated[Int, Field(ge=2)] = 3


def check_secure(tables: Mapping[str, Any]) -> list[Problem]:
    """Values of a configuration that is not validated and that do not go together with
    ``[secure]``."""
    if not isinstance(tables.get("secure"), Mapping):
        return []
    found = []
    bounds = tables.get("bounds")
    if isinstance(bounds, Mapping) and bounds.get("enabled") is True:
        what = "compares single updates"
        found.append(Problem("bounds.enabled", what, True, "false, or no [bounds], with [secure]"))
    if tables.get("asynchronous") is not None:
        table = tables["asynchronous"]
        found.append(Problem("asynchronous", NOT_SECURE, table, "none with [secure]"))
    if tables.get("privacy") is not None:
        what = "adds noise to sums of updates that are not rounded"
        found.append(Problem("privacy", what, tables["privacy"], "none with [secure]"))
    return found
