"""A sweep over shares of attackers, and its chart."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from coterie.cli.main import invoke
from coterie.report.attack_chart import attack_chart
from coterie.sweep.comparison import Row, SweepTable
from tests.runs.calls import sweeps_here
from tests.sweep.cases import errors


def test_honest_clients_are_compared_over_shares_of_attackers(config: str) -> None:
    arguments = ["compare", config, "--algorithms", "fedavg,ifca", "--seeds", "0-1", "--out", "s"]
    attack = ["--attack", "sign_flip", "--attackers", "0,0.25", "--set", "attack.factor=5"]
    with sweeps_here():
        assert invoke([*arguments, *attack]) == 0
    with (Path("s") / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["algorithm"], row["attack.kind"], row["attack.share"]) for row in rows] == [
        ("fedavg", "sign_flip", "0"),
        ("fedavg", "sign_flip", "0.25"),
        ("ifca", "sign_flip", "0"),
        ("ifca", "sign_flip", "0.25"),
    ]
    chart = (Path("s") / "attack.svg").read_text()
    assert "accuracy of honest clients, %" in chart
    assert "ifca, sign_flip" in chart
    # Twice the same command does nothing anew.
    assert invoke([*arguments, *attack]) == 0


def test_an_attack_that_is_none_is_named(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["compare", config, "--attack", "sign_flop", "--out", "s"]) == 2
    assert errors(capsys)[0].startswith("c.toml: attack.kind: unknown choice, got 'sign_flop'")
    assert not Path("s").exists()


def test_shares_without_an_attack_are_refused(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["compare", config, "--attackers", "0.2", "--out", "s"]) == 2
    assert errors(capsys) == ["--attackers: requires --attack"]
    assert not Path("s").exists()


def test_without_an_attack_there_is_no_chart(config: str) -> None:
    with sweeps_here():
        assert invoke(["compare", config, "--algorithms", "fedavg", "--out", "s"]) == 0
    assert not (Path("s") / "attack.svg").exists()


def test_a_curve_for_each_algorithm_and_attack() -> None:
    figures = [("ifca", "0.1", 0.8, 0.05), ("ifca", "0.2", 0.6, None), ("fedavg", "0.1", 0.3, 0.0)]
    figures.append(("fedavg", "0.2", None, None))
    rows = tuple(
        Row(name, ("alie", share), 1, 1, mean, sd, None, 0, None, None, None)
        for name, share, mean, sd in figures
    )
    spec = attack_chart(
        SweepTable(("attack.kind", "attack.share"), (0,), "ifca", None, "max", rows)
    )
    (data,) = spec["datasets"].values()
    assert [row["value"] for row in data] == [80.0, 60.0, 30.0]
    assert [row["attackers"] for row in data] == [10.0, 20.0, 10.0]
    assert (data[0]["low"], data[0]["high"]) == pytest.approx((75.0, 85.0))
    assert {row["curve"] for row in data} == {"ifca, alie", "fedavg, alie"}
