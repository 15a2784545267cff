"""What goes together with ``[privacy]``, and what it changes in other tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coterie.config.participation_table import NOT_PRIVATE
from coterie.config.problems import Problem
from coterie.config.tables import BoundsTable, RunConfig

_WITH = "with [privacy]"
# Table, what is wrong with it, and what may stand there.
_TABLES = (
    ("attack", "attackers send what they know of others' updates", "none"),
    ("shift", "moves data between clients", "none"),
    ("asynchronous", NOT_PRIVATE, "none"),
)


def check_privacy(tables: Mapping[str, Any]) -> list[Problem]:
    """Values of a configuration that is not validated and that do not go together with
    ``[privacy]``.

    One client must not change what another one counts, or how many are counted: so nothing may
    compare clients.
    """
    privacy = tables.get("privacy")
    if not isinstance(privacy, Mapping):
        return []
    found = [
        Problem(name, what, tables[name], f"{allowed} {_WITH}")
        for name, what, allowed in _TABLES
        if tables.get(name) is not None
    ]
    if privacy.get("epsilon") is None and privacy.get("noise") is None:
        found.append(Problem("privacy.epsilon", "missing", None, "a number, or privacy.noise"))
    if _at(tables, "bounds", "enabled") is True:
        what = "compares clients with each other"
        found.append(Problem("bounds.enabled", what, True, f"false, or no [bounds], {_WITH}"))
    # Also `by_size`, though it is the default without privacy: all clients would count the same.
    weigh = _at(tables, "weigh", "name")
    if weigh not in (None, "evenly"):
        what = "no sum in which all clients count the same"
        found.append(Problem("weigh.name", what, weigh, f"'evenly', or no [weigh], {_WITH}"))
    if _at(tables, "migration", "detector") not in (None, "none"):
        what = "what drift reveals of a client is not counted"
        got = _at(tables, "migration", "detector")
        found.append(Problem("migration.detector", what, got, f"'none' {_WITH}"))
    # A temperature of the exported models comes from these sums.
    held_out = _at(tables, "train", "hold_out")
    if held_out is not None:
        what = "calibration sums up what clients count, without noise"
        found.append(Problem("train.hold_out", what, held_out, f"no value {_WITH}"))
    least = _at(tables, "quorum", "min_replies")
    if isinstance(least, int) and least > 1:
        what = "a round that does not count tells how many clients replied"
        found.append(Problem("quorum.min_replies", what, least, f"1 {_WITH}"))
    return found


def _at(tables: Mapping[str, Any], table: str, key: str) -> Any:
    values = tables.get(table)
    if isinstance(values, Mapping):
        return values.get(key)
    return None


def fit_to_privacy(config: RunConfig) -> RunConfig:
    """The configuration with the defaults that ``[privacy]`` has: cohorts are drawn client by
    client, and there are no bounds. With ``[secure]`` there are none either.

    Example:
        >>> from coterie.config import check
        >>> tables = {"data": {"source": "digits", "partition": {"kind": "iid"}}, "model": {"name": "mclr"},
        ...           "train": {"rounds": 3}, "algorithm": {"name": "fedavg"}, "privacy": {"epsilon": 8.0}}
        >>> config = check(tables)
        >>> config.train.sampler, config.bounds.enabled
        ('poisson', False)
    """
    if config.privacy is None and config.secure is None:
        return config
    # What the file sets is left as it is; if it does not go with privacy, it was refused before.
    changed: dict[str, Any] = {}
    if config.privacy is not None and "sampler" not in config.train.model_fields_set:
        changed["train"] = config.train.model_copy(update={"sampler": "poisson"})
    if "enabled" not in config.bounds.model_fields_set:
        changed["bounds"] = BoundsTable(enabled=False)
    return config.model_copy(update=changed)
