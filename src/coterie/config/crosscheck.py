"""Checks across tables: values that are good each by itself and do not go together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from coterie.config import registry
from coterie.config.identity import batched
from coterie.config.local_problems import optimizer_problems, schedule_problems
from coterie.config.participation_table import check_participation
from coterie.config.privacy_checks import check_privacy
from coterie.config.problems import Problem, default_at
from coterie.config.schema import LARGEST
from coterie.config.secure_table import check_secure
from coterie.config.tables import CLIENTS_PER_ROUND

# Options that every engine is passed; those that have no use for one leave it out.
EVERY_ENGINE = ("workers", "round_timeout")


@dataclass(frozen=True, slots=True)
class Values:
    """The numbers of a configuration that is not validated.

    Args:
        tables: of the file.
        model: of the configuration, which has the defaults.
    """

    tables: Mapping[str, Any]
    model: type[BaseModel]

    def is_set(self, *path: str) -> bool:
        """Whether the file sets a key path."""
        return self._at(path) is not None

    def explicit(self, *path: str) -> Any:
        """The number that the file sets at a key path; ``None`` for anything else, which another
        check refuses."""
        return _as_number(self._at(path))

    def number(self, *path: str) -> Any:
        """The number at a key path, or its default."""
        if self.is_set(*path):
            return self.explicit(*path)
        return _as_number(default_at(self.model, path))

    def _at(self, path: tuple[str, ...]) -> Any:
        record: Any = self.tables
        for part in path:
            record = record.get(part) if isinstance(record, Mapping) else None
        return record


def _as_number(value: Any) -> Any:
    # Nothing is validated yet. What is no number or out of range is refused by its own field; a
    # second line about it would say nothing new. A bool of TOML is an int of Python.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if 0 < value <= LARGEST:
        return value
    return None


def cross_check(
    tables: Mapping[str, Any], model: type[BaseModel], clients: int | None = None
) -> list[Problem]:
    """What does not go together.

    Args:
        tables: the configuration, not validated.
        model: of the configuration.
        clients: number of clients; ``None``: as ``[data.partition]`` says, if it does.
    """
    values = Values(tables, model)
    source = ""
    if clients is None:
        clients = values.number("data", "partition", "clients")
        source = " (data.partition.clients)"
    found = _check_quorum(values, clients) + _check_bounds(values) + check_engine(tables)
    found += _check_local(tables)
    found += _check_evaluate(tables)
    found += check_privacy(tables) + check_secure(tables)
    found += check_participation(tables)
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
    return [
        Problem(
            "quorum.min_replies", "more replies than clients take part in a round", least, expected
        )
    ]


def _check_bounds(values: Values) -> list[Problem]:
    floor = values.number("bounds", "floor")
    ceiling = values.number("bounds", "ceiling")
    if not floor or not ceiling or floor <= ceiling:
        return []
    expected = f"at least {floor:g} (bounds.floor)"
    return [Problem("bounds.ceiling", "less than the floor", ceiling, expected)]


def _check_local(tables: Mapping[str, Any]) -> list[Problem]:
    local = tables.get("local")
    if not isinstance(local, Mapping):
        return []
    found = optimizer_problems(("local",), local)
    for key in ("step_schedule", "round_schedule"):
        if isinstance(local.get(key), Mapping):
            found += schedule_problems(("local", key), local[key])
    return found


def _check_evaluate(tables: Mapping[str, Any]) -> list[Problem]:
    evaluate = tables.get("evaluate")
    if not isinstance(evaluate, Mapping) or tables.get("shift") is None:
        return []
    # A shift exchanges samples between clients, and says itself who comes and goes.
    apart = {
        "unseen": ("clients that never train", "no unseen clients"),
        "validation": ("samples that are kept from training", "no validation"),
    }
    return [
        Problem(
            f"evaluate.{key}",
            f"{what}, in a federation whose data move",
            evaluate[key],
            f"no [shift], or {without}",
        )
        for key, (what, without) in apart.items()
        if evaluate.get(key) is not None
    ]


def check_engine(tables: Mapping[str, Any]) -> list[Problem]:
    """Options of another engine than the one chosen, unless they have their default."""
    engine = tables.get("engine")
    if not isinstance(engine, Mapping):
        return []
    name = engine.get("name", "pool")
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
            found.append(Problem(path, "of another engine", engine[option], expected))
    return found


def _check_cohort(values: Values, clients: int, source: str) -> list[Problem]:
    # The default is lowered to all clients, see `fit_defaults`.
    cohort = values.explicit("train", "clients_per_round")
    if not cohort or cohort <= clients:
        return []
    path = "train.clients_per_round"
    return [Problem(path, "more than there are clients", cohort, f"at most {clients}{source}")]


def _check_groups(values: Values, clients: int, source: str) -> list[Problem]:
    groups = values.number("algorithm", "groups")
    # A default alpha is lowered to what the clients allow (`fit_defaults`), a user's own is not.
    alpha = values.explicit("algorithm", "alpha")
    if not groups:
        return []
    if groups > clients:
        expected = f"at most {clients}{source}"
        return [Problem("algorithm.groups", "more groups than clients", groups, expected)]
    if alpha and alpha * groups > clients:
        what = f"a cold start of alpha * groups = {alpha * groups:g} clients"
        expected = f"at most {clients // groups}: {clients} clients{source}"
        return [Problem("algorithm.alpha", what, alpha, expected)]
    return []
