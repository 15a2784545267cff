"""What the columns of a user's table say about a run, before it begins.

Among them are columns that give the label away: a second label, or what was written down after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from coterie.clients.clients import Clients
from coterie.config import registry
from coterie.config.choice_tables import KindTable
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.target_scaling import TargetScaling
from coterie.data import Population
from coterie.experiment import Experiment
from coterie.runs.other_units import columns_apart, some_of, values_of
from coterie.runs.target_scaling import scaling_bytes
from coterie.tasks.scaling import report_size
from coterie.terminal import warn

# Standard deviations of two features that differ by more than this need scaling.
WIDE = 100.0
# So many training samples show it as well as all of them.
LOOKED_AT = 4096
A_REGRESSION = (
    "task.kind: labels look like numbers to predict, so this is a regression; if they are "
    "classes, set [task] kind = 'classification'"
)
# With fewer training rows a column may agree with the label by chance.
ENOUGH_ROWS = 50
# A column whose values have this many rows each on average repeats, and is no name of a row.
ROWS_A_VALUE = 4
# The share of the rows of all but the largest class that need not follow from a column that gives
# the label away: such a column may have a few wrong entries.
EXCEPTIONS = 0.02
# A number this much in line with the target is the target in another unit.
NEARLY_ONE = 0.9999


def assume_task(config: Experiment, kind: str = "regression") -> Experiment:
    """The configuration with the task that its labels imply, where it names none."""
    if config.task is not None:
        return config
    table = registry.table_model("task", registry.find("task", kind))
    return replace(config, task=cast(KindTable, table.model_validate({"kind": kind})))


def record_description(
    clients: Clients, population: Population, scaling: TargetScaling | None
) -> None:
    """Count what the clients of a simulation reported of their tables and targets, before its first
    round."""
    reported = np.zeros(population.clients, np.int64)
    answered = 0
    if population.table is not None:
        reported += population.table.reported
        answered += population.table.answered
    if scaling is not None:
        reported[population.sizes("train") > 0] += report_size(scaling)
        answered += len(scaling_bytes(scaling))
    # A client without training rows has nothing to report.
    ids = np.flatnonzero(reported)
    if len(ids):
        clients.ledger.described(ids, reported[ids], answered)


def warn_of_columns(config: Experiment, population: Population) -> None:
    """Warn of columns that are left out, and of what `warn_of_values` finds."""
    if population.table is not None:
        for line in population.table.encoder.notes:
            warn(line)
        # The guarantee is of updates, and must not be read as one of means and counts.
        if config.privacy is not None and population.table.raw.encode.noise is None:
            warn(
                "[privacy] protects updates, but not the clients' reports on their columns, which are "
                "sent without noise; to add noise, set data.encode.noise (docs/private-updates.md)"
            )
    warn_of_values(config, population)


def warn_of_values(config: Experiment, population: Population) -> None:
    """Warn of columns whose values give the label away or are apart at one client, and of features whose
    scales differ widely; the arguments are those of `warn_of_columns`."""
    names: Sequence[str] = ()
    if population.table is not None:
        names = population.table.encoder.features
    elif isinstance(config.options("source").get("features"), list):
        names = config.options("source")["features"]
    # Other inputs are pixels or words, which are of one scale.
    if not names:
        return
    label = config.options("source").get("label", "the label")
    for line in telling_columns(population, names, label) + columns_apart(population, names, label):
        warn(line)
    scales = scale_warning(population, names)
    if scales is not None:
        warn(scales)


def scale_warning(population: Population, names: Sequence[str]) -> str | None:
    """A line where the standard deviations of two features differ by a factor of 100."""
    rows = np.concatenate(population.train)[:LOOKED_AT]
    x = population.x.numpy()[rows].astype(np.float64)
    spreads = x.reshape(-1, x.shape[-1]).std(axis=0)
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


def telling_columns(
    population: Population, names: Sequence[str], label: str | Sequence[str]
) -> list[str]:
    """A line for each column that alone gives away the label, but for a few rows. It is not left
    out, since it may be known in time."""
    held = np.concatenate(population.train)
    table = population.table
    if table is not None:
        # Of clients that joined a run there are only the inputs, and no columns as they were read.
        held = held[held < len(table.first)]
    # The past of a series has what is predicted, and several targets have no single column.
    if population.y.ndim > 1 or len(held) < ENOUGH_ROWS or population.x.ndim > 2:
        return []
    rows = some_of(held, LOOKED_AT)
    targets = population.y.numpy()[rows]
    remedy = "take it out of data.features"
    if table is not None:
        names = [column.name for column in table.raw.columns]
    values = values_of(population, rows)
    lines = []
    found = columns_that_tell(names, values, targets, numbers=not population.classes)
    for name, count in found.items():
        if table is not None:
            remedy = f"[data.encode] leave_out = ['{name}']"
        lines.append(
            f"column {name}: determines {label} in {count} of {len(rows)} training rows; unless it is "
            f"known before {label}, leave it out: {remedy}"
        )
    return lines


def columns_that_tell(
    names: Sequence[str], values: FloatArray, targets: IntArray | FloatArray, *, numbers: bool
) -> dict[str, int]:
    """The columns of ``values`` ``[n, p]`` that alone give away the targets, and in how many rows:
    in all but a few."""
    rows_given_away = _in_line if numbers else _separated
    found = {
        name: rows_given_away(column, targets) for name, column in zip(names, values.T, strict=True)
    }
    return {name: count for name, count in found.items() if count}


def _in_line(column: FloatArray, targets: IntArray | FloatArray) -> int:
    """All rows, if targets are nearly a linear function of a column that has no missing values; else
    0."""
    targets = targets.astype(np.float64)
    if np.isnan(column).any() or not column.std() or not targets.std():
        return 0
    return len(targets) * int(abs(np.corrcoef(column, targets)[0, 1]) > NEARLY_ONE)


def _separated(column: FloatArray, targets: IntArray | FloatArray) -> int:
    """In how many rows the class follows from the value of a column, which may be missing; 0 if these
    are not all rows but a few.

    That each value goes with one class is no wonder where hardly a value repeats. Then the classes
    have to follow one another in the order of the values.
    """
    _, label = np.unique(targets, return_inverse=True)
    _, value = np.unique(column, return_inverse=True)
    counts = np.zeros((int(value.max()) + 1, int(label.max()) + 1), np.int64)
    np.add.at(counts, (value, label), 1)
    if ROWS_A_VALUE * len(counts) <= len(label):
        wrong = len(label) - int(counts.max(axis=1).sum())
    else:
        wrong = _wrong_by_order(counts)
    others = len(label) - np.bincount(label).max()
    if others == 0 or wrong > EXCEPTIONS * others:
        return 0
    return int(len(label) - wrong)


def _wrong_by_order(counts: IntArray) -> int:
    """In how many rows the class is not the one that follows from the order of the values; of more
    than two classes, 0 if there are none, else all rows.

    Args:
        counts: ``[values, classes]``, the rows of each value, ascending, and class.
    """
    rows = int(counts.sum())
    if counts.shape[1] == 2:
        # One class is on one side of a value, and the other one on the other.
        below = np.cumsum(counts, axis=0)
        first_below = below[:, 0] + (below[-1, 1] - below[:, 1])
        return rows - int(max(first_below.max(), rows - first_below.min()))
    single = (np.count_nonzero(counts, axis=1) == 1).all()
    changes = np.count_nonzero(np.diff(counts.argmax(axis=1)))
    if single and changes == counts.shape[1] - 1:
        return 0
    return rows
