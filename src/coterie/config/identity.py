"""Which run a configuration is: what of it can change results, and its hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from coterie.config.kinds import KINDS
from coterie.config.wording import spelled

# Tables of a simulation on this machine, and of what it stores and shows: nothing of the models.
SIMULATION = ("engine", "folder")
STORAGE = ("checkpoint", "log")
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
    ("data", "root"),
    ("folder",),
    *((name,) for name in STORAGE),
)
# With vmap these can, in the last digits: clients that train together are summed in another order.
RELEVANT_WHEN_BATCHED = (("engine", "name"), ("engine", "each"), ("engine", "precision"))
# A key of a record that is false is as one that is not set. So a new option that is off by default
# needs no line here: runs that are done stay done. These two counted before that was so.
FALSE_COUNTS = (("train", "evaluate_loss"), ("evaluate", "unseen_labels"))
CHOICES = frozenset(kind.place[0] for kind in KINDS.values() if kind.place)
# Other options that came later, with the value that leaves a run as it was before them. A run that writes
# this value is the same run as one that says nothing, so runs that are done stay done.
ADDED: Mapping[tuple[str, ...], Any] = {
    ("engine", "threads"): 1,
    ("evaluate", "rounds"): "evaluated",
    ("local", "optimizer"): "sgd",
    ("local", "label_smoothing"): 0.0,
    ("local", "precision"): "float32",
    ("task", "scaling"): "none",
    ("train", "over_selection"): 1.0,
}


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
    found = {}
    for path, value in _leaves(_normal_form(resolved), ()):
        # An entry of IRRELEVANT may be a whole table, such as `[log]`, or a single key.
        beginnings = {path[:length] for length in range(1, len(path) + 1)}
        as_before = path in ADDED and ADDED[path] == value
        if not beginnings & irrelevant and not as_before and not _is_off(path, value):
            found[spelled(path)] = value
    return found


def _is_off(path: tuple[str, ...], value: Any) -> bool:
    """Whether a key of a record is false, which leaves a run as it is without the key."""
    of_record = len(path) == 2 and path[0] not in CHOICES
    return value is False and of_record and path not in FALSE_COUNTS


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
