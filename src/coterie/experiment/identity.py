"""Which run a configuration is: what of it can change results, and its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, get_type_hints

from coterie.config import registry
from coterie.config.kinds import KINDS
from coterie.config.schema import Added
from coterie.config.wording import spelled
from coterie.core.traits import value_at
from coterie.experiment.tables import CHOICES, record_types

# Key paths that cannot change results, so they are not part of a run's identity: a run may be
# resumed on another engine, with other workers, from another folder of datasets.
IRRELEVANT = (
    ("engine", "name"),
    ("engine", "workers"),
    ("engine", "device"),
    ("engine", "precision"),
    ("engine", "graphs"),
    ("engine", "memory"),
    ("engine", "streams"),
    ("engine", "address"),
    ("engine", "each"),
    ("engine", "samples"),
    ("checkpoint",),
    ("data", "root"),
    ("folder",),
    ("log",),
)
# With vmap these can, in the last digits: clients that train together are summed in another order.
RELEVANT_WHEN_BATCHED = (("engine", "name"), ("engine", "each"), ("engine", "precision"))
# A key of a record that is false is as one that is not set, and so is one with the value of its mark
# `Added`. So runs that are done stay done. These two counted before that was so.
FALSE_COUNTS = (("train", "evaluate_loss"), ("evaluate", "unseen_labels"))


def _normal_form(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved configuration without migration, bounds and personal layers where they do nothing."""
    found = dict(resolved)
    bounds = found.get("bounds")
    # Without bounds it does not matter what they would have been.
    if isinstance(bounds, Mapping) and bounds.get("enabled") is False:
        del found["bounds"]
    personal = found.get("personal")
    # Without layers the table does nothing.
    if isinstance(personal, Mapping) and not personal.get("layers"):
        del found["personal"]
    migration = found.get("migration")
    # A run that says "none" is the same run as one that says nothing.
    if isinstance(migration, Mapping) and migration.get("detector") == "none":
        del found["migration"]
    return found


def relevant(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved configuration as flat key paths, without what cannot change results (engine,
    checkpoints, data root). The engine ``vmap`` changes the last digits, so it counts."""
    engine = resolved.get("engine")
    irrelevant = set(IRRELEVANT)
    if isinstance(engine, Mapping) and batched(engine):
        irrelevant -= set(RELEVANT_WHEN_BATCHED)
    added = _added(resolved)
    found = {}
    for path, value in _leaves(_normal_form(resolved), ()):
        # An entry of IRRELEVANT may be a whole table, such as `[log]`, or a single key.
        beginnings = {path[:length] for length in range(1, len(path) + 1)}
        as_before = path in added and added[path] == value
        if not beginnings & irrelevant and not as_before and not _is_off(path, value):
            found[spelled(path)] = value
    return found


def _is_off(path: tuple[str, ...], value: Any) -> bool:
    """Whether a key of a record is false, which leaves a run as it is without the key."""
    of_record = len(path) == 2 and path[0] not in CHOICES
    return value is False and of_record and path not in FALSE_COUNTS


def _added(resolved: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """Options that came later, with the value that leaves a run as it was before them."""
    found = dict(_added_by_records())
    for kind, where in KINDS.items():
        table = value_at(resolved, ".".join(where.place))
        if isinstance(table, Mapping):
            found |= _added_by_choice(kind, str(table.get(where.selector)))
    return found


@lru_cache
def _added_by_records() -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for table, record in record_types().items():
        found |= marked((table,), get_type_hints(record, include_extras=True))
    return found


@lru_cache
def _added_by_choice(kind: str, name: str) -> dict[tuple[str, ...], Any]:
    """Of choices of ours alone: nobody else's code is imported for it."""
    kinds: dict[str, Any] = {}
    for own in registry.builtin(kind):
        # The table of the engine has the options of all.
        if kind == "engine" or own == name:
            kinds |= {key: one for key, (one, _) in registry.options(kind, own).items()}
    return marked(KINDS[kind].place, kinds)


def marked(place: tuple[str, ...], kinds: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """The options with a mark, and its value, by key path."""
    return {
        (*place, name): mark.before
        for name, kind in kinds.items()
        for mark in getattr(kind, "__metadata__", ())
        if isinstance(mark, Added)
    }


def batched(engine: Mapping[str, Any]) -> bool:
    """Whether clients are trained together: then results equal those of the other engines but for
    rounding."""
    name = engine.get("name")
    return name == "vmap" or (name == "ray" and engine.get("each") == "vmap")


def _leaves(value: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    # An empty table is a value of its own: it is not the same as no table.
    if isinstance(value, Mapping) and (value or not path):
        return [leaf for key, inner in value.items() for leaf in _leaves(inner, (*path, key))]
    return [(path, value)]


def config_hash(resolved: Mapping[str, Any]) -> str:
    """SHA-256 of a resolved configuration in canonical JSON; the order of keys does not matter."""
    # Canonical: the same bytes for the same configuration, whatever wrote it.
    text = json.dumps(
        relevant(resolved),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
        allow_nan=False,
    )
    return hashlib.sha256(text.encode()).hexdigest()


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The key paths in which two resolved configurations differ, of those that matter."""
    return differing_keys(relevant(one), relevant(other))


def differing_keys(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys of which two records have other values, or one of them none."""
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))
