"""Which options of a sweep apply to which of its algorithms.

The table ``[algorithm]`` of a configuration belongs to the algorithm that it names. In overrides
and grids, ``algorithm.x`` applies to every algorithm that has an option ``x``, and ``NAME.x`` to
the algorithm ``NAME`` alone. So does ``NAME.migration.x`` of the table ``[migration]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields
from functools import lru_cache
from typing import Any, Literal

from coterie.config import registry
from coterie.config.toml_text import put
from coterie.config.wording import describe_type, nearest
from coterie.errors import ConfigError
from coterie.experiment import check
from coterie.experiment.tables import Tables
from coterie.runs.fitting import can_migrate

_TABLES = frozenset(table.name for table in fields(Tables))

# --- checks ---------------------------------------------------------------------------------------


def check_algorithms(names: Sequence[str]) -> None:
    """Check the names of ``--algorithms``."""
    known = tuple(sorted(registry.names("algorithm")))
    for name in names:
        # A colon marks a factory of the user, `module:factory`, which no registry knows.
        if ":" in name or name in known:
            continue
        expected = describe_type(Literal[known])
        hint = nearest(name, known)
        raise ConfigError("unknown-choice", "--algorithms", got=name, allowed=expected, hint=hint)
    if len(set(names)) < len(names):
        expected = "each once; --grid compares values of an option"
        what = "a name occurs twice"
        got = ",".join(names)
        raise ConfigError("in-conflict", "--algorithms", what, got=got, allowed=expected)


def check_base(base: Mapping[str, Any], file: str) -> tuple[str, int]:
    """Check the algorithm and the seed of the configuration itself; returns both.

    If its algorithm is not part of the sweep, no run would reveal a misspelt option of it.
    """
    table = base.get("algorithm")
    seed = base.get("seed", 0)
    name = None
    if isinstance(table, Mapping):
        name = table.get("name")
    # Validation has the words for what is wrong; it must find it, since the run needs both.
    if not isinstance(name, str) or not isinstance(seed, int) or not isinstance(table, Mapping):
        check(base, file)
        raise AssertionError("a configuration without algorithm or seed was not refused")
    known = algorithm_options(name)
    if known is None:
        return name, seed
    for key, value in table.items():
        if key != "name" and key not in known:
            expected = f"one of {', '.join(['name', *known])}"
            hint = nearest(key, list(known))
            path = f"{file}: algorithm.{key}"
            raise ConfigError("unknown-key", path, got=value, allowed=expected, hint=hint)
    return name, seed


def check_option(source: str, key: str, algorithms: Sequence[str]) -> None:
    """Refuse an option of ``--set`` or ``--grid`` that none of the algorithms has: no run would use
    it."""
    if any(key_for(name, key, algorithms) for name in algorithms):
        return
    # Options of all algorithms, since the key may have been meant for any of them.
    known = sorted({option for name in algorithms for option in algorithm_options(name) or ()})
    expected = "a key of another table"
    if known:
        expected = f"one of {', '.join(known)}"
    what = "not an option of any of the algorithms"
    hint = nearest(key.split(".")[-1], known)
    raise ConfigError("unknown-key", source, what, got=key, allowed=expected, hint=hint)


# --- keys -----------------------------------------------------------------------------------------


# A sweep asks for each cell, and a custom factory would be imported each time.
@lru_cache(maxsize=256)
def algorithm_options(name: str) -> dict[str, tuple[Any, Any]] | None:
    """The options of an algorithm: name -> (type, default); ``None`` for a custom factory that
    cannot be imported, which the check of its configuration reports."""
    try:
        return registry.options("algorithm", name)
    except ConfigError:
        return None


@lru_cache(maxsize=256)
def _can_migrate(name: str) -> bool:
    """Whether ``[migration]`` is left in the configuration of an algorithm. A custom factory is not
    called to find out: it may do anything, and only the process of its own run may die of it."""
    return ":" in name or can_migrate(name)


def is_algorithm_key(assignment: str, algorithms: Sequence[str]) -> bool:
    """Whether ``key=value`` sets an option of algorithms, and nothing that all runs share."""
    key = assignment.partition("=")[0].strip()
    if key.startswith("algorithm.") and key != "algorithm.name":
        return True
    return _owner(key, algorithms) is not None


def key_for(algorithm: str, key: str, algorithms: Sequence[str]) -> str | None:
    """The key as it stands in the configuration of one algorithm.

    Returns:
        ``None`` if the key does not apply to this algorithm.

    Example:
        >>> names = ["fedavg", "fedprox"]
        >>> key_for("fedprox", "fedprox.mu", names), key_for("fedavg", "algorithm.mu", names)
        ('algorithm.mu', None)
    """
    owner = _owner(key, algorithms)
    if owner is not None:
        if owner != algorithm:
            return None
        rest = key.removeprefix(f"{owner}.")
        if rest.startswith("migration."):
            # Its own table, since algorithms are compared with and without it.
            return rest
        return f"algorithm.{rest}"
    table, _, rest = key.partition(".")
    if table == "migration" and not _can_migrate(algorithm):
        return None
    if table != "algorithm" or not rest:
        return key
    known = algorithm_options(algorithm)
    # Of a factory that cannot be imported nothing is known: its check will report that.
    if known is not None and rest.split(".")[0] not in known:
        return None
    return key


def _owner(key: str, algorithms: Sequence[str]) -> str | None:
    """The algorithm whose option a key is; ``None`` for a key of a table."""
    for name in algorithms:
        if key.startswith(f"{name}."):
            option = key.removeprefix(f"{name}.").split(".")[0]
            # `local` is an algorithm and a table: `local.lr` is of the table.
            if name in _TABLES and option not in {"migration", *(algorithm_options(name) or ())}:
                continue
            return name
    return None


# --- the configuration of one run -----------------------------------------------------------------


def tables_for(
    algorithm: str,
    algorithms: Sequence[str],
    base: Mapping[str, Any],
    assignments: Iterable[str],
    values: Mapping[str, Any],
) -> dict[str, Any]:
    """The configuration of one run, not validated yet, without assignments for other algorithms."""
    # A copy: all runs of a sweep start from the same tables, and `put` changes them in place.
    tables = deepcopy(dict(base))
    tables["algorithm"] = {"name": algorithm, **_options_from(base.get("algorithm"), algorithm)}
    # A comparison with FedAvg may say how the others migrate.
    if "migration" in tables and not _can_migrate(algorithm):
        del tables["migration"]
    for assignment in assignments:
        key, _, value = assignment.partition("=")
        target = key_for(algorithm, key.strip(), algorithms)
        if target is not None:
            put(tables, f"{target}={value}")
    for key, value in values.items():
        head, _, last = key.rpartition(".")
        table = tables
        if head:
            table = tables.setdefault(head, {})
        # A table of the wrong type is left as it is; validation refuses it with its own message.
        if value is not None and isinstance(table, dict):
            table[last] = value
    return tables


def _options_from(table: Any, algorithm: str) -> dict[str, Any]:
    """The options that an algorithm takes from the configuration's table ``[algorithm]``; if that
    names another algorithm, those of the same name, type, range and default."""
    if not isinstance(table, Mapping):
        return {}
    # The name is set by the caller.
    settings = {key: value for key, value in table.items() if key != "name"}
    if table.get("name") == algorithm:
        return settings
    theirs = algorithm_options(str(table.get("name"))) or {}
    ours = algorithm_options(algorithm) or {}
    return {
        key: value
        for key, value in settings.items()
        if key in ours and key in theirs and _equivalent(theirs[key], ours[key])
    }


def _equivalent(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Whether two options have the same type, range and default."""
    return (describe_type(one[0]), one[1]) == (describe_type(other[0]), other[1])
