"""The plan of a sweep: which runs there are, which options they have, what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

from coterie.cli.main import invoke
from coterie.errors import ConfigError
from coterie.runs.data import read_samples
from coterie.sweep import data_hash
from coterie.sweep.grid import read_seeds, split_values
from coterie.sweep.plan import SweepPlan, make_plan
from tests.refusals import refuses
from tests.runs.calls import sweeps_here
from tests.sweep.cases import TABLES, errors


def ids(plan: SweepPlan) -> list[str]:
    return [run.id for run in plan.runs]


def test_a_plan_crosses_algorithms_grid_and_seeds(config: str) -> None:
    plan = make_plan(
        config, ["fedavg", "fedgroup"], [0, 1], ["local.lr=0.1,0.2", "algorithm.groups=2,3"]
    )
    assert len(plan.points) == 4
    assert len(plan.cells) == 2 * 4 * 2
    assert (
        len(plan.runs) == 2 * 2 + 4 * 2
    )  # FedAvg has no groups, so two points of the grid are one run
    assert [run.name for run in plan.runs[:2]] == [
        "fedavg, local.lr=0.1, seed 0",
        "fedavg, local.lr=0.1, seed 1",
    ]
    assert plan.runs[-1].tables["algorithm"]["groups"] == 3
    assert plan.runs[-1].tables["local"]["lr"] == 0.2
    assert all(re.fullmatch("[0-9a-f]{12}", name) for name in ids(plan))


@pytest.mark.parametrize(
    ("jobs", "threads", "workers"), [(1, 1, 16), (2, 1, 8), (2, 4, 2), (16, 4, 1)]
)
def test_runs_side_by_side_share_the_cores(
    config: str, monkeypatch: pytest.MonkeyPatch, jobs: int, threads: int, workers: int
) -> None:
    monkeypatch.setattr("coterie.sweep.plan.cores", lambda: 16)
    overrides = ["engine.name=pool", f"engine.threads={threads}"]
    plan = make_plan(config, ["fedavg", "fedgroup"], [0, 1], ["local.lr=0.1,0.2"], overrides)
    beside = plan.side_by_side(jobs)
    assert [run.tables["engine"]["workers"] for run in beside.runs] == [workers] * 8
    assert ids(beside) == ids(plan)


def test_what_a_plan_defaults_to(config: str) -> None:
    plan = make_plan(config)
    assert (plan.algorithms, plan.seeds, plan.keys, plan.points) == (("fedgroup",), (0,), (), ((),))


@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("engine.name=pool", True),
        ("engine.workers=2", True),
        ("checkpoint.seconds=5", True),
        ("seed=1", False),
        ("local.lr=0.2", False),
        ("train.rounds=4", False),
        ("algorithm.groups=3", False),
        ("data.partition.clients=13", False),
    ],
)
def test_only_what_changes_results_makes_another_run(
    config: str, override: str, same: bool
) -> None:
    assert (ids(make_plan(config, overrides=[override])) == ids(make_plan(config))) is same


def test_other_data_make_another_run(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ids(make_plan(config))

    def changed(config: Any) -> Any:
        samples = read_samples(config)
        samples.x[0, 0, 0, 0] += torch.tensor(1.0)
        return samples

    monkeypatch.setattr(data_hash, "read_samples", changed)
    assert ids(make_plan(config)) != before


def test_another_partition_makes_another_run(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ids(make_plan(config))
    split_samples = data_hash.split_samples

    def changed(config: Any, samples: Any) -> Any:
        partition = split_samples(config, samples)
        return replace(partition, train=(partition.train[0][:-1], *partition.train[1:]))

    monkeypatch.setattr(data_hash, "split_samples", changed)
    assert ids(make_plan(config)) != before


def test_data_are_read_once_for_all_seeds(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(config: Any) -> Any:
        calls.append(config)
        return read_samples(config)

    monkeypatch.setattr(data_hash, "read_samples", counted)
    make_plan(config, ["fedavg", "ifca"], range(5), ["local.lr=0.1,0.2"])
    assert len(calls) == 1


def test_which_options_apply_to_which_algorithm(config: str) -> None:
    names = ["fedgroup", "ifca", "pacfl", "fedgsp", "fedprox", "fedgrouprox"]
    every = make_plan(
        config,
        names,
        overrides=["fedgsp.alpha=1.5", "algorithm.mu=0.2", "fedprox.mu=0.3"],
        values={"data.root": "x"},
    )
    table = {run.algorithm: run.tables["algorithm"] for run in every.runs}
    assert table["fedgroup"]["alpha"] == 3
    assert table["ifca"]["groups"] == 2  # the same option
    assert "groups" not in table["pacfl"]  # of the same name, with another default
    assert table["fedgsp"]["alpha"] == 1.5  # another thing of the same name
    assert (table["fedprox"]["mu"], table["fedgrouprox"]["mu"]) == (0.3, 0.2)
    assert table["fedgrouprox"]["pretrain_steps"] == 5
    assert every.runs[0].tables["data"]["root"].endswith("/x")


def test_a_grid_of_one_algorithm_is_not_of_the_others(config: str) -> None:
    plan = make_plan(config, ["fedavg", "fedprox"], [0], ["fedprox.mu=0.1,1"])
    assert [run.name for run in plan.runs] == [
        "fedavg, seed 0",
        "fedprox, fedprox.mu=0.1, seed 0",
        "fedprox, fedprox.mu=1, seed 0",
    ]


def test_a_table_that_is_called_like_an_algorithm_is_the_table(config: str) -> None:
    names = ["fedavg", "local"]
    plan = make_plan(config, names, [0], ["local.lr=0.1,0.2"], ["local.epochs=2"])
    assert [run.name for run in plan.runs] == [
        f"{name}, local.lr={lr}, seed 0" for name in names for lr in (0.1, 0.2)
    ]
    assert all(run.tables["local"]["epochs"] == 2 for run in plan.runs)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--algorithms", "fedavgg"],
            "--algorithms: unknown choice, got 'fedavgg'; .*did you mean 'fedavg'\\?",
        ),
        (["--algorithms", "fedavg,fedavg"], "--algorithms: a name occurs twice"),
        (["--algorithms", "fedavg,"], "--algorithms: unknown choice, got ''"),
        (["--algorithms", "fedavg,ifca", "--baseline", "ifc"], "--baseline: .*did you mean 'ifca'"),
        (["--figure", "maxx"], "--figure: .*did you mean 'max'"),
        (["--seeds", "4-0"], "--seeds: an empty range"),
        (["--seeds", "0-999999999"], "--seeds: an empty range, or too many seeds"),
        (["--seeds", "-1"], "--seeds: not seeds"),
        (["--seeds", "1,,2"], "--seeds: not seeds"),
        (["--grid", "local.lr"], "--grid: not a key and its values"),
        (["--grid", "local.lr=1,"], "--grid: not a key and its values"),
        (["--grid", "seed=1,2"], "--grid: .*use --seeds"),
        (
            ["--grid", "local.lr=1,2", "--grid", "local.lr=3"],
            "--grid: local.lr twice",
        ),
        (["--grid", "algorithm.grups=1"], "--grid: not an option of any.*did you mean 'groups'"),
        (["--grid", "local.lrr=1"], "c.toml: local.lrr: unknown key.*did you mean 'lr'"),
        (
            ["--grid", "algorithm.groups=0,2"],
            "algorithm.groups: out of range, got 0; .*\\(fedgroup\\)",
        ),
        (["--set", "algorithm.grups=1"], "--set: not an option of any.*did you mean 'groups'"),
        (["--target", "90"], "--target"),
        (["--jobs", "0"], "--jobs"),
        (["local.lr=0.2"], "did you mean '--set local.lr=0.2'"),
        (["other.toml"], "c.toml'; expected one CONFIG.toml"),
        (
            ["--seeds", "0-9998", "--grid", "local.lr=1,2"],
            "too many runs for a sweep, got 19998",
        ),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], words: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["compare", config, *arguments]) == 2
    (line,) = errors(capsys)
    assert re.search(words, line), line
    assert not Path("runs").exists()


def test_a_misspelt_option_is_refused_though_its_algorithm_does_not_run(config: str) -> None:
    Path(config).write_text(
        tomli_w.dumps({**TABLES, "algorithm": {"name": "fedgroup", "grups": 2}})
    )
    with refuses(ConfigError, "unknown-key", "c.toml: algorithm.grups"):
        make_plan(config, ["fedavg"])


def test_seeds_and_values() -> None:
    assert read_seeds("3,0-2, 2") == [3, 0, 1, 2]
    assert split_values("edc,madc") == ["edc", "madc"]


def test_methods_that_refuse_personal_layers_are_left_out_and_named(config: str) -> None:
    personal = ['personal.layers=["head"]', "model.name=mlp"]
    plan = make_plan(config, ["local", "fedavg", "fedper"], [0, 1], overrides=personal)
    assert list(plan.refused) == ["local", "fedper"]
    assert plan.allowed == ("fedavg",)
    assert [run.name for run in plan.runs] == ["fedavg, seed 0", "fedavg, seed 1"]
    assert all(line.startswith("personal.layers: ") for line in plan.refused.values())
    with pytest.raises(ConfigError) as caught:
        make_plan(config, ["local", "fedper"], overrides=personal)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "personal.layers"
    ] * 2
    assert not make_plan(config, ["local", "fedper"]).refused


def test_methods_that_cannot_be_scored_as_asked_are_left_out_and_named(config: str) -> None:
    local = make_plan(config, ["fedavg", "fedem"], overrides=["evaluate.local=true"])
    assert local.allowed == ("fedavg",)
    assert local.refused["fedem"].startswith("evaluate.local: clients predict with several models")
    adapt = ["evaluate.adapt.epochs=1"]
    adapted = make_plan(config, ["pooled", "fedrc", "fedavg"], overrides=adapt)
    assert adapted.allowed == ("fedavg",)
    assert adapted.refused["pooled"].startswith("evaluate.adapt: the method pools all data")
    adam = ["local.optimizer=adam", "local.keep_state=true"]
    kept = make_plan(config, ["fedavg", "ditto", "fedper"], overrides=adam)
    assert kept.allowed == ("fedavg", "fedper")
    assert kept.refused["ditto"].startswith("local.keep_state: clients train by their own rule")


def test_a_comparison_goes_on_without_a_method_that_refuses(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", config, "--out", str(tmp_path / "out"), "--algorithms", "fedper,fedavg"]
    command += ["--set", 'personal.layers=["head"]', "--set", "model.name=mlp"]
    command += ["--set", "train.rounds=1", "--set", "evaluate.adapt.epochs=1"]
    with sweeps_here():
        assert invoke(command) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[0].startswith("refused: personal.layers: the method itself sets what stays")
    assert lines[1].startswith("1 run in ")
    assert next(line for line in lines if line.startswith("fedper")).split()[1] == "refused"
    # The way of scoring is in the table, and what it is of below it.
    assert any(line.split()[:2] == ["fedavg", "adapted"] for line in lines)
    assert (
        "\nAdapted: the same clients and samples, with a copy of that model after 1 epoch"
        in printed
    )
    assert "its own layers (head) in it" in printed
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| fedper | refused |" in table
    assert "| fedavg | adapted |" in table
    assert (
        (tmp_path / "out" / "scores.csv")
        .read_text()
        .splitlines()[2]
        .startswith("fedavg,adapted,0.")
    )
