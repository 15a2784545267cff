"""The tables ``[availability]``, ``[reply_times]`` and ``[asynchronous]``, and what goes together with
them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from coterie.config.local_table import Count, NotNegative, Positive
from coterie.config.problems import Problem
from coterie.config.schema import Float, Int, Table

Share = Annotated[Float, Field(gt=0, le=1)]
Spread = Annotated[Float, Field(ge=0, le=10)]


class AvailabilityTable(Table):
    """``[availability]``: which clients of a simulation can be reached in which rounds; see
    ``docs/availability.md``."""

    kind: Literal["day_night", "random", "file"] = "day_night"
    # An hour is a round, unless the user says otherwise.
    period: Annotated[Int, Field(ge=0)] = 24
    share: Share = 0.5
    zones: Count | None = None
    file: str | None = None


class ReplyTimesTable(Table):
    """``[reply_times]``: how long clients of a simulation take; the fields of
    `coterie.core.reply_times.ReplyTimes`."""

    median: Positive = 1.0
    spread: Spread = 0.5
    noise: Spread = 0.25
    deadline: Positive | None = None


# Why asynchronous rounds go with neither: said of a configuration, and of a method made in Python.
NOT_PRIVATE = "updates move models in later rounds than their clients are drawn for"
NOT_SECURE = "updates move models in later rounds, and sums are of one round"


class AsynchronousTable(Table):
    """``[asynchronous]``: rounds that do not wait for all of their clients; see
    ``docs/asynchronous.md``."""

    # The K of the paper's experiments.
    buffer: Count = 10
    # Of 1 / (1 + s)^exponent: the paper's square root.
    exponent: NotNegative = 0.5


def check_participation(tables: Mapping[str, Any]) -> list[Problem]:
    """Values of a configuration that is not validated and that do not go together."""
    return _check_availability(tables) + _check_reply_times(tables) + _check_selection(tables)


def _check_availability(tables: Mapping[str, Any]) -> list[Problem]:
    table = tables.get("availability")
    if not isinstance(table, Mapping):
        return []
    kind = table.get("kind", "day_night")
    found = []
    if kind == "file" and table.get("file") is None:
        found.append(Problem("availability.file", "missing", None, "a CSV file"))
    if kind != "file" and table.get("file") is not None:
        expected = "availability.kind 'file', or no file"
        found.append(Problem("availability.file", f"of kind {kind!r}", table["file"], expected))
    # Only the spans of a file can be all there is, and never begin again.
    if kind == "day_night" and table.get("period") == 0:
        found.append(Problem("availability.period", "a day of no rounds", 0, "at least 1"))
    if kind != "day_night" and table.get("zones") is not None:
        expected = "no zones, or availability.kind 'day_night'"
        found.append(Problem("availability.zones", f"of kind {kind!r}", table["zones"], expected))
    return found


def _check_reply_times(tables: Mapping[str, Any]) -> list[Problem]:
    table = tables.get("reply_times")
    if not isinstance(table, Mapping):
        return []
    deadline = table.get("deadline")
    asynchronous = tables.get("asynchronous") is not None
    if deadline is not None and asynchronous:
        what = "asynchronous rounds have none"
        return [Problem("reply_times.deadline", what, deadline, "none with [asynchronous]")]
    if deadline is None and not asynchronous and _over_selection(tables) == 1:
        expected = "a deadline, train.over_selection or [asynchronous]"
        return [Problem("reply_times", "nothing depends on them", table, expected)]
    return []


def _check_selection(tables: Mapping[str, Any]) -> list[Problem]:
    """What more clients than are needed do not go together with."""
    over = _over_selection(tables)
    if over == 1:
        return []
    path = "train.over_selection"
    found = []
    if tables.get("asynchronous") is not None:
        what = "asynchronous rounds need none"
        found.append(Problem(path, what, over, "1 with [asynchronous]"))
    if tables.get("privacy") is not None:
        what = "who is fast decides who is counted, and the budget is of who is drawn"
        found.append(Problem(path, what, over, "1 with [privacy]"))
    train = tables["train"]
    if train.get("sampler") == "poisson":
        what = "the size of a cohort varies by itself"
        found.append(Problem(path, what, over, "1 with train.sampler 'poisson'"))
    return found


def _over_selection(tables: Mapping[str, Any]) -> Any:
    train = tables.get("train")
    if not isinstance(train, Mapping):
        return 1
    return train.get("over_selection", 1)
