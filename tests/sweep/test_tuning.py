"""Settings chosen by validation: which trials there are, what chooses, and what is said of it."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coterie.cli.main import invoke
from coterie.data import Population
from coterie.headline import Headline
from coterie.report.load import run_folders
from coterie.runs import data
from coterie.sweep.measured import Measured
from coterie.sweep.plan import SweepPlan, make_plan
from coterie.sweep.tuning import Tuned, best_trials, plan_trials, with_best
from tests.runs.calls import sweeps_here
from tests.sweep.cases import errors

RATES = "local.lr=0.001,0.1,0.5"
GROUPS = "fedgroup.groups=2,3"


def rows(file: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(file).read_text().splitlines()))


def chosen(
    plan: SweepPlan,
    figures: Mapping[tuple[str, str], float | None],
    headline: Headline = Headline(),
    failed: Mapping[tuple[str, str], str] = {},
) -> dict[str, Tuned]:
    """The choice by made-up figures of (algorithm, learning rate)."""
    trials = plan_trials(plan)
    ids = {(run.algorithm, str(dict(run.point)["local.lr"])): run.id for run in trials.runs}
    measured = {ids[key]: Measured(value, None, 0, 2.0, steps=5) for key, value in figures.items()}
    return best_trials(trials, measured, {ids[key]: why for key, why in failed.items()}, headline)


# --- the trials ---------------------------------------------------------------------------------


def test_trials_are_of_the_first_seed_and_are_scored_on_validation_samples(config: str) -> None:
    plan = make_plan(config, ["fedavg", "ifca"], [3, 0], [RATES])
    trials = plan_trials(plan)
    assert [run.name for run in trials.runs] == [
        f"{name}, local.lr={lr}, seed 3" for name in ("fedavg", "ifca") for lr in (0.001, 0.1, 0.5)
    ]
    assert all(run.tables["evaluate"]["validation"] == 0.2 for run in trials.runs)
    assert all("validation" not in run.tables["evaluate"] for run in plan.runs)
    assert not {run.id for run in trials.runs} & {run.id for run in plan.runs}


def test_an_option_of_one_method_is_tried_with_it_alone(config: str) -> None:
    trials = plan_trials(make_plan(config, ["fedavg", "fedgroup"], [0], [RATES, GROUPS]))
    names = [run.algorithm for run in trials.runs]
    assert (names.count("fedavg"), names.count("fedgroup")) == (3, 6)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--grid", "local.epochs=1,2"], "--tune: cannot be combined with --grid"),
        (["--attack", "sign_flip"], "--tune: cannot be combined with --attack"),
        (
            ["--set", "evaluate.validation=0.1"],
            "--tune: cannot be combined with evaluate.validation",
        ),
        (
            ["--set", "privacy.noise=1", "--set", "privacy.clip=1"],
            "--tune: every trial would consume privacy",
        ),
        (["--set", "shift.kind=swap_all"], "--tune: evaluate.validation: "),
        (["--tune", "seed=1,2"], "--tune: "),
        (["--tune", "algorithm.grups=2,3"], "--tune: not an option of any of the algorithms"),
    ],
)
def test_what_cannot_be_tuned_is_one_line(
    config: str, arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["--algorithms", "fedgroup", "--out", "s"]
    assert invoke(["compare", config, "--tune", RATES, *names, *arguments]) == 2
    found = errors(capsys)
    assert len(found) == 1
    assert found[0].startswith(line), found[0]
    assert not Path("s").exists()


# --- the choice ---------------------------------------------------------------------------------


def test_the_best_figure_is_taken_and_of_equal_ones_the_first(config: str) -> None:
    plan = make_plan(config, ["fedavg", "ifca"], [0, 1], [RATES])
    figures = {("fedavg", "0.001"): 0.2, ("fedavg", "0.1"): 0.5, ("fedavg", "0.5"): 0.5}
    figures |= {("ifca", "0.001"): 0.3, ("ifca", "0.1"): 0.1, ("ifca", "0.5"): 0.2}
    found = chosen(plan, figures)
    assert [(one.best, one.value) for one in found.values()] == [(1, 0.5), (0, 0.3)]
    assert [(one.trials, one.seconds, one.steps) for one in found.values()] == [(3, 6.0, 15)] * 2
    assert [one.edges for one in found.values()] == [(), ("local.lr = 0.001",)]
    errors_of = chosen(plan, figures, Headline("mae", "lower", ""))
    assert [one.best for one in errors_of.values()] == [0, 1]
    runs = with_best(plan, found).runs
    assert [run.name for run in runs] == [
        *(f"fedavg, local.lr=0.1, seed {seed}" for seed in (0, 1)),
        *(f"ifca, local.lr=0.001, seed {seed}" for seed in (0, 1)),
    ]
    assert {run.id for run in runs} < {run.id for run in plan.runs}


def test_a_trial_that_failed_or_diverged_is_skipped(config: str) -> None:
    plan = make_plan(config, ["fedavg"], [0], [RATES])
    figures = {("fedavg", "0.001"): float("nan"), ("fedavg", "0.1"): 0.1}
    found = chosen(plan, figures, failed={("fedavg", "0.5"): "out of memory"})["fedavg"]
    assert (found.best, found.trials) == (1, 3)
    assert found.skipped == (
        "fedavg, local.lr=0.001, seed 0: training diverged",
        "fedavg, local.lr=0.5, seed 0: out of memory",
    )


def test_an_algorithm_without_a_trial_that_counts_is_left_out(config: str) -> None:
    plan = make_plan(config, ["fedavg", "ifca"], [0], [RATES])
    found = chosen(plan, {("fedavg", "0.001"): None, ("ifca", "0.1"): 0.4})
    final = with_best(plan, found)
    assert (found["fedavg"].best, final.allowed) == (None, ("ifca",))
    assert final.refused == {"fedavg": "fedavg: every trial failed or diverged"}
    assert [run.name for run in final.runs] == ["ifca, local.lr=0.1, seed 0"]


def test_names_and_lists_have_no_edge(config: str) -> None:
    plan = make_plan(config, ["fedavg"], [0], ["local.optimizer=sgd,adam", "local.lr=0.1"])
    assert chosen(plan, {("fedavg", "0.1"): 0.4})["fedavg"].edges == ()


# --- the command --------------------------------------------------------------------------------


def test_the_best_of_the_trials_runs_with_all_seeds(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", config, "--algorithms", "fedavg,fedgroup", "--seeds", "0-1"]
    command += ["--tune", RATES, "--tune", GROUPS, "--out", "s"]
    with sweeps_here():
        assert invoke(command) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == "9 trials in s/tuning: 0 done, 0 begun"
    assert "fedavg 3, fedgroup 6" in printed
    trials = rows("s/tuning/runs.csv")
    for row in rows("s/table.csv"):
        ours = [trial for trial in trials if trial["algorithm"] == row["algorithm"]]
        best = max(ours, key=lambda trial: float(trial["accuracy"]))
        assert float(row["validation"]) == float(best["accuracy"])
        assert (row["local.lr"], row["runs"]) == (best["local.lr"], "2")
        assert int(row["trials"]) == len(ours)
        seconds = sum(float(trial["seconds"]) for trial in ours)
        assert float(row["trials_seconds"]) == pytest.approx(seconds)
        assert int(row["trials_steps"]) > float(row["steps"]) > 0
    assert len(run_folders(["s"])) == 4
    for name in ("table.md", "table.tex"):
        assert "trial seconds" in Path("s", name).read_text()
    # Twice the same command does nothing anew; another value is one more trial of each algorithm.
    with sweeps_here():
        assert invoke(command) == 0
        assert invoke(command) == 0
    assert "[1/" not in capsys.readouterr().out
    assert invoke(["report", "s"]) == 0
    assert "How settings were chosen" in Path("s/report.html").read_text()


def with_wrong_test_labels(population: Population) -> Population:
    y = population.y.clone()
    tested = np.concatenate(population.test)
    y[tested] = (y[tested] + 1) % 10
    return replace(population, y=y)


def test_samples_for_tests_do_not_decide(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    populate = data.populate
    monkeypatch.setattr(data, "populate", lambda *args: with_wrong_test_labels(populate(*args)))
    # On the wrong labels of the test samples, what learns nothing is the best.
    rates = "local.lr=0.000001,0.3"
    command = ["compare", config, "--algorithms", "fedavg", "--set", "train.rounds=6"]
    command += ["--set", "data.partition.groups=1"]
    with sweeps_here():
        assert invoke([*command, "--grid", rates, "--out", "grid"]) == 0
        assert invoke([*command, "--tune", rates, "--out", "tuned"]) == 0
    on_test = {row["local.lr"]: float(row["accuracy"]) for row in rows("grid/table.csv")}
    assert on_test["0.000001"] > on_test["0.3"]
    (row,) = rows("tuned/table.csv")
    assert row["local.lr"] == "0.3"
    assert float(row["accuracy"]) == on_test["0.3"]
    assert float(row["validation"]) > 0.5


def test_an_algorithm_whose_trials_diverge_ends_the_command_after_the_others(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", config, "--algorithms", "fedavg,fedprox", "--out", "s"]
    command += ["--set", "fedprox.mu=1e38"]
    with sweeps_here():
        assert invoke([*command, "--tune", "local.lr=0.1,0.2"]) == 8
    last = errors(capsys)[-3:]
    assert [line.split(",")[0] for line in last[:2]] == ["fedprox", "fedprox"]
    assert "every trial of fedprox" in last[2]
    done, left_out = rows("s/table.csv")
    assert (done["runs"], left_out["runs"], left_out["trials"]) == ("1", "0", "2")
    record = json.loads(Path("s/tuning.json").read_text())
    assert "fedprox, local.lr=0.1, seed 0: training diverged" in record["note"]
