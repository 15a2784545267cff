"""Checks across tables: values that are good each by itself and do not go together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from coterie.config import registry
from coterie.config.identity import batched
from coterie.config.problems import Problem, default_at
from coterie.config.schema import LARGEST

# Options that every engine is passed; those that have no use for one leave it out.
EVERY_ENGINE = ("workers", "round_timeout")


@dataclass(frozen=True, slots=True)
class Values:
    """The numbers of a configuration that may be wrong elsewhere.

    Args:
        tables: of the file, not validated.
        model: of the configuration, which has the defaults.
    """

    tables: Mapping[str, Any]
    model: type[BaseModel]

    def number(self, *path: str) -> Any:
        """The number at a key path; ``None`` for anything else, which another check refuses."""
        record: Any = self.tables
        for part in path:
            record = record.get(part) if isinstance(record, Mapping) else None
        if record is None:
            record = default_at(self.model, path)
        if isinstance(record, bool) or not isinstance(record, int | float):
            return None
        if 0 < record <= LARGEST:
            return record
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
    found = _check_quorum(values) + _check_engine(tables)
    source = ""
    if clients is None:
        clients = values.number("data", "partition", "clients")
        source = " (data.partition.clients)"
    if clients is not None:
        found += _check_cohort(values, clients, source) + _check_groups(values, clients, source)
    return found


def _check_quorum(values: Values) -> list[Problem]:
    cohort = values.number("train", "clients_per_round")
    least = values.number("quorum", "min_replies")
    if not cohort or not least or least <= cohort:
        return []
    expected = f"at most {cohort} (train.clients_per_round)"
    return [Problem("quorum.min_replies", "more replies than clients are asked", least, expected)]


def _check_engine(tables: Mapping[str, Any]) -> list[Problem]:
    """Options of another engine than the one chosen, unless they have their default."""
    engine = tables.get("engine")
    if not isinstance(engine, Mapping):
        return []
    name = engine.get("name", "pool")
    if not isinstance(name, str) or name not in registry.builtin("engine"):
        return []
    of_vmap = registry.options("engine", "vmap")
    of_ray = registry.options("engine", "ray")
    chosen = registry.options("engine", name)
    found = []
    for option, (_, default) in {**of_vmap, **of_ray}.items():
        if option in EVERY_ENGINE or engine.get(option, default) == default:
            continue
        expected = "engine.name 'ray'"
        fits = option in chosen
        if option in of_vmap:
            expected = "engine.name 'vmap', or 'ray' with engine.each 'vmap'"
            fits = fits and (name != "ray" or batched(engine))
        if not fits:
            path = f"engine.{option}"
            found.append(Problem(path, "of another engine", engine[option], expected))
    return found


def _check_cohort(values: Values, clients: int, source: str) -> list[Problem]:
    cohort = values.number("train", "clients_per_round")
    if not cohort or cohort <= clients:
        return []
    path = "train.clients_per_round"
    return [Problem(path, "more than there are clients", cohort, f"at most {clients}{source}")]


def _check_groups(values: Values, clients: int, source: str) -> list[Problem]:
    groups = values.number("algorithm", "groups")
    alpha = values.number("algorithm", "alpha")
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
