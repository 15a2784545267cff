"""Defaults that a small federation does not allow: they are lowered to what it does."""

from __future__ import annotations

from typing import TypeVar

from coterie.config.schema import Table
from coterie.config.tables import RunConfig

T = TypeVar("T", bound=Table)


def fit_defaults(config: RunConfig, clients: int) -> RunConfig:
    """The configuration with defaults that so many clients allow; explicit values stay as they are.

    ``train.clients_per_round`` becomes at most all clients. ``algorithm.alpha`` becomes at most
    ``clients // groups``, so that a cold start asks all clients where it would ask for more.

    Args:
        config: the configuration.
        clients: how many there are.

    Example:
        >>> from coterie.config import check
        >>> tables = {"data": {"source": "digits", "partition": {"kind": "natural", "column": "c"}},
        ...           "model": {"name": "mclr"}, "train": {"rounds": 3}, "algorithm": {"name": "fedgroup"}}
        >>> config = fit_defaults(check(tables), 12)
        >>> config.train.clients_per_round, config.options("algorithm")["alpha"]
        (12, 4)
    """
    return _fit_cold_start(fit_cohort(config, clients), clients)


def fit_cohort(config: RunConfig, clients: int) -> RunConfig:
    """The configuration with ``train.clients_per_round`` at most all clients, if it is the
    default."""
    train = config.train
    if not _is_default(train, "clients_per_round") or train.clients_per_round <= clients:
        return config
    train = _lowered(train, "clients_per_round", clients)
    return config.model_copy(update={"train": train})


def _fit_cold_start(config: RunConfig, clients: int) -> RunConfig:
    algorithm = config.algorithm
    alpha = algorithm.options.get("alpha")
    groups = algorithm.options.get("groups")
    # With groups = "auto" the rule itself asks all clients at most.
    if not isinstance(alpha, int) or not isinstance(groups, int):
        return config
    most = max(1, clients // groups)
    if not _is_default(algorithm, "alpha") or alpha <= most:
        return config
    algorithm = _lowered(algorithm, "alpha", most)
    return config.model_copy(update={"algorithm": algorithm})


def lowered_cold_start(config: RunConfig) -> str | None:
    """The line that tells a user of a lower ``algorithm.alpha``; ``None`` where it is the default,
    or as the file sets it."""
    algorithm = config.algorithm
    field = type(algorithm).model_fields.get("alpha")
    if field is None or not _is_default(algorithm, "alpha"):
        return None
    # IFCA has a cold start only where it is asked for.
    if algorithm.options.get("init", "cold_start") != "cold_start":
        return None
    alpha = algorithm.options["alpha"]
    if alpha == field.default:
        return None
    return (
        f"algorithm.alpha is {alpha}, not {field.default} as by default: a cold start of "
        f"{field.default} clients for each group needs more clients than there are"
    )


def _lowered(table: T, key: str, value: int) -> T:
    """The table with a lower default."""
    lowered = table.model_copy(update={key: value})
    # It is a default still, not a value of the file: fewer clients may lower it further.
    lowered.model_fields_set.discard(key)
    return lowered


def _is_default(table: Table, key: str) -> bool:
    """Whether a key has its default because the file does not set it."""
    return key not in table.model_fields_set
