"""Metrics of every task against torchmetrics, on the pooled predictions of random federations.

torchmetrics imports all of transformers, so a test imports it when it runs, and not every process
that collects this file.
`tests.tasks.test_others` and `tests.tasks.test_regression` compare them with scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.core.task import Task
from coterie.tasks import binary, classification, multilabel, next_token, regression
from tests.tasks.federations import exact_net, federation, pooled, scored
from tests.tasks.test_others import PerToken
from tests.tasks.test_regression import FEDERATIONS

Reference = Callable[[Tensor, Tensor], Tensor]
every = pytest.mark.parametrize("seed", FEDERATIONS)


def check(
    population: ct.Population,
    net: nn.Module,
    task: Task,
    references: Mapping[str, Reference],
    within: Mapping[str, Reference] = {},
) -> None:
    """The sums of the clients, added, give what torchmetrics gives for all predictions together.

    Args:
        population: whose clients score.
        net: what is scored.
        task: fitted.
        references: outputs in float64, targets -> the metric of a name.
        within: the same of metrics that are exact but for a stated bound.
    """
    each = scored(population, net, task, "serial", None)
    together = {name: values.sum(axis=0) for name, values in each.items()}
    found = {metric.name: float(metric.value(together)) for metric in task.metrics}
    outputs, targets = pooled(population, net)
    for name, reference in references.items():
        expected = float(reference(outputs.double(), targets))
        assert found[name] == pytest.approx(expected, abs=1e-6), name
    for name, reference in within.items():
        expected = float(reference(outputs.double(), targets))
        assert abs(found[name] - expected) <= found[f"{name}_bound"] + 1e-6, name


@every
def test_classification(seed: int) -> None:
    from torchmetrics.functional import classification as of_classes

    rng = np.random.default_rng(seed)
    # All classes have test samples: torchmetrics counts a class without any where it is predicted.
    y = torch.tensor(rng.choice(3, size=90, p=[0.5, 0.3, 0.2]))
    task = classification(metrics=("balanced_accuracy", "macro_f1")).fitted(y, 3)

    def accuracy(average: Any) -> Reference:
        return lambda z, y: of_classes.multiclass_accuracy(z, y, num_classes=3, average=average)

    references: dict[str, Reference] = {
        "accuracy": accuracy("micro"),
        "balanced_accuracy": accuracy("macro"),
        "macro_f1": lambda z, y: of_classes.multiclass_f1_score(z, y, num_classes=3),
    }
    check(federation(rng, y, 3), exact_net(rng, 3), task, references)


@every
def test_binary(seed: int) -> None:
    from torchmetrics.functional import classification as of_classes
    from torchmetrics.functional import regression as of_numbers

    rng = np.random.default_rng(seed)
    y = torch.tensor(rng.random(90) < rng.uniform(0.2, 0.8)).long()

    def of_probability(metric: Callable[..., Tensor], **options: Any) -> Reference:
        return lambda z, y: metric(torch.sigmoid(z[:, 0]), y, **options)

    def balanced(z: Tensor, y: Tensor) -> Tensor:
        p = torch.sigmoid(z[:, 0])
        return (of_classes.binary_recall(p, y) + of_classes.binary_specificity(p, y)) / 2

    references: dict[str, Reference] = {
        "accuracy": of_probability(of_classes.binary_accuracy),
        "balanced_accuracy": balanced,
        "brier": of_probability(of_numbers.mean_squared_error),
        "ece": of_probability(of_classes.binary_calibration_error, n_bins=15),
    }
    within = {
        "auroc": of_probability(of_classes.binary_auroc),
        "average_precision": of_probability(of_classes.binary_average_precision),
    }
    check(federation(rng, y, 2), exact_net(rng, 1), binary().fitted(y, 2), references, within)


@every
def test_multilabel(seed: int) -> None:
    from torchmetrics.functional import classification as of_classes

    rng = np.random.default_rng(seed)
    y = torch.tensor(rng.random((90, 4)) < 0.4).float()

    def of_labels(metric: Callable[..., Tensor], **options: Any) -> Reference:
        return lambda z, y: metric(torch.sigmoid(z), y.long(), num_labels=4, **options)

    references = {
        "macro_f1": of_labels(of_classes.multilabel_f1_score, average="macro"),
        "micro_f1": of_labels(of_classes.multilabel_f1_score, average="micro"),
        "label_accuracy": of_labels(of_classes.multilabel_accuracy, average="micro"),
        "exact_match": of_labels(of_classes.multilabel_exact_match),
    }
    check(federation(rng, y), exact_net(rng, 4), multilabel().fitted(y, 0), references)


@every
@pytest.mark.parametrize("targets", [1, 3])
def test_regression(seed: int, targets: int) -> None:
    from torchmetrics.functional import regression as of_numbers

    rng = np.random.default_rng(seed)
    y = torch.tensor(rng.normal(size=(90, targets)), dtype=torch.float32)

    def rmse(z: Tensor, y: Tensor) -> Tensor:
        squared = of_numbers.mean_squared_error(z, y.double(), num_outputs=targets)
        return squared.sqrt().mean()

    references: dict[str, Reference] = {
        "mae": lambda z, y: of_numbers.mean_absolute_error(z, y.double()),
        "rmse": rmse,
        "r2": lambda z, y: of_numbers.r2_score(z, y.double(), multioutput="uniform_average"),
    }
    task = regression().fitted(y, 0)
    check(federation(rng, y), exact_net(rng, targets), task, references)


@every
def test_next_token(seed: int) -> None:
    from torchmetrics.functional import classification as of_classes
    from torchmetrics.functional.text import perplexity

    rng = np.random.default_rng(seed)
    y = torch.tensor(rng.integers(3, size=(90, 2)))
    y[rng.random((90, 2)) < 0.2] = -100

    def token_accuracy(z: Tensor, y: Tensor) -> Tensor:
        return of_classes.multiclass_accuracy(
            z.reshape(-1, 3), y.reshape(-1), num_classes=3, average="micro", ignore_index=-100
        )

    references: dict[str, Reference] = {
        "perplexity": lambda z, y: perplexity(z, y, ignore_index=-100),
        "token_accuracy": token_accuracy,
    }
    check(federation(rng, y, 3), PerToken(rng), next_token().fitted(y, 3), references)
