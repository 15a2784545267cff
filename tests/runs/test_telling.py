"""Columns that give the label away are named before a run trains on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tomli_w
import torch

from coterie.cli.main import invoke
from coterie.data import Population
from coterie.experiment import check
from coterie.runs.compose import compose
from coterie.runs.telling import telling_columns
from tests.data.test_tables import columns, write
from tests.runs.test_columns import tables


def test_a_second_label_is_named_with_what_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = columns()
    rng = np.random.default_rng(1)
    # As `num` of the heart disease table: 0, or one of several stages.
    table["stage"] = np.where(table["y"], rng.integers(1, 4, len(table["y"])), 0)
    path = write(tmp_path, table)
    compose(check(tables(path)))
    printed = capsys.readouterr().err
    assert "column stage: alone tells y in each of " in printed
    assert "leave it out: [data.encode] leave_out = ['stage']" in printed
    # No other column is accused, and what the line says is enough.
    assert printed.count("alone tells") == 1
    # To look at the data is the first that a user does, and a look without a network.
    (tmp_path / "c.toml").write_text(tomli_w.dumps(tables(path)))
    assert invoke(["data", "inspect", str(tmp_path / "c.toml")]) == 0
    assert "column stage: alone tells y in each of " in capsys.readouterr().err
    compose(check(tables(path, encode={"leave_out": ["stage"]})))
    assert "alone tells" not in capsys.readouterr().err


def test_advise_names_it_too_and_all_columns_that_it_took(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = columns()
    for number in range(12):
        table[f"measure{number}"] = np.random.default_rng(number).normal(size=len(table["y"]))
    table["stage"] = 2 * table["y"]
    path = write(tmp_path, table, "t.csv")
    options = ("--rounds", "2", "--seeds", "1", "--methods", "fedgroup", "--engine", "serial")
    assert invoke(["advise", path, *options, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert "column stage: alone tells y" in printed.err
    assert "measure11, stage" in printed.out


def lines_of(column: np.ndarray, y: np.ndarray, classes: int = 2) -> list[str]:
    """What is said of one feature of 60 training samples."""
    x = torch.tensor(column, dtype=torch.float32)[:, None]
    parts = np.arange(len(y)).reshape(2, -1)
    data = Population(x, torch.tensor(y), tuple(parts), tuple(parts[:, :0]), classes)
    return telling_columns(data, ["a"], "y")


def test_what_tells_and_what_only_helps() -> None:
    rng = np.random.default_rng(0)
    y = np.tile([0, 1], 30)
    score = rng.random(60) + y
    assert "take it out of data.features" in lines_of(score, y)[0]
    # A single row on the wrong side, a name of the row, and a constant tell nothing.
    assert not lines_of(np.where(np.arange(60) == 7, 0.0, score), y)
    assert not lines_of(rng.permutation(60), y)
    assert not lines_of(np.zeros(60), y)
    # Too few rows to say.
    assert not lines_of(score[:20], y[:20])


def test_a_number_in_another_unit_tells() -> None:
    rng = np.random.default_rng(0)
    celsius = rng.normal(20, 8, 60)
    y = celsius.astype(np.float32)
    assert lines_of(32 + 1.8 * celsius, y, classes=0)
    assert not lines_of(celsius + rng.normal(size=60), y, classes=0)
