"""What a federation learns, `TASKS` by name: what targets are, the loss, and the metrics.

A task is a hashable record with the methods of `coterie.core.task.Task`. To add one, add a file to
this package and list it in `TASKS`.
"""

from collections.abc import Callable
from types import MappingProxyType

from coterie.core.task import Task
from coterie.tasks.binary import Binary, binary
from coterie.tasks.classification import CLASSIFICATION, Classification, classification
from coterie.tasks.fitting import (
    baseline,
    check_network,
    check_tokens,
    fit_task,
    headline_value,
    naive_scores,
    pooled_sums,
)
from coterie.tasks.multilabel import Multilabel, multilabel
from coterie.tasks.next_token import NextToken, next_token
from coterie.tasks.regression import Regression, regression

TASKS: MappingProxyType[str, Callable[..., Task]] = MappingProxyType(
    {
        "classification": classification,
        "binary": binary,
        "multilabel": multilabel,
        "regression": regression,
        "next_token": next_token,
    }
)

__all__ = [
    "CLASSIFICATION",
    "TASKS",
    "Binary",
    "Classification",
    "Multilabel",
    "NextToken",
    "Regression",
    "baseline",
    "binary",
    "check_network",
    "check_tokens",
    "classification",
    "fit_task",
    "headline_value",
    "multilabel",
    "naive_scores",
    "next_token",
    "pooled_sums",
    "regression",
]
