"""The figures of single clients: with what they rest on, and next to predictions without a model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from coterie.core.target_scaling import TargetScaling
from coterie.core.task import Task
from coterie.data import Population
from coterie.data.from_python import load
from coterie.data.tabular.raw import Window
from coterie.headline import ACCURACY, Headline
from coterie.measures.client_table import ScoredClients
from coterie.measures.clients import client_columns, independent_share, reference_columns
from coterie.tasks import (
    Multilabel,
    binary,
    classification,
    multilabel,
    pooled_sums,
    regression,
)

AUROC = Headline("auroc", "higher", "", "AUROC")


def population(y: torch.Tensor, parts: list[tuple[list[int], list[int]]]) -> Population:
    train = tuple(np.array(one) for one, _ in parts)
    test = tuple(np.array(one) for _, one in parts)
    classes = 0 if y.is_floating_point() else int(y.max()) + 1
    return Population(torch.zeros(len(y), 2), y, train, test, classes=classes)


def wave(*shape: int) -> torch.Tensor:
    """Numbers without an order that anything depends on."""
    count = int(np.prod(shape))
    return torch.sin(1.7 * torch.arange(count) ** 1.3).reshape(shape)


TASKS = [
    (binary("auroc"), wave(60), torch.arange(60) % 2),
    (binary("average_precision"), wave(60), torch.arange(60) % 2),
    (binary("balanced_accuracy"), wave(60), torch.arange(60) % 2),
    (classification("balanced_accuracy").fitted(torch.arange(3), 3), wave(60, 3), None),
    (classification().fitted(torch.arange(3), 3), wave(60, 3), None),
    (regression(), wave(60, 1), wave(120)[60:]),
    (regression().fitted(wave(3, 2), 0), wave(60, 2), wave(240)[120:].reshape(60, 2)),
    (
        multilabel("label_accuracy").fitted(torch.eye(2), 0),
        wave(60, 2),
        (wave(2, 60).T > 0).long(),
    ),
]


@pytest.mark.parametrize(("task", "outputs", "targets"), TASKS)
def test_the_headline_of_every_task_lies_in_its_interval(
    task: Task, outputs: torch.Tensor, targets: torch.Tensor | None
) -> None:
    if targets is None:
        targets = torch.arange(60) % 3
    sums = {name: each[None] for name, each in pooled_sums(task, outputs, targets).items()}
    first = task.metrics[0]
    assert first.interval is not None
    low, high = first.interval(sums)
    value = first.value(sums)
    assert low <= value <= high
    assert low < high
    # Of four times as many samples it is about half as wide.
    more = {name: 4 * each for name, each in sums.items()}
    narrow_low, narrow_high = first.interval(more)
    assert (narrow_high - narrow_low) / (high - low) == pytest.approx(0.5, rel=0.1)
    columns = client_columns(task, sums)
    assert columns[f"{first.name}_low"][0] == low[0]
    assert not isinstance(task, Multilabel) or "smallest_class" not in columns


def test_a_client_says_how_many_are_positive_and_is_marked_where_they_are_few() -> None:
    y = torch.tensor([1] * 29 + [0] * 2 + [1] * 20 + [0] * 20)
    outputs = torch.linspace(3, -3, len(y))
    task = binary()
    each = [pooled_sums(task, outputs[part], y[part]) for part in (slice(0, 31), slice(31, 71))]
    sums = {name: np.stack([one[name] for one in each]) for name in each[0]}
    columns = client_columns(task, sums)
    assert columns["positives"].tolist() == [29, 20]
    assert columns["smallest_class"].tolist() == [2, 20]
    assert columns["auroc"].tolist() == [1.0, 1.0]
    table = ScoredClients(["few", "enough"], np.zeros(2, np.int64), np.array([31, 40]), columns)
    assert table.few.tolist() == [True, False]
    low, high = table.interval(AUROC)
    assert low[0] < 0.55 < low[1]
    assert high.tolist() == [1.0, 1.0]


def test_the_worst_client_is_the_one_that_is_worst_for_certain() -> None:
    """Not the one whose few samples happened to go wrong."""
    ends = {"auroc_low": [0.25, 0.6, 0.8], "auroc_high": [0.95, 0.85, 0.96]}
    columns = {"auroc": [0.5, 0.75, 0.9], **ends}
    arrays = {name: np.array(values) for name, values in columns.items()}
    table = ScoredClients("abc", np.zeros(3, np.int64), np.array([31, 50, 200]), arrays)
    assert table.worst(AUROC) == 1
    without = {"auroc": arrays["auroc"]}
    assert replace(table, columns=without).worst(AUROC) == 0
    errors = {"mae": arrays["auroc"], "mae_low": 1 - arrays["auroc_high"]}
    assert replace(table, columns=errors).worst(Headline("mae", "lower", "")) == 1


def test_samples_count_where_classes_are_not_counted() -> None:
    columns = {"correct": np.array([3.0, 9.0, 0.0])}
    table = ScoredClients("abc", np.zeros(3, np.int64), np.array([9, 10, 0]), columns)
    assert table.few.tolist() == [True, False, True]
    assert np.allclose(table.value(ACCURACY), [1 / 3, 0.9, np.nan], equal_nan=True)
    assert table.worst(ACCURACY) == 0


def test_the_best_constant_is_that_of_the_client_itself() -> None:
    y = torch.tensor([0, 0, 1, 0, 1, 1, 1, 0])
    data = population(y, [([0, 1, 2], [3, 3, 3]), ([4, 5], [6, 7]), ([0], [])])
    found = reference_columns(classification().fitted(y, 2), data)
    assert np.allclose(found["accuracy_majority"], [1.0, 0.5, np.nan], equal_nan=True)
    # A baseline of outputs is no predicted class, and one of calibration would say nothing.
    outputs = reference_columns(binary().fitted(y, 2), data)
    assert {"accuracy_majority", "log_loss_constant", "auroc_constant"} <= set(outputs)
    assert not any(name.startswith(("log_loss_majority", "ece")) for name in outputs)
    numbers = torch.tensor([1.0, 3.0, 5.0, 9.0])
    last = replace(
        population(numbers, [([0, 1], [2]), ([2], [3])]),
        naive={"persistence": torch.tensor([0.0, 0.0, 4.0, 4.0])},
    )
    found = reference_columns(regression(), last)
    assert found["mae_mean"].tolist() == [3.0, 4.0]
    assert found["mae_persistence"].tolist() == [1.0, 5.0]
    scaled = regression().scaled_by(TargetScaling((4.0,), (10.0,)))
    again = reference_columns(scaled, last)
    assert again.keys() == found.keys()
    for name, values in found.items():
        assert np.allclose(again[name], values, rtol=1e-6, atol=0, equal_nan=True), name


def test_forecasts_that_overlap_count_less(tmp_path) -> None:
    lines = ["station,time,a,y"]
    for station in "xy":
        lines += [f"{station},{hour},{hour % 7},{hour % 5}" for hour in range(200)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    window = Window(past=6, horizon=12, stride=3)
    data = load(
        "file",
        path=str(tmp_path / "t.csv"),
        features=["a", "y"],
        label="y",
        client="station",
        window=window,
        partition={"kind": "natural"},
    )
    assert independent_share(data) == 0.25
    task = regression()
    sums = {"absolute": [[90.0]], "squared": [[300.0]], "size": [40.0]}
    arrays = {name: np.array(values) for name, values in sums.items()}
    columns = client_columns(
        task,
        {**arrays, "target": arrays["absolute"], "target_squared": arrays["squared"]},
        independent_share(data),
    )
    quarter = {name: values / 4 for name, values in arrays.items()}
    assert task.metrics[0].interval is not None
    assert columns["mae"].tolist() == [2.25]
    assert columns["mae_high"] == task.metrics[0].interval(quarter)[1]
