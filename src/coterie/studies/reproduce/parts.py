"""Configurations made of named parts, as the papers' files have them.

A paper's file has a base configuration and parts of configurations, ``[part.<name>]``. The
configuration of a line is the base with the parts of its table, row and column laid over it, in
this order.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from coterie.studies.reproduce.papers import Tables


def configuration_of(content: Mapping[str, Any], parts: Iterable[str]) -> Tables:
    """The base with parts laid over it, and their values filled in.

    A part may set ``value.<name>``, which fills in every ``"$<name>"`` of the configuration.

    Args:
        parts: names, from the lowest to the highest.

    Example:
        >>> content = {
        ...     "base": {"model": {"name": "mclr"}, "algorithm": {"name": "ifca", "groups": "$m"}},
        ...     "part": {"mnist": {"value": {"m": 3}}, "cnn": {"model": {"name": "cnn"}}},
        ... }
        >>> configuration_of(content, ["mnist", "cnn"])
        {'model': {'name': 'cnn'}, 'algorithm': {'name': 'ifca', 'groups': 3}}
    """
    # The file's content is cached, and must not change with the first line.
    found: Tables = copy.deepcopy(content["base"])
    for part in parts:
        found = overlay(found, content["part"][part])
    # Filled in last: a higher part may have set another value.
    values = found.pop("value", {})
    filled: Tables = _fill(found, values)
    return filled


def overlay(below: Tables, above: Mapping[str, Any]) -> Tables:
    """Lay tables over others, key by key.

    A table that names an algorithm or a model replaces the one below with all its options: those
    of the other algorithm would not be valid.
    """
    found = dict(below)
    for key, value in above.items():
        lower = found.get(key)
        if isinstance(value, Mapping) and isinstance(lower, Mapping) and "name" not in value:
            found[key] = overlay(dict(lower), value)
        else:
            found[key] = copy.deepcopy(value)
    return found


def _fill(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _fill(inner, values) for key, inner in value.items()}
    if isinstance(value, str) and value.startswith("$"):
        return values[value[1:]]
    return value
