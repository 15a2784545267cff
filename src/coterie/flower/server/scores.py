"""What each real client reached: in the rows of a run, and in its ``clients.csv``.

Also the headline over the clients that every scored round has, so that it does not rise when a weak
site is away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.task import Task
from coterie.headline import ACCURACY, Headline
from coterie.measures.clients import client_columns
from coterie.measures.figures import number, own_sums
from coterie.runs.folder.store import RunFolder

# Of a row: name of a client -> its headline and its test samples.
COLUMN = "client_scores"
# Of a row: name of a client -> the ends of the interval of its headline, and the counts behind it.
FIGURES = "client_figures"


@dataclass(frozen=True, slots=True)
class SameClients:
    """What the same clients reached in each round: the mean of their headlines, weighted by their
    test samples. Of an accuracy that is the accuracy over all their samples."""

    clients: int
    away: bool  # whether some other client was scored in some round
    values: Mapping[int, float]


def same_clients(rows: Sequence[Mapping[str, Any]]) -> SameClients:
    """The clients that have a score in all of these rounds, and what they reached. Rows without scores
    of single clients are left out."""
    scored = [row for row in rows if row.get(COLUMN)]
    if not scored:
        return SameClients(0, False, {})
    # A client without test samples has none, and one whose samples are of one class has no AUROC.
    known = [
        {name for name, (value, _) in row[COLUMN].items() if value is not None} for row in scored
    ]
    in_all = set.intersection(*known)
    in_any = set.union(*known)
    values = {}
    for row in scored:
        pairs = [row[COLUMN][name] for name in sorted(in_all)]
        total = sum(samples for _, samples in pairs)
        if total:
            values[int(row["round"])] = sum(value * samples for value, samples in pairs) / total
    return SameClients(len(in_all), in_all != in_any, values)


# --- as a run writes them -------------------------------------------------------------------------


def client_scores(
    names: Sequence[str], reply: Reply, task: Task
) -> dict[str, list[float | int | None]]:
    """The headline and the test samples of each client that scored, as a row has them."""
    sums = own_sums(reply, task)
    values = task.metrics[0].value(sums)
    return {
        names[client]: [number(value), int(samples)]
        for client, value, samples in zip(reply.ids.tolist(), values, sums["size"], strict=True)
    }


def figures_of_clients(
    names: Sequence[str], reply: Reply, task: Task
) -> dict[str, dict[str, float | None]]:
    """What the headline of each client that scored rests on, by the names of columns of ``clients.csv``.

    Nothing for a task without classes: whether a client's errors are independent, as those of a series
    are not, only the client knows.
    """
    if not task.class_labels:
        return {}
    name = task.metrics[0].name
    wanted = (f"{name}_low", f"{name}_high", "positives", "smallest_class")
    found = client_columns(task, own_sums(reply, task))
    columns = {column: found[column] for column in wanted if column in found}
    return {
        names[client]: {column: number(values[at]) for column, values in columns.items()}
        for at, client in enumerate(reply.ids.tolist())
    }


def write_clients(
    folder: RunFolder, names: Sequence[str], member: IntArray, headline: Headline
) -> None:
    """Write ``clients.csv`` as the last round scored its clients. A client that was away, or did not
    answer, has no samples in it."""
    # From the row and not from the clients: a run that goes on after its end writes the same again,
    # also where other clients are there by then.
    row = folder.rows()[-1]
    scores = row.get(COLUMN)
    # A run that scores a sample of its clients.
    if scores is None:
        return
    pairs = [scores.get(name, (None, 0)) for name in names]
    samples = np.array([size for _, size in pairs], np.int64)
    values = np.array([np.nan if value is None else value for value, _ in pairs])
    columns: dict[str, Any] = {"test_samples": samples, headline.name: values}
    # Counts and not shares where there are any, since counts of clients add up.
    if headline == ACCURACY:
        correct = np.rint(np.nan_to_num(values) * samples).astype(np.int64)
        columns = {"test_samples": samples, "correct": correct}
    figures = row.get(FIGURES) or {}
    for column in dict.fromkeys(column for one in figures.values() for column in one):
        known = [figures.get(name, {}).get(column) for name in names]
        columns[column] = np.array([np.nan if value is None else value for value in known])
    folder.results.write_clients(names, member, columns)
