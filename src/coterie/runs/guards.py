"""What the reader of a run's figures should know at its end."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from coterie.core.groups import Groups
from coterie.core.served import Served
from coterie.core.task import Task
from coterie.data.population import Population
from coterie.methods.algorithm import method_of
from coterie.runs.outputs import ModelOutputs
from coterie.runs.spec import RunSpec
from coterie.terminal import warn

# So many test samples show whether a model predicts a single class.
LOOKED_AT = 256


def warn_of_one_class(spec: RunSpec, groups: Groups) -> None:
    """Warn where the models of a run predict a single class."""
    method = method_of(spec.algorithm)
    # What clients keep is a part of their models, which is not at hand here. What an algorithm with
    # a step of its own leaves with its clients is unknown.
    if method is None or method.local.keep is not None:
        return
    served = spec.algorithm.serve(groups)
    if served.personal is not None or served.shares is not None:
        return
    line = one_class_line(spec.task, spec.population, spec.network.module, served)
    if line is not None:
        warn(line)


def one_class_line(
    task: Task, population: Population, module: nn.Module, served: Served
) -> str | None:
    """A line where the models predict the same class for all test samples that are looked at.

    Returns:
        ``None`` where several classes are predicted, or the samples are of one class.
    """
    if population.lazy or not task.class_labels:
        return None
    held = [np.full(len(rows), client) for client, rows in enumerate(population.test)]
    owner = np.concatenate(held)
    if not len(owner):
        return None
    # Evenly over all clients, which stand one after another.
    looked_at = np.unique(np.linspace(0, len(owner) - 1, LOOKED_AT).astype(np.int64))
    rows = torch.from_numpy(np.concatenate(population.test)[looked_at])
    labels = population.y[rows]
    predicted = predicted_classes(task, population, module, served, owner[looked_at], rows)
    found = predicted.unique()
    if len(found) > 1 or len(labels.unique()) < 2:
        return None
    share = (labels == found[0]).double().mean().item()
    return (
        f"the models predict class {int(found[0])} for all of {len(rows)} test samples, of which "
        f"{100 * share:.1f} % have it: more rounds, another local.lr, or scaled inputs may help"
    )


def predicted_classes(
    task: Task,
    population: Population,
    module: nn.Module,
    served: Served,
    owner: np.ndarray,
    rows: torch.Tensor,
) -> torch.Tensor:
    """The class that the model of its client predicts for each sample, int64 ``[n]``.

    Args:
        owner: int64 ``[n]``, the client of each sample.
        rows: int64 ``[n]``, the samples.
    """
    # A model is loaded once for all of its clients' samples, and not for each client.
    vectors, model = served.for_clients(owner)
    outputs = ModelOutputs(module)
    classes = torch.empty(len(rows), dtype=torch.int64)
    for number in np.unique(model).tolist():
        mine = torch.from_numpy(model == number)
        found = task.predict(outputs.of(vectors[number], population.x[rows[mine]]))
        # A binary task predicts probabilities, a classification classes.
        if found.is_floating_point():
            found = (found > 0.5).long()
        classes[mine] = found
    return classes
