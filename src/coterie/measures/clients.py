"""What each client's model makes of its own samples: figures, their intervals, and what they rest on."""

from __future__ import annotations

import numpy as np
import torch

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.task import KnowsClassCounts, Metric, Sums, Task
from coterie.data import Population
from coterie.headline import ACCURACY
from coterie.tasks import Binary, Regression, pooled_sums
from coterie.tasks.fitting import naive_outputs

OF_CLASSES = ("accuracy", "balanced_accuracy", "macro_f1")  # of predicted classes, not of outputs
# The shares of the classes are nearly calibrated, whatever they are worth: nothing to be better than.
NO_REFERENCES = ("ece_constant",)
MOST_REFERENCES = 1000  # clients for which predictions without a model are scored

Columns = dict[str, FloatArray | IntArray]


def client_columns(task: Task, sums: Sums, independent: float = 1.0, end: str = "") -> Columns:
    """The columns of ``clients.csv`` for sums over the samples of each client, ``[N, *shape]``.

    For each metric its value, and the ends of its interval where it has one; in place of an accuracy
    that is the headline the right answers, since counts of clients add up. ``positives`` of a binary
    task; ``smallest_class``, the samples of the rarest class, where classes are counted.

    Args:
        independent: as how many independent samples one counts in an interval, `independent_share`.
        end: what the names of all columns end with.
    """
    found: Columns = {}
    first, *others = _shown(task)
    if first.headline == ACCURACY:
        found["correct"] = sums["correct"].astype(np.int64)
    else:
        found[first.name] = first.value(sums)
    found |= _interval(first, sums, independent)
    counts = None
    if isinstance(task, KnowsClassCounts):
        counts = task.class_counts(sums)
    if counts is not None:
        if isinstance(task, Binary):
            found["positives"] = counts[:, 1].astype(np.int64)
            smallest = counts.min(axis=1)
        else:
            # A class that a client does not have is in none of its figures.
            smallest = np.where(counts > 0, counts, np.inf).min(axis=1)
            smallest = np.where(np.isfinite(smallest), smallest, 0)
        found["smallest_class"] = smallest.astype(np.int64)
    for metric in others:
        found[metric.name] = metric.value(sums)
        found |= _interval(metric, sums, independent)
    return {f"{name}{end}": values for name, values in found.items()}


def _shown(task: Task) -> list[Metric]:
    """The metrics of a task but for bounds of the errors of others, which say nothing of a client."""
    return [metric for metric in task.metrics if not metric.name.endswith("_bound")]


def independent_share(population: Population) -> float:
    """As how many independent samples a sample counts in an interval.

    Neighbouring forecasts ``h`` rows ahead share the errors of up to ``h`` rows. The variance of a mean
    of them is up to ``h`` times as large as that of independent ones, ``h / stride`` times if every
    ``stride``-th is there (Hansen and Hodrick, 1980).
    """
    table = population.table
    window = None if table is None else table.raw.origin.window
    if window is None:
        return 1.0
    return min(1.0, window.stride / window.horizon)


def _interval(metric: Metric, sums: Sums, independent: float) -> Columns:
    if metric.interval is None:
        return {}
    # Sums of so many fewer samples have the same value, and the wider interval.
    low, high = metric.interval({name: independent * values for name, values in sums.items()})
    return {f"{metric.name}_low": low, f"{metric.name}_high": high}


def reference_columns(task: Task, population: Population) -> Columns:
    """The metrics of predictions that need no model, on the test samples of each client: of the best
    constant for its own training samples (its majority class, or its mean), and of the
    population's, such as persistence. None where there are too many clients, or samples are lazy.
    """
    if population.lazy or population.clients > MOST_REFERENCES:
        return {}
    found: Columns = {}
    naive = naive_outputs(task, population)
    for client, (train, test) in enumerate(zip(population.train, population.test, strict=True)):
        if len(train) and len(test):
            rows = torch.from_numpy(test)
            constant = task.naive(population.y[torch.from_numpy(train)])
            outputs = {"": constant.expand(len(rows), *constant.shape)}
            outputs |= {name: values[rows] for name, values in naive.items()}
            for name, output in outputs.items():
                sums = pooled_sums(task, output, population.y[rows])
                for metric in _shown(task):
                    column = f"{metric.name}_{name or _best_constant(task, metric)}"
                    values = found.setdefault(column, np.full(population.clients, np.nan))
                    values[client] = metric.value(sums)
    return {
        name: values
        for name, values in found.items()
        if np.isfinite(values).any() and name not in NO_REFERENCES
    }


def _best_constant(task: Task, metric: Metric) -> str:
    """What the best prediction without inputs is called, which is measured as the model is."""
    if isinstance(task, Regression):
        return "mean"
    return "majority" if metric.name in OF_CLASSES else "constant"
