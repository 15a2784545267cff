"""What a run warns of: local training that diverges, and models that predict a single class."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core.groups import Groups
from coterie.core.served import Served
from coterie.core.task import Task
from coterie.data.population import Population
from coterie.methods.algorithm import method_of
from coterie.runs.spec import ModelOutputs, RunSpec
from coterie.terminal import warn

# Times the loss of the first round, from which on a loss grows out of bounds. Honest losses end
# below the first one, or rise to some times it where clients' data change.
_GROWN = 10.0
# By which such replies are refused, see `coterie.clients.validation`.
_REASONS = ("not finite", "magnitude")
# So many test samples show whether a model predicts a single class.
LOOKED_AT = 256


class DivergenceWatch:
    """Says once that a run diverges, unless some client attacks."""

    def __init__(self, lr: float, honest: bool = True) -> None:
        self.lr = lr
        self.honest = honest
        self.first: float | None = None
        self.said = False

    def warn_of(self, row: Mapping[str, Any], models: Tensor) -> None:
        """Warn of a round that diverges, by its row and the models after it."""
        line = self.server_line(row, models) or self.line(row)
        if line is not None and self.honest:
            warn(line)

    def server_line(self, row: Mapping[str, Any], models: Tensor) -> str | None:
        """What to tell where the step of the server diverges, since replies that are not finite
        are refused."""
        if self.said or bool(torch.isfinite(models).all()):
            return None
        self.said = True
        number = row["round"] + 1
        return (
            f"the server's step diverges: models of round {number} are not finite; lower server.lr"
        )

    def line(self, row: Mapping[str, Any]) -> str | None:
        """What to tell the user of a round, if anything. Updates that are not finite are refused,
        so its losses are those of the other clients."""
        what = self._what(row)
        if what is None or self.said:
            return None
        self.said = True
        return f"local training diverges: {what}; lower local.lr (currently {self.lr:g})"

    def _what(self, row: Mapping[str, Any]) -> str | None:
        number = row["round"] + 1
        refused = sum(row["refused"].get(reason, 0) for reason in _REASONS)
        if refused:
            return f"replies of round {number} are not finite or too large ({refused} in all)"
        loss = row["loss"]
        if loss is None:
            return None
        if not math.isfinite(loss):
            return f"the loss of round {number} is not finite"
        if self.first is None:
            self.first = loss
        if loss > _GROWN * self.first:
            return (
                f"the loss of round {number} is {loss:.3g}, and that of the first round was "
                f"{self.first:.3g}"
            )
        return None


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
    """A line where the models predict the same class for all test samples that are looked at,
    though these are of several."""
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
        f"the models predict class {int(found[0])} for all {len(rows)} test samples "
        f"({100 * share:.1f} % are of this class): more rounds, another local.lr, or scaled "
        "inputs may help"
    )


def predicted_classes(
    task: Task,
    population: Population,
    module: nn.Module,
    served: Served,
    owner: np.ndarray,
    rows: torch.Tensor,
) -> torch.Tensor:
    """The class that the model of its client, ``owner``, predicts for each of the samples ``rows``,
    int64 ``[n]``."""
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
