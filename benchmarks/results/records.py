"""Result files: what was measured, over which seeds, on which machine, when, and by which command.

A page of ``docs/results`` has two files in this folder, ``<page>.json`` with the figures and
``<page>.md`` with the sentences. This module reads, checks and writes the first. ``null`` in
``machine``, ``date``, ``command``, ``commit``, ``rounds`` or ``seeds`` means that it was not
recorded; it is never filled in from memory.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

FOLDER = Path(__file__).resolve().parent
TOPICS = ("accuracy", "drift", "groups", "speed", "scale", "deployment", "reproduction")


class _Strict(BaseModel):
    """A record in which a misspelt key is a mistake, and not a key that is left out."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Measurement(_Strict):
    """Where figures come from. One measurement serves many records.

    Args:
        what: which figures, in a few words.
        settings: what one needs to repeat it, beside what the page's measurements share.
        machine: processor, cores and load, or None.
        date: the day on which the figures were written down, as ``2026-11-21``.
        commit: the commit in which they were written down.
        command: the command that made them.
        again: a command that measures the same today, where ``command`` was not recorded.
    """

    what: str = Field(min_length=3)
    settings: str
    machine: str | None
    date: str | None = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    commit: str | None = Field(pattern=r"^[0-9a-f]{7,40}$")
    command: str | None
    again: str | None = None


class Printed(_Strict):
    """What the paper prints for a record.

    Args:
        value: the printed number.
        at: its place in ``paper_tables.toml``, as ``flexcfl.table3 MNIST MCLR FedAvg``: the table,
            what tells the row, the column, and an index where the column is a list.
    """

    value: float
    at: str


class Record(_Strict):
    """One figure, once or over several seeds or repetitions.

    Args:
        case: what was run, such as data, model or shift.
        subject: whose figure it is: a method, an engine, a step.
        metric: what was measured.
        unit: ``%``, ``ms``, ``GB``, ...; empty for a count or a ratio.
        values: one for each seed or repetition; None where an event never happened.
        seeds: of ``values``; None for times, sizes and what has no seed.
        rounds: trained when it was measured, or None.
        measured: key of its ``Measurement``.
        joined: where some values are of earlier measurements, the seeds of each of these by its
            key; all other seeds are of ``measured``.
        printed: the paper's value.
        at_least: the aim, for what should be large.
        at_most: the aim, for what should be small.
        note: a remark on this figure alone.
    """

    case: str = Field(min_length=1)
    subject: str = Field(min_length=1)
    metric: str = Field(min_length=1)
    unit: str
    values: tuple[int | float | None, ...] = Field(min_length=1)
    seeds: tuple[int, ...] | None
    rounds: int | None
    measured: str
    joined: dict[str, tuple[int, ...]] | None = None
    printed: Printed | None = None
    at_least: float | None = None
    at_most: float | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _one_seed_for_each_value(self) -> Record:
        if self.seeds is not None and len(self.seeds) != len(self.values):
            raise ValueError(f"{self.key}: {len(self.values)} values, {len(self.seeds)} seeds")
        return self

    @model_validator(mode="after")
    def _joined_seeds_have_values(self) -> Record:
        joined = [seed for seeds in (self.joined or {}).values() for seed in seeds]
        if len(set(joined)) < len(joined) or not set(joined) <= set(self.seeds or ()):
            raise ValueError(f"{self.key}: joined seeds {joined}, but the seeds are {self.seeds}")
        return self

    @property
    def sources(self) -> dict[str, tuple[int, ...] | None]:
        """The seeds by the key of their measurement; None for what has no seed."""
        joined = self.joined or {}
        if self.seeds is None:
            return {self.measured: None}
        earlier = {seed for seeds in joined.values() for seed in seeds}
        return {**joined, self.measured: tuple(s for s in self.seeds if s not in earlier)}

    @property
    def key(self) -> str:
        """By which sentences name it: case, subject and metric with slashes between."""
        return f"{self.case}/{self.subject}/{self.metric}"

    @property
    def known(self) -> list[float]:
        """The values that are there, for a mean or a median."""
        return [value for value in self.values if value is not None]


class ResultPage(_Strict):
    """All of a page's figures.

    Args:
        question: what the page answers; it is its title.
        topic: under which the index lists it.
        settings: what all measurements share.
        measurements: by key.
        records: in the order in which tables show them.
    """

    question: str = Field(min_length=1)
    topic: str
    settings: str | None
    measurements: dict[str, Measurement]
    records: tuple[Record, ...]

    @model_validator(mode="after")
    def _complete(self) -> ResultPage:
        if self.topic not in TOPICS:
            raise ValueError(f"topic: {self.topic!r}; expected one of {', '.join(TOPICS)}")
        used = {key for record in self.records for key in record.sources}
        if used != set(self.measurements):
            raise ValueError(
                f"measurements: {used ^ set(self.measurements)} are not in both places"
            )
        places = [(record.key, record.rounds) for record in self.records]
        twice = {place for place, count in Counter(places).items() if count > 1}
        if twice:
            raise ValueError(f"records: {sorted(map(str, twice))} occur more than once")
        return self

    def find(self, key: str) -> Record:
        """The record with this key; ``case/subject/metric@60`` is the one of round 60.

        A key that begins with another page's name and a colon is looked up in that page.

        Raises:
            KeyError: there is none, or more than one.
        """
        other, _, rest = key.partition(":")
        if rest and other in names():  # which looks into the folder
            return read(other).find(rest)
        name, _, rounds = key.partition("@")
        found = [record for record in self.records if record.key == name]
        if rounds:
            found = [record for record in found if record.rounds == int(rounds)]
        if len(found) != 1:
            raise KeyError(f"{key}: {len(found)} records")
        return found[0]

    def of(self, case: str) -> list[Record]:
        """The records of a case."""
        found = [record for record in self.records if record.case == case]
        if not found:
            raise KeyError(f"{case}: no record")
        return found


def names() -> list[str]:
    """The pages, in the order of the alphabet."""
    return sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "papers")


def read(name: str) -> ResultPage:
    """Read and check a page's figures."""
    return _page((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@cache
def _page(text: str) -> ResultPage:
    """A file's figures. Sentences name those of other pages, so a file is read many times."""
    return ResultPage.model_validate_json(text)


def write(name: str, page: ResultPage) -> None:
    """Write a page's figures as ``text`` lays them out."""
    (FOLDER / f"{name}.json").write_text(text(page), encoding="utf-8")


def text(page: ResultPage) -> str:
    """The file of a page: one record a line, so that a changed figure is a changed line."""
    head = page.model_dump(mode="json", exclude={"records", "measurements"})
    lines = [f"  {_json(key)}: {_json(value)}," for key, value in head.items()]
    lines += ['  "measurements": {', _lines(_measurements(page), "    "), "  },"]
    records = [_json(_short(record)) for record in page.records]
    lines += ['  "records": [', _lines(records, "    "), "  ]"]
    return "\n".join(["{", *lines, "}"]) + "\n"


def _measurements(page: ResultPage) -> list[str]:
    return [f"{_json(key)}: {_json(_short(value))}" for key, value in page.measurements.items()]


def _short(record: BaseModel) -> dict[str, Any]:
    """Without what may be left out and was."""
    fields = type(record).model_fields
    optional = {name for name, field in fields.items() if not field.is_required()}
    whole = record.model_dump(mode="json")
    return {key: value for key, value in whole.items() if value is not None or key not in optional}


def _lines(items: list[str], indent: str) -> str:
    return ",\n".join(indent + item for item in items)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
