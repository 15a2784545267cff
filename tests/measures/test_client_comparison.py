"""The clients of several methods next to each other: means over seeds, what they rest on, the best."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from coterie.cli.main import invoke
from coterie.headline import ACCURACY, Headline
from coterie.measures.client_comparison import (
    client_rows,
    client_texts,
    group_labels,
    mean_rows,
    mean_table,
    row_columns,
    row_note,
)
from coterie.measures.client_table import ScoredClients
from coterie.measures.gains import client_gains, gain_of_runs
from coterie.measures.seeds import Split
from coterie.report.load import views_of
from coterie.report.sections import sections
from tests.sweep.cases import TABLES

AUROC = Headline("auroc", "higher", "", "AUROC")
NAMES = ["va", "swiss"]


def run(auroc: list[float], positives: list[int], member: list[int]) -> ScoredClients:
    """A run over two hospitals with 40 and 31 patients."""
    samples = np.array([40, 31])
    ill = np.array(positives)
    columns = {
        "auroc": np.array(auroc),
        "auroc_low": np.array(auroc) - 0.25,
        "auroc_high": np.array(auroc) + 0.125,
        "positives": ill,
        "smallest_class": np.minimum(ill, samples - ill),
        "auroc_majority": np.array([0.5, np.nan]),
    }
    return ScoredClients(NAMES, np.array(member), samples, columns)


METHODS = {
    "fedavg": [run([0.75, 1.0], [20, 29], [0, 0]), run([0.625, 0.5], [22, 30], [0, 0])],
    "ifca": [run([0.75, 0.5], [20, 29], [1, 0]), run([0.875, np.nan], [22, 30], [0, 0])],
}


def test_a_client_has_a_row_with_all_that_its_figures_rest_on() -> None:
    va, swiss = client_rows(METHODS, AUROC)
    assert (va.samples, va.positives, va.few) == ((40, 40), (20, 22), False)
    assert va.figures["fedavg"] == (0.6875, 0.4375, 0.8125)
    assert va.figures["ifca"][0] == 0.8125
    assert va.references == {"majority": 0.5}
    assert va.groups == {"ifca": "A A"}
    assert va.best == "ifca"
    # Two of 31 patients are healthy: marked, and nobody is the best there.
    assert (swiss.positives, swiss.few, swiss.best) == ((29, 30), True, "")
    assert swiss.figures["ifca"][0] == 0.5  # of the seed that has one
    assert swiss.groups == {"ifca": "B A"}
    texts = client_texts([va, swiss], AUROC)
    assert row_columns([va]) == [
        *("client", "test samples", "positive", "majority", "best"),
        *("fedavg", "ifca", "groups of ifca"),
    ]
    assert texts[0][:5] == ["va", "40", "20 to 22", "0.500", "ifca"]
    assert texts[0][5] == "0.688 (0.438 to 0.812)"
    assert texts[1][4] == "-"
    assert texts[1][5].startswith("0.750* (")
    assert client_texts([va], AUROC, intervals=False)[0][5] == "0.688"


def test_the_last_row_is_the_mean_of_clients_by_their_samples() -> None:
    rows = client_rows(METHODS, AUROC)
    [mean] = mean_rows(METHODS, rows, AUROC)
    assert mean.figures["fedavg"][0] == pytest.approx(
        (40 * 0.75 + 31 * 1.0 + 40 * 0.625 + 31 * 0.5) / 142
    )
    assert mean.figures["ifca"][0] == pytest.approx((40 * 0.75 + 31 * 0.5 + 40 * 0.875) / 111)
    assert (mean.samples, mean.positives, mean.best) == ((71, 71), (49, 52), "ifca")
    assert len(client_texts([*rows, mean], AUROC)[-1]) == len(row_columns(rows))
    assert mean_rows(METHODS, rows[:1], AUROC) == []


def test_a_metric_without_an_interval_claims_none() -> None:
    rmse = Headline("rmse", "lower", "", "RMSE")
    columns = {"rmse": np.array([2.0, 3.0])}
    clients = ScoredClients(NAMES, np.zeros(2, int), np.array([40, 31]), columns)
    assert "95 %" not in row_note({"x": [clients]}, client_rows({"x": [clients]}, rmse), rmse)
    assert "95 %" in row_note(METHODS, client_rows(METHODS, AUROC), AUROC)


def test_a_run_over_other_clients_is_left_out() -> None:
    others = ScoredClients("xyz", np.zeros(3, int), np.full(3, 40), {"auroc": np.full(3, 0.5)})
    rows = client_rows({**METHODS, "other": [others]}, AUROC)
    assert [(row.client, list(row.figures)) for row in rows] == [(n, list(METHODS)) for n in NAMES]


def test_errors_and_counts_of_right_answers_are_compared_too() -> None:
    def table(correct: float) -> ScoredClients:
        return ScoredClients(
            ["a"], np.zeros(1, np.int64), np.array([20]), {"correct": np.array([correct])}
        )

    [row] = client_rows({"x": [table(10), table(12)], "y": [table(12)]}, ACCURACY)
    assert row.figures["x"][0] == pytest.approx(0.55)
    assert (row.best, row.positives, row.groups) == ("y", None, {})
    mae = Headline("mae", "lower", "mm")
    low, high = (
        ScoredClients(["a"], np.zeros(1, np.int64), np.array([20]), {"mae": np.array([value])})
        for value in (1.0, 2.0)
    )
    assert client_rows({"x": [low], "y": [high]}, mae)[0].best == "x"
    assert client_rows({"x": []}, mae) == []


def test_a_prediction_without_a_model_can_be_the_best() -> None:
    mae = Headline("mae", "lower", "mm")

    def table(*values: float) -> ScoredClients:
        columns = {"mae": np.array(values), "mae_persistence": np.array([1.5, 3.0])}
        return ScoredClients("ab", np.zeros(2, np.int64), np.array([20, 60]), columns)

    methods = {"x": [table(2.0, 2.0)], "y": [table(1.75, 2.5)]}
    rows = client_rows(methods, mae)
    assert [row.best for row in rows] == ["persistence", "x"]
    [mean] = mean_rows(methods, rows, mae)
    assert mean.references == {"persistence": (20 * 1.5 + 60 * 3.0) / 80}
    assert mean.best == "x"


def test_clients_share_a_letter_if_they_share_a_group() -> None:
    one = ScoredClients("abcd", np.array([2, 0, 2, -1]), np.ones(4, np.int64), {})
    other = replace(one, member=np.array([0, 0, 1, 1]))
    assert group_labels([one, other]) == ["A A", "B A", "A B", "- B"]
    # Numbers mean something within a run, and nothing over seeds.
    assert group_labels([one]) == ["2", "0", "2", "-"]
    alone = ScoredClients("abcd", np.zeros(4, np.int64), np.ones(4, np.int64), {})
    assert group_labels([alone]) is None


def test_compare_and_report_have_the_same_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(tomli_w.dumps(TABLES))
    command = ["compare", "c.toml", "--algorithms", "fedavg,fedgroup", "--seeds", "0-1"]
    assert invoke([*command, "--out", "s"]) == 0
    with open("s/clients.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * 12
    text = Path("s/clients.md").read_text()
    assert "Differences from fedavg" in text
    section = next(one for one in sections(views_of(["s"])) if one["title"] == "Each client")
    assert section["columns"][0] == "client"
    for line, row in zip(lines[:12], section["rows"][:-1], strict=True):
        shown = str(row[section["columns"].index("fedavg")]).replace("\u00a0", " ")
        value = 100 * float(line["accuracy"])
        low, high = (100 * float(line[f"accuracy_{end}"]) for end in ("low", "high"))
        assert shown.rstrip("*").replace("*", "") == f"{value:.1f} ({low:.1f} to {high:.1f})"
        assert shown in text


def test_clients_that_each_seed_draws_anew_are_those_of_the_first_seed() -> None:
    """Means were over clients that have nothing in common but their number."""
    samples = np.array([1, 2], np.uint8)
    runs = {
        name: [
            replace(table, split=Split(samples[:1], samples[1:], 0.5, bytes([seed])))
            for seed, table in enumerate(tables)
        ]
        for name, tables in METHODS.items()
    }
    rows = client_rows(runs, AUROC)
    va, swiss = rows
    assert (va.positives, va.figures["fedavg"][0], va.groups) == ((20, 20), 0.75, {"ifca": "1"})
    assert swiss.figures["ifca"][0] == 0.5
    assert "first seed" in row_note(runs, rows, AUROC)
    assert "first seed" not in row_note(METHODS, rows, AUROC)
    # The clients' mean is still one over all seeds.
    [mean] = mean_rows(runs, rows, AUROC)
    [expected] = mean_rows(METHODS, rows, AUROC)
    assert mean.figures["ifca"][0] == expected.figures["ifca"][0]
    assert mean_table(runs["fedavg"]).columns["auroc"].tolist() == [0.75, 1.0]
    pairs = list(zip(runs["ifca"], runs["fedavg"], strict=True))
    assert client_gains(pairs, AUROC).ours.tolist() == [0.75, 0.5]
    assert np.isnan(client_gains(pairs, AUROC).half).all()
    # Of each seed's own clients: one of two ties in the first, one has no value in the second.
    gain = gain_of_runs(pairs, AUROC)
    assert gain is not None
    assert (gain.clients, gain.won, gain.lost, gain.seeds) == (3, 1, 1, 2)
    assert gain.mean == pytest.approx(gain_of_runs(same_pairs(), AUROC).mean)


def same_pairs() -> list[tuple[ScoredClients, ScoredClients]]:
    """The same runs with the same clients under each seed."""
    return list(zip(METHODS["ifca"], METHODS["fedavg"], strict=True))
