"""What the outputs of a network mean, by the file `predict.json`.

Written by `coterie export`, next to `predict.py`; needs torch and NumPy, and no Coterie. `coterie
predict` computes with the same functions. A task is a dictionary: its `kind`, the names of its
`labels` or `targets`, and what its loss needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from coterie.data.rows.errors import DataError

TaskRecord = Mapping[str, Any]


def losses(task: TaskRecord, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of each row [n]: the less, the better a model fits a client."""
    kind = task["kind"]
    if kind == "classification":
        return F.cross_entropy(outputs, targets.long(), reduction="none")
    if kind in ("binary", "multilabel"):
        wanted = targets.to(outputs.dtype).reshape(len(outputs), -1)
        logits = outputs.reshape(len(outputs), -1)
        each = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        return each.mean(dim=1)
    error = targets.reshape(len(outputs), -1) - outputs.reshape(len(outputs), -1)
    # Outputs are predictions, in the units of the targets; losses are of scaled ones.
    scale = torch.tensor(task.get("scale", 1.0))
    if task["loss"] in ("squared", "huber"):
        scale = scale.square()
    return (_error_losses(task, error) / scale).mean(dim=1)


def _error_losses(task: TaskRecord, error: Tensor) -> Tensor:
    if task["loss"] == "squared":
        return error.square()
    if task["loss"] == "absolute":
        return error.abs()
    if task["loss"] == "huber":
        nothing = torch.zeros_like(error)
        return F.huber_loss(error, nothing, reduction="none", delta=task["delta"])
    return torch.maximum(task["q"] * error, (task["q"] - 1) * error)


def nearest_group(task: TaskRecord, outputs: Sequence[Tensor], targets: Tensor) -> int:
    """The group whose model has the least mean loss of its outputs for these targets; the first of
    equal ones."""
    means = [losses(task, one, targets).double().mean().item() for one in outputs]
    # NaN of a model that diverged is larger than any loss.
    known = [float("inf") if mean != mean else mean for mean in means]
    return known.index(min(known))


def placed_by_labels(rows: int) -> str:
    """How a new client came to its group, which so many of its rows chose."""
    return f"its labels in {rows} row{'' if rows == 1 else 's'}"


def columns_of(task: TaskRecord, outputs: Tensor) -> dict[str, list[Any]]:
    """Prediction and score of each row, by the names of their columns.

    Raises:
        DataError: if they are no numbers, as those of a model that diverged.
    """
    if not outputs.isfinite().all():
        got = "infinity or NaN as an output of a model"
        raise DataError("not-finite", "--data", found=got, allowed="rows like those of training")
    if task["kind"] == "regression":
        values = outputs.reshape(len(outputs), -1)
        if values.shape[1] == 1 and not task.get("series"):
            return {"prediction": values[:, 0].tolist()}
        names = task["targets"]
        return {f"prediction of {name}": values[:, at].tolist() for at, name in enumerate(names)}
    if task["kind"] == "multilabel":
        probability = torch.sigmoid(outputs.double())
        found: dict[str, list[Any]] = {}
        for at, name in enumerate(task["targets"]):
            found[f"prediction of {name}"] = (probability[:, at] > 0.5).long().tolist()
            found[f"probability of {name}"] = probability[:, at].tolist()
        return found
    labels = task["labels"]
    shares = _shares(task, outputs)
    # Of two equal shares the first: a probability of one half calls no row positive.
    chosen = shares.argmax(dim=1)
    columns: dict[str, list[Any]] = {
        "prediction": [labels[at] for at in chosen.tolist()],
        "score": shares.gather(1, chosen[:, None])[:, 0].tolist(),
    }
    if shares.shape[1] == 2:
        columns[f"probability of {labels[1]}"] = shares[:, 1].tolist()
    return columns


def _shares(task: TaskRecord, outputs: Tensor) -> Tensor:
    """The probability of each class, float64 [n, c]."""
    if task["kind"] == "classification":
        return outputs.double().softmax(dim=1)
    # In float32, as the task's own metrics have it.
    probability = torch.sigmoid(outputs.reshape(len(outputs))).double()
    return torch.stack([1 - probability, probability], dim=1)


def logits_of(task: TaskRecord, outputs: Tensor) -> list[float] | None:
    """The logit of the second of two classes for each row; None for other tasks."""
    if task["kind"] == "binary":
        return outputs.reshape(len(outputs)).double().tolist()
    if task["kind"] == "classification" and outputs.shape[1] == 2:
        return (outputs[:, 1] - outputs[:, 0]).double().tolist()
    return None


def calibrated(rule: Mapping[str, Any], logit: float) -> float:
    """The calibrated probability of a logit, by Platt's rule or an ascending function."""
    if rule["method"] == "platt":
        scaled = rule["slope"] * logit + rule["intercept"]
        return float(torch.sigmoid(torch.tensor(scaled, dtype=torch.float64)))
    return float(np.interp(logit, rule["x"], rule["y"]))
