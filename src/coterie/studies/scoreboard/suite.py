"""The suites of a scoreboard: federations, methods, budgets, and the rule for their settings.

`suites.toml` has those that come with Coterie. A file of the same form, with the tables of one suite
at its top, is a suite of the user's own.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coterie.config.problems import problems, refuse
from coterie.config.toml_text import read
from coterie.config.wording import nearest
from coterie.errors import ConfigError

Tables = dict[str, Any]
Score = Literal["served", "unseen", "course"]
Differ = Literal["inputs", "labels", "classes", "over time", "nothing"]

# What methods that need a number of groups are told where none is planted.
GROUPS_WITHOUT = 4
# Every suite has it: its traffic is the budget of all methods.
BASELINE = "fedavg"
# It is told who is in which group, so it is shown and has no rank.
ORACLE = "known_groups"


class _Part(BaseModel):
    """A table of a suite's file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Federation(_Part):
    """Clients that all methods are compared on.

    Keys:
        name: in files.
        title: in tables.
        differ: in what the clients differ.
        groups: that are planted; ``None``: none.
        score: which clients and rounds are scored.
        tables: of its configuration, beside those of the suite.
    """

    name: str
    title: str
    differ: Differ
    groups: Annotated[int, Field(ge=1)] | None = None
    score: Score = "served"
    tables: Tables

    @property
    def groups_told(self) -> int:
        """The number that a method is told which needs one."""
        return self.groups or GROUPS_WITHOUT


class Suite(_Part):
    """What is compared.

    Keys:
        title: in pages.
        seeds: of all runs.
        rates: learning rates that are tried for the tuned column.
        methods: names of algorithms.
        common: tables of every configuration.
        federations: in the order of the page.
        told: method -> options that it has in all federations.
        tried: method -> options that are tried for the tuned column.
    """

    name: str
    title: str
    seeds: Annotated[list[int], Field(min_length=1)]
    rates: list[float] = []
    methods: Annotated[list[str], Field(min_length=1)]
    common: Tables
    federations: Annotated[list[Federation], Field(min_length=1)]
    told: dict[str, Tables] = {}
    tried: dict[str, list[Tables]] = {}

    def digests(self) -> dict[str, str]:
        """Federation -> the SHA-256 of what all methods share on it. Results with the same one can
        be merged, whichever methods and settings they have."""
        common = self.model_dump(mode="json", include={"common"})
        return {
            one.name: hashlib.sha256(
                json.dumps([common, one.model_dump(mode="json")], sort_keys=True).encode()
            ).hexdigest()
            for one in self.federations
        }

    def federation(self, name: str) -> Federation:
        """A federation by its name."""
        return next(one for one in self.federations if one.name == name)


def built_in() -> Mapping[str, Tables]:
    """The suites that come with Coterie, by name."""
    file = resources.files("coterie.studies.scoreboard").joinpath("suites.toml")
    found: Mapping[str, Tables] = tomllib.loads(file.read_text(encoding="utf-8"))
    return found


def find_suite(name: str) -> Suite:
    """A suite of Coterie by its name, or that of a file."""
    known = built_in()
    if name in known:
        return Suite(name=name, **known[name])
    if not name.endswith(".toml"):
        hint = nearest(name, list(known))
        also = f"; did you mean {hint!r}?" if hint else ""
        names = ", ".join(known)
        raise ConfigError(
            f"suite: unknown, got {name!r}; expected one of {names}, or a .toml file{also}"
        )
    whole = {"name": Path(name).stem, **read(name)}
    try:
        return Suite.model_validate(whole)
    except ValidationError as error:
        refuse(*problems(error, whole, Suite))
