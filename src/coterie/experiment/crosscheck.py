"""Checks across tables: values that are good each by itself and do not work together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

from pydantic import BaseModel

from coterie.config import registry
from coterie.config.choice_tables import ChoiceTable, EngineTable
from coterie.config.identity import batched
from coterie.config.local_problems import optimizer_problems, schedule_problems
from coterie.config.problems import default_at
from coterie.config.schema import LARGEST, to_plain
from coterie.config.toml_text import value_at
from coterie.core.traits import conflicts
from coterie.data.population import Population
from coterie.errors import Problem, shown
from coterie.experiment.exclusions import FEATURES
from coterie.experiment.records import CLIENTS_PER_ROUND
from coterie.experiment.tables import record_types
from coterie.methods.buffered import Buffered
from coterie.privacy.private import NO_BUDGET

# Options that every engine is passed; those that have no use for one leave it out.
EVERY_ENGINE = ("workers", "round_timeout")


@dataclass(frozen=True, slots=True)
class Values:
    """The numbers of a configuration that is not validated."""

    tables: Mapping[str, Any]
    model: type[BaseModel]

    def is_set(self, *path: str) -> bool:
        """Whether the file sets a key path."""
        return value_at(self.tables, path) is not None

    def explicit(self, *path: str) -> Any:
        """The number that the file sets at a key path; ``None`` for anything else, which another
        check refuses."""
        return _as_number(value_at(self.tables, path))

    def number(self, *path: str) -> Any:
        """The number at a key path, or its default."""
        if self.is_set(*path):
            return self.explicit(*path)
        return _as_number(default_at(self.model, path))


def _as_number(value: Any) -> Any:
    # Nothing is validated yet. What is no number or out of range is refused by its own field; a
    # second line about it would say nothing new. A bool of TOML is an int of Python.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if 0 < value <= LARGEST:
        return value
    return None


def as_tables(values: Mapping[str, Any]) -> dict[str, Any]:
    """Tables in which records are written out; objects of Python that are choices stay as they
    are."""
    written: tuple[Any, ...] = (*record_types().values(), ChoiceTable)
    found = {}
    for name, value in values.items():
        if isinstance(value, written):
            found[name] = to_plain(value)
        elif isinstance(value, Mapping):
            found[name] = {key: _comparable(one) for key, one in value.items()}
        elif value is not None:
            found[name] = value
    # A method of asynchronous rounds, and a table's noise, are as if their tables said so.
    if isinstance(values.get("algorithm"), Buffered):
        found.setdefault("asynchronous", {})
    data = values.get("data")
    if isinstance(data, Population) and data.table is not None:
        found["data"] = {"encode": to_plain(data.table.raw.encode)}
    spans = getattr(values.get("availability"), "spans", None)
    # In Python the spans may be given in place of the file that has them.
    if spans:
        found["availability"]["file"] = "spans"
    return found


def _comparable(value: Any) -> Any:
    """A value of a table; in place of an object that may compare as it likes, as an array, one that
    equals nothing."""
    known = isinstance(value, str | int | float | list | tuple | Mapping | None)
    if known or callable(value) or is_dataclass(value):
        return value
    return object()


def cross_check(
    tables: Mapping[str, Any], model: type[BaseModel], clients: int | None = None
) -> list[Problem]:
    """What does not work together.

    Args:
        tables: not validated, with records written out.
        model: the schema of the tables, which has the defaults.
        clients: number of clients; ``None``: as ``[data.partition]`` says, if it does.
    """
    values = Values(tables, model)
    source = ""
    if clients is None:
        clients = values.number("data", "partition", "clients")
        source = " (data.partition.clients)"
    found = _check_quorum(values, clients) + _check_bounds(values) + check_engine(tables)
    found += _check_local(values) + _check_privacy(tables)
    found += _check_availability(values) + conflicts(FEATURES, tables, {})
    if clients is not None:
        found += _check_cohort(values, clients, source) + _check_groups(values, clients, source)
    return found


def _check_quorum(values: Values, clients: int | None) -> list[Problem]:
    cohort = values.number("train", "clients_per_round")
    if clients is not None and not values.is_set("train", "clients_per_round"):
        # What `fit_defaults` will make of the default.
        cohort = min(CLIENTS_PER_ROUND, clients)
    least = values.number("quorum", "min_replies")
    if not cohort or not least or least <= cohort:
        return []
    expected = f"at most {cohort} (train.clients_per_round)"
    what = "more replies than clients in a round"
    expected = f"at most {cohort} (train.clients_per_round)"
    return [Problem("out-of-range", "quorum.min_replies", what, least, expected)]


def _check_bounds(values: Values) -> list[Problem]:
    floor = values.number("bounds", "floor")
    ceiling = values.number("bounds", "ceiling")
    if not floor or not ceiling or floor <= ceiling:
        return []
    expected = f"at least {floor:g} (bounds.floor)"
    return [Problem("out-of-range", "bounds.ceiling", "less than the floor", ceiling, expected)]


def _check_local(values: Values) -> list[Problem]:
    local = values.tables.get("local")
    if not isinstance(local, Mapping):
        return []
    local = {"optimizer": default_at(values.model, ("local", "optimizer")), **local}
    found = optimizer_problems(("local",), local)
    for key in ("step_schedule", "round_schedule"):
        if isinstance(local.get(key), Mapping):
            kind = default_at(values.model, ("local", key, "kind"))
            found += schedule_problems(("local", key), {"kind": kind, **local[key]})
    return found


def check_engine(tables: Mapping[str, Any]) -> list[Problem]:
    """Options of another engine than the one chosen, unless they have their default."""
    engine = tables.get("engine")
    if not isinstance(engine, Mapping):
        return []
    name = engine.get("name", default_at(EngineTable, ("name",)))
    # A plugin's engine may have options of the same names as ours.
    if not isinstance(name, str) or name not in registry.builtin("engine"):
        return []
    of_vmap = registry.options("engine", "vmap")
    of_ray = registry.options("engine", "ray")
    chosen = registry.options("engine", name)
    found = []
    for option, (_, default) in {**of_vmap, **of_ray}.items():
        # The folder of a run holds the options of all engines, so that it can be resumed
        # with another.
        if option in EVERY_ENGINE or engine.get(option, default) == default:
            continue
        expected = "engine.name 'ray'"
        if option in registry.options("engine", "pool"):
            expected = "engine.name 'pool', 'serial' or 'ray'"
        fits = option in chosen
        if option in of_vmap:
            expected = "engine.name 'vmap'"
            fits = fits and (name != "ray" or batched(engine))
            if option in of_ray:
                expected += ", or 'ray' with engine.each 'vmap'"
        if not fits:
            path = f"engine.{option}"
            what = "an option of another engine"
            found.append(Problem("in-conflict", path, what, shown(engine[option]), expected))
    return found


def _check_cohort(values: Values, clients: int, source: str) -> list[Problem]:
    # The default is lowered to all clients, see `fit_defaults`.
    cohort = values.explicit("train", "clients_per_round")
    if not cohort or cohort <= clients:
        return []
    what = "more than the number of clients"
    expected = f"at most {clients}{source}"
    return [Problem("out-of-range", "train.clients_per_round", what, cohort, expected)]


def _check_groups(values: Values, clients: int, source: str) -> list[Problem]:
    groups = values.number("algorithm", "groups")
    # A default alpha is lowered to what the clients allow (`fit_defaults`), a user's own is not.
    alpha = values.explicit("algorithm", "alpha")
    if not groups:
        return []
    if groups > clients:
        what = "more groups than clients"
        expected = f"at most {clients}{source}"
        return [Problem("out-of-range", "algorithm.groups", what, groups, expected)]
    if alpha and alpha * groups > clients:
        what = f"a cold start of alpha * groups = {alpha * groups:g} clients"
        expected = f"at most {clients // groups}: {clients} clients{source}"
        return [Problem("does-not-fit", "algorithm.alpha", what, alpha, expected)]
    return []


def _check_availability(values: Values) -> list[Problem]:
    table = values.tables.get("availability")
    if not isinstance(table, Mapping):
        return []
    kind = table.get("kind", default_at(values.model, ("availability", "kind")))
    found = []
    if kind == "file" and table.get("file") is None:
        found.append(Problem("missing", "availability.file", allowed="a CSV file"))
    for key, owner in (("file", "file"), ("zones", "day_night")):
        if kind != owner and table.get(key) is not None:
            what = f"an option of kind {kind!r}"
            expected = f"availability.kind {owner!r}, or no {key}"
            got = shown(table[key])
            found.append(Problem("in-conflict", f"availability.{key}", what, got, expected))
    # Only the spans of a file can be all there is, and never begin again.
    if kind == "day_night" and table.get("period") == 0:
        what = "a day needs at least one round"
        found.append(Problem("out-of-range", "availability.period", what, 0, "at least 1"))
    return found


def _check_privacy(tables: Mapping[str, Any]) -> list[Problem]:
    privacy = tables.get("privacy")
    if not isinstance(privacy, Mapping):
        return []
    if privacy.get("epsilon") is not None or privacy.get("noise") is not None:
        return []
    return [NO_BUDGET]
