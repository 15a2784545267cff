"""What the columns of a user's table say about a run, before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from coterie.clients.clients import Clients
from coterie.config import registry
from coterie.config.choice_tables import KindTable
from coterie.core.arrays import FloatArray
from coterie.data import Population
from coterie.experiment import Experiment
from coterie.runs.telling import telling_columns
from coterie.terminal import warn

# Standard deviations of two features that differ by more than this need scaling.
WIDE = 100.0
# So many training samples show a scale as well as all of them.
LOOKED_AT = 4096
A_REGRESSION = (
    "task.kind: labels look like numbers to predict, so this is a regression; "
    "[task] kind = 'classification' where they are classes"
)


def assume_task(config: Experiment, kind: str = "regression") -> Experiment:
    """The configuration with the task that its labels imply, where it names none."""
    if config.task is not None:
        return config
    table = registry.table_model("task", registry.find("task", kind))
    return replace(config, task=cast(KindTable, table.model_validate({"kind": kind})))


def record_description(clients: Clients, population: Population, round: int) -> None:
    """Count what the clients of a simulation reported of their tables, before its first round.

    Args:
        round: with which the run begins, or goes on.
    """
    table = population.table
    if table is None or round > 0:
        return
    # A client without training rows has nothing to report.
    ids = np.flatnonzero(table.reported)
    clients.ledger.described(ids, table.reported[ids], table.answered)


def warn_of_columns(config: Experiment, population: Population) -> None:
    """Warn of columns that are left out, of those that give the label away, and of features whose
    scales differ widely.
    """
    if population.table is not None:
        for line in population.table.encoder.notes:
            warn(line)
        # The guarantee is of updates, and must not be read as one of means and counts.
        if config.privacy is not None and population.table.raw.encode.noise is None:
            warn(
                "privacy: covers updates, and not what clients report of their columns, which is "
                "sent without noise; data.encode.noise adds some (docs/private-updates.md)"
            )
    warn_of_values(config, population)


def warn_of_values(config: Experiment, population: Population) -> None:
    """Warn of columns whose values give the label away, and of features whose scales differ widely;
    the arguments are those of `warn_of_columns`."""
    names: Sequence[str] = ()
    if population.table is not None:
        names = population.table.encoder.features
    elif isinstance(config.options("source").get("features"), list):
        names = config.options("source")["features"]
    # Other inputs are pixels or words, which are of one scale.
    if not names:
        return
    label = config.options("source").get("label", "the label")
    for line in telling_columns(population, names, label):
        warn(line)
    scales = scale_warning(population, names)
    if scales is not None:
        warn(scales)


def scale_warning(population: Population, names: Sequence[str]) -> str | None:
    """A line where the standard deviations of two features differ by a factor of 100.

    Args:
        population: with inputs ``[S, q]``, or series ``[S, past, q]``.
    """
    spreads = _spreads(population)
    if not (spreads > 0).any():
        return None
    largest = int(spreads.argmax())
    smallest = int(np.where(spreads > 0, spreads, np.inf).argmin())
    if spreads[largest] <= WIDE * spreads[smallest]:
        return None
    return (
        f"features differ widely in scale, got standard deviations from {spreads[smallest]:.3g} "
        f"({names[smallest]}) to {spreads[largest]:.3g} ({names[largest]}); expected similar ones: "
        "[data.encode] scaling = 'standard'"
    )


def _spreads(population: Population) -> FloatArray:
    """The standard deviation of each feature over training samples, float64 ``[q]``."""
    rows = np.concatenate(population.train)[:LOOKED_AT]
    x = population.x.numpy()[rows].astype(np.float64)
    return x.reshape(-1, x.shape[-1]).std(axis=0)
