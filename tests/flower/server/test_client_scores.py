"""What each real client reached: in a row, in clients.csv, and over the same clients."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.core.engine import Reply
from coterie.core.task import Task, headline_of
from coterie.flower.server.scores import (
    client_scores,
    figures_of_clients,
    same_clients,
    write_clients,
)
from coterie.math.intervals import wilson
from coterie.runs.folder.store import RunFolder
from coterie.tasks import CLASSIFICATION, binary, regression

NAMES = ("north", "south", "east")
CONFIG: dict[str, Any] = {"seed": 0}


def reply(fields: dict[str, list[Any]], ids: list[int]) -> Reply:
    """Sums of clients that each scored one model."""
    arrays = {name: np.array(values, np.float64) for name, values in fields.items()}
    size = arrays.pop("size")
    return Reply(3, np.array(ids), {**{n: v[:, None] for n, v in arrays.items()}, "size": size}, "")


def written(folder: Path, task: Task, scores: dict[str, Any] | None) -> list[dict[str, str]]:
    """The lines of clients.csv of a run whose last row has these scores; none without the file."""
    run = RunFolder.create(folder / "run", CONFIG)
    more = {} if scores is None else {"client_scores": scores}
    run.append_round({"round": 0, **more})
    write_clients(run, NAMES, np.array([0, 1, 0]), headline_of(task))
    if not (run.path / "clients.csv").exists():
        return []
    with (run.path / "clients.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_row_has_the_headline_and_the_samples_of_those_that_answered() -> None:
    found = client_scores(NAMES, reply({"correct": [3, 0], "size": [4, 0]}, [0, 2]), CLASSIFICATION)
    # Without a test sample there is no accuracy.
    assert found == {"north": [0.75, 4], "east": [None, 0]}
    assert json.loads(json.dumps(found)) == found


def test_the_file_has_counts_of_right_answers_and_nobody_is_left_out(tmp_path: Path) -> None:
    lines = written(tmp_path, CLASSIFICATION, {"north": [2 / 3, 3], "east": [None, 0]})
    assert [(line["client"], line["test_samples"], line["correct"]) for line in lines] == [
        ("north", "3", "2"),
        ("south", "0", "0"),
        ("east", "0", "0"),
    ]


def test_another_headline_stands_under_its_own_name(tmp_path: Path) -> None:
    task = regression()
    name = headline_of(task).name
    lines = written(tmp_path, task, {"north": [1.5, 3], "south": [0.25, 2]})
    assert [float(line[name]) for line in lines[:2]] == [1.5, 0.25]
    assert (lines[2]["test_samples"], lines[2][name]) == ("0", "nan")


def test_a_real_client_has_its_interval_and_its_counts_too(tmp_path: Path) -> None:
    task = binary("accuracy")
    sums = {name: np.zeros((2, *shape)).tolist() for name, shape in task.sums}
    sums |= {"correct": [30, 0], "answers": [[1, 1, 0, 29], [0, 0, 0, 0]], "size": [31, 0]}
    found = figures_of_clients(NAMES, reply(sums, [0, 2]), task)
    assert json.loads(json.dumps(found)) == found
    low, high = wilson(np.array(30 / 31), np.array(31.0))
    assert found["north"] == {
        "accuracy_low": float(low),
        "accuracy_high": float(high),
        "positives": 29.0,
        "smallest_class": 2.0,
    }
    assert found["east"]["accuracy_low"] is None
    run = RunFolder.create(tmp_path / "run", CONFIG)
    scores = {"north": [30 / 31, 31], "east": [None, 0]}
    run.append_round({"round": 0, "client_scores": scores, "client_figures": found})
    write_clients(run, NAMES, np.array([0, 1, 0]), headline_of(task))
    table = run.results.clients()
    assert table is not None
    assert table.few.tolist()[0]
    assert np.allclose(table.interval(headline_of(task))[0], [low, np.nan, np.nan], equal_nan=True)
    # A forecaster's errors depend on each other in a way that only the client knows.
    numbers = {
        "absolute": [[1.0]],
        "squared": [[1.0]],
        "target": [[1.0]],
        "target_squared": [[1.0]],
    }
    assert figures_of_clients(NAMES, reply({**numbers, "size": [3]}, [0]), regression()) == {}


def test_a_run_without_scores_of_single_clients_has_no_file(tmp_path: Path) -> None:
    assert written(tmp_path, CLASSIFICATION, None) == []


def test_nobody_answered(tmp_path: Path) -> None:
    lines = written(tmp_path, CLASSIFICATION, {})
    assert [line["test_samples"] for line in lines] == ["0", "0", "0"]


def test_a_client_without_a_score_in_some_round_is_not_among_the_same_ones() -> None:
    rows = [
        {"round": 0, "client_scores": {"a": [0.5, 10], "b": [None, 0], "c": [1.0, 30]}},
        {"round": 1},
        {"round": 2, "client_scores": {"a": [0.9, 10], "b": [0.1, 5], "c": [0.9, 30]}},
    ]
    found = same_clients(rows)
    assert (found.clients, found.away) == (2, True)
    assert found.values == pytest.approx({0: 0.875, 2: 0.9})
