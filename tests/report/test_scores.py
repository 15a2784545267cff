"""The table of how evenly clients are served."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.headline import Headline
from coterie.report.runs_table import scores_section
from coterie.report.series import series_of
from coterie.report.view import RunView
from coterie.runs.scores import last_scores


def row(value: float, adapted: float) -> dict[str, Any]:
    fairness = {"worst_tenth": value / 2, "spread": 0.1, "jain": 0.9}
    return {
        "round": 0,
        "accuracy": value,
        "accuracy_mean": value,
        "accuracy_fairness": fairness,
        "accuracy_adapted": adapted,
        "accuracy_adapted_mean": adapted,
        "accuracy_adapted_fairness": fairness,
    }


TABLES = {
    "algorithm": {"name": "fedavg"},
    "evaluate": {"adapt": {"epochs": 2, "layers": ["head"]}, "unseen": 0.2},
}


def run(seed: int, value: float) -> RunView:
    tables = {**TABLES, "seed": seed}
    rows = [row(value, value + 0.2), {"round": 1, "accuracy": None}]
    return RunView(f"run {seed}", rows, np.zeros(2, int), ("a", "b"), tables=tables)


def test_a_row_for_each_way_that_has_scores_with_means_over_seeds() -> None:
    [section] = scores_section(series_of([run(0, 0.5), run(1, 0.7)]))
    texts = [
        [cell if isinstance(cell, str) else cell[0] for cell in one] for one in section["rows"]
    ]
    # Unseen clients were not scored yet, so they have no row.
    assert texts == [
        ["fedavg", "accuracy", "60.0 %", "60.0 %", "30.0 %", "10.0 %", "0.900"],
        ["fedavg", "adapted", "80.0 %", "80.0 %", "30.0 %", "10.0 %", "0.900"],
    ]
    assert (
        "Adapted: the same clients and samples, with a copy of that model after 2 epochs on"
        in section["definitions"]
    )
    assert "of head alone." in section["definitions"]


def test_rows_of_earlier_versions_have_no_fairness() -> None:
    [found] = last_scores([{"round": 0, "accuracy": 0.5}], {}, Headline())
    assert found.texts == ["accuracy", "50.0 %", "-", "-", "-", "-"]


def test_nothing_before_the_first_evaluation() -> None:
    view = RunView("a", [{"round": 0, "accuracy": None}], np.zeros(1, int), ("a",))
    assert scores_section(series_of([view])) == []
