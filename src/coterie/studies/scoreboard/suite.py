"""The suites of a scoreboard, and which settings a method has on a federation.

`suites.toml` has those that come with Coterie. A file of the same form, with the tables of one suite
at its top, is a suite of the user's own.

Two rules for settings make two columns. *Defaults*: the method as its paper has it, which are the
defaults of its factory, and the number of planted groups where it needs one. *Tuned*: the learning
rate of the suite's few, and then the options of the suite's few, with which one run is best on
training samples that are kept back for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coterie.config import registry
from coterie.config.problems import problems
from coterie.config.toml_text import read
from coterie.config.wording import nearest
from coterie.errors import ConfigError
from coterie.experiment import check
from coterie.sweep.plan import SweepRun

Tables = dict[str, Any]
Score = Literal["served", "unseen", "course"]
Differ = Literal["inputs", "labels", "classes", "over time", "nothing"]

# The number of groups for methods that need one, where none is planted.
GROUPS_WITHOUT = 4
# Every suite has it: its traffic is the budget of all methods.
BASELINE = "fedavg"
# It is given who is in which group, so it is shown and has no rank.
ORACLE = "known_groups"


class _Part(BaseModel):
    """A table of a suite's file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Federation(_Part):
    """Clients that all methods are compared on.

    Keys:
        name: its name in files.
        title: in tables.
        differ: how the clients differ.
        groups: number of planted groups; ``None``: none.
        score: the clients and rounds that are scored.
        tables: tables of its configuration, in addition to those of the suite.
    """

    name: str
    title: str
    differ: Differ
    groups: Annotated[int, Field(ge=1)] | None = None
    score: Score = "served"
    tables: Tables


class Suite(_Part):
    """What is compared.

    Keys:
        title: in pages.
        seeds: the seeds of all runs.
        rates: learning rates that are tried for the tuned column.
        methods: names of algorithms.
        common: tables of every configuration.
        federations: the federations, in the order of the page.
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
    return read(Path(__file__).with_name("suites.toml"))


def find_suite(name: str) -> Suite:
    """A suite of Coterie by its name, or that of a file."""
    known = built_in()
    if name in known:
        return Suite(name=name, **known[name])
    if not name.endswith(".toml"):
        expected = f"one of {', '.join(known)}, or a .toml file"
        hint = nearest(name, list(known))
        raise ConfigError("unknown-choice", "suite", got=name, allowed=expected, hint=hint)
    whole = {"name": Path(name).stem, **read(name)}
    try:
        return Suite.model_validate(whole)
    except ValidationError as error:
        raise ConfigError.of(problems(error, whole, Suite)) from None


# --- settings -------------------------------------------------------------------------------------

# Share of each client's training samples that settings are chosen by.
VALIDATION = 0.2


@dataclass(frozen=True)
class Setting:
    """What is not the same for all methods of a federation; without a rate, the suite's."""

    options: Mapping[str, Any] = field(default_factory=dict)
    rate: float | None = None

    @property
    def text(self) -> str:
        """As a table shows it.

        Example:
            >>> Setting({"mu": 0.1}, 0.3).text, Setting().text
            ('lr=0.3, mu=0.1', 'defaults')
        """
        parts = [] if self.rate is None else [f"lr={self.rate:g}"]
        parts += [f"{key}={json.dumps(value)}" for key, value in self.options.items()]
        return ", ".join(parts).replace('"', "") or "defaults"


def default_setting(suite: Suite, federation: Federation, method: str) -> Setting:
    """The method as its paper has it, with the number of groups where it needs one."""
    if method == ORACLE:
        return Setting(planted_groups(federation))
    options: dict[str, Any] = {}
    known = registry.options("algorithm", method).get("groups")
    # A method that finds the number by itself has another default, such as "auto" or none.
    if known is not None and (known[1] is ... or isinstance(known[1], int)):
        options["groups"] = federation.groups or GROUPS_WITHOUT
    return Setting({**options, **suite.told.get(method, {})})


def planted_groups(federation: Federation) -> dict[str, Any]:
    """The options of `known_groups` for a federation with planted groups."""
    kind = federation.tables.get("data", {}).get("partition", {}).get("kind")
    shift = federation.tables.get("shift", {"kind": "none"})
    if federation.groups is None or kind != "planted":
        raise ConfigError("missing", "known_groups", f"no groups are planted in {federation.name}")
    if shift["kind"] == "concepts":
        _, every = registry.options("shift", "concepts")["every"]
        return {"members": shift["matrix"], "every": shift.get("every", every)}
    if shift["kind"] != "none":
        what = f"the groups of {federation.name} change during a shift"
        raise ConfigError("does-not-fit", "known_groups", what)
    # The partition `planted` deals clients in turn.
    return {"members": [list(range(federation.groups))]}


def sweep_run(
    suite: Suite,
    federation: Federation,
    method: str,
    setting: Setting,
    seed: int,
    *,
    validated: bool = False,
    root: str | None = None,
) -> SweepRun:
    """The run of a setting. If ``validated``, it is scored on training samples that are kept back."""
    tables = merged(suite.common, federation.tables)
    tables["seed"] = seed
    tables["algorithm"] = {"name": method, **setting.options}
    if setting.rate is not None:
        tables = merged(tables, {"local": {"lr": setting.rate}})
    if validated:
        tables = merged(tables, {"evaluate": {"validation": VALIDATION}})
    if root is not None:
        tables = merged(tables, {"data": {"root": root}})
    return SweepRun.of(check(tables, f"{federation.name}, {method}"))


def merged(tables: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Tables with what others set in them; a table that names another choice replaces the whole.

    Example:
        >>> merged({"local": {"lr": 1, "epochs": 2}}, {"local": {"lr": 3}})
        {'local': {'lr': 3, 'epochs': 2}}
        >>> merged({"model": {"name": "a", "width": 1}}, {"model": {"name": "b"}})
        {'model': {'name': 'b'}}
    """
    found = deepcopy(dict(tables))
    for name, value in others.items():
        present = found.get(name)
        # A choice has options of its own.
        is_part = isinstance(value, Mapping) and not {"name", "kind", "source"} & set(value)
        if is_part and isinstance(present, dict):
            found[name] = merged(present, value)
        else:
            found[name] = deepcopy(value)
    return found


def rate_trials(suite: Suite, start: Setting) -> list[Setting]:
    """The settings of the first trials: each learning rate."""
    return [Setting(start.options, rate) for rate in suite.rates]


def option_trials(suite: Suite, method: str, best: Setting) -> list[Setting]:
    """The settings of the second trials: the best learning rate with other options."""
    tried: Sequence[Mapping[str, Any]] = suite.tried.get(method, ())
    return [Setting({**best.options, **options}, best.rate) for options in tried]
