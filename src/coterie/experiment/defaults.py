"""Defaults that follow from other tables, or that a small federation does not allow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from coterie.config.choice_tables import NamedTable
from coterie.config.schema import table_of
from coterie.experiment.tables import Tables

Run = TypeVar("Run", bound=Tables)
# Keys whose defaults few clients lower.
LOWERED = {"train": "clients_per_round", "asynchronous": "buffer"}


def without_lowered(name: str, record: Any) -> dict[str, Any]:
    """The values of a record without a default that few clients lower, as a table leaves it out."""
    table = table_of(type(record))
    values = {key: getattr(record, key) for key in table.model_fields}
    if name in LOWERED and values[LOWERED[name]] == table.model_fields[LOWERED[name]].default:
        del values[LOWERED[name]]
    return values


def resolved_without_lowered(experiment: Any) -> dict[str, dict[str, Any]]:
    """All tables of an experiment, without those of its defaults that few clients lower: what is
    written for a number of clients that may change."""
    tables: dict[str, dict[str, Any]] = experiment.resolved()
    for name, key in LOWERED.items():
        if f"{name}.{key}" not in experiment.given:
            tables.get(name, {}).pop(key, None)
    if _default_alpha(experiment.algorithm) is not None:
        tables["algorithm"].pop("alpha", None)
    return tables


def said_by_hand(experiment: Tables) -> frozenset[str]:
    """What the user of an experiment that was made by hand has set: all of its records but the
    defaults that few clients lower."""
    return frozenset(
        f"{name}.{key}"
        for name in LOWERED
        if getattr(experiment, name) is not None
        for key in without_lowered(name, getattr(experiment, name))
    )


def fit_to_privacy(experiment: Run) -> Run:
    """The experiment with the defaults that ``[privacy]`` has: cohorts are drawn client by client,
    and there are no bounds. With ``[secure]`` there are none either.

    Example:
        >>> from coterie.experiment import Experiment
        >>> tables = {"data": {"source": "digits", "partition": {"kind": "iid"}}, "model": {"name": "mclr"},
        ...           "train": {"rounds": 3}, "algorithm": {"name": "fedavg"}, "privacy": {"epsilon": 8.0}}
        >>> experiment = Experiment.from_tables(tables)
        >>> experiment.train.sampler, experiment.bounds.enabled
        ('poisson', False)
    """
    # What the file sets is left as it is; if it does not work with privacy, it was refused before.
    if experiment.privacy is not None and "train.sampler" not in experiment.given:
        experiment = _with_default(experiment, "train", sampler="poisson")
    noised = experiment.privacy is not None or experiment.secure is not None
    if noised and "bounds.enabled" not in experiment.given:
        experiment = _with_default(experiment, "bounds", enabled=False)
    return experiment


def fit_defaults(experiment: Run, clients: int) -> Run:
    """The experiment with defaults that so many clients allow; explicit values stay as they are.

    ``train.clients_per_round`` becomes at most all clients, and ``asynchronous.buffer`` at most as
    many as take part in a round. ``algorithm.alpha`` becomes at most
    ``clients // groups``, so that a cold start asks all clients where it would ask for more.

    Example:
        >>> from coterie.experiment import Experiment
        >>> tables = {"data": {"source": "digits", "partition": {"kind": "natural", "column": "c"}},
        ...           "model": {"name": "mclr"}, "train": {"rounds": 3}, "algorithm": {"name": "fedgroup"}}
        >>> fitted = fit_defaults(Experiment.from_tables(tables), 12)
        >>> fitted.train.clients_per_round, fitted.options("algorithm")["alpha"]
        (12, 4)
    """
    experiment = fit_cohort(experiment, clients)
    rule = experiment.asynchronous
    cohort = experiment.train.clients_per_round
    if rule is not None and "asynchronous.buffer" not in experiment.given and rule.buffer > cohort:
        experiment = _with_default(experiment, "asynchronous", buffer=cohort)
    return _fit_cold_start(experiment, clients)


def fit_cohort(experiment: Run, clients: int) -> Run:
    """The experiment with ``train.clients_per_round`` at most all clients, if it is the default."""
    given = "train.clients_per_round" in experiment.given
    if given or experiment.train.clients_per_round <= clients:
        return experiment
    return _with_default(experiment, "train", clients_per_round=clients)


def _with_default(experiment: Run, name: str, **values: Any) -> Run:
    """The experiment with other values in a table, which are defaults still."""
    return replace(experiment.with_table(name, **values), given=experiment.given)


def _fit_cold_start(experiment: Run, clients: int) -> Run:
    algorithm = experiment.algorithm
    options = experiment.options("algorithm")
    alpha = options.get("alpha")
    groups = options.get("groups")
    # With groups = "auto" the rule itself asks all clients at most.
    if not isinstance(alpha, int) or not isinstance(groups, int):
        return experiment
    assert isinstance(algorithm, NamedTable)
    most = max(1, clients // groups)
    if "alpha" in algorithm.model_fields_set or alpha <= most:
        return experiment
    lowered = algorithm.model_copy(update={"alpha": most})
    # It is a default still, not a value of the file: fewer clients may lower it further.
    lowered.model_fields_set.discard("alpha")
    return replace(experiment, algorithm=lowered)


def lowered_cold_start(experiment: Tables) -> str | None:
    """The line that tells a user of a lower ``algorithm.alpha``; ``None`` where it is the default,
    or as the file sets it."""
    algorithm = experiment.algorithm
    default = _default_alpha(algorithm)
    options = experiment.options("algorithm")
    # IFCA has a cold start only where it is asked for.
    if default is None or options.get("init", "cold_start") != "cold_start":
        return None
    alpha = options["alpha"]
    if alpha == default:
        return None
    return (
        f"algorithm.alpha is {alpha} instead of the default {default}, because there are too few "
        f"clients for a cold start with {default} clients per group"
    )


def _default_alpha(algorithm: Any) -> Any:
    """The default of the option ``alpha``; ``None`` where it is given, or there is none."""
    if not isinstance(algorithm, NamedTable):
        return None
    option = type(algorithm).model_fields.get("alpha")
    if option is None or "alpha" in algorithm.model_fields_set:
        return None
    return option.default
