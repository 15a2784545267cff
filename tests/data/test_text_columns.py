"""Columns that are read as text: a run, `coterie data inspect` and the report say which, and why."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import coterie as ct
from coterie.cli.main import invoke
from coterie.data.tabular.text_columns import TextColumn, text_columns
from coterie.report.load import view_of

ROWS = 120
HEAD = ["age", "bone", "sex", "patient"]


def hospital(seed: int) -> pd.DataFrame:
    """A hospital whose rows have two numbers, a text and an identifier."""
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.integers(40, 60, ROWS) + 0.5,
            "bone": random.integers(0, 300, ROWS),
            "sex": random.choice(["f", "m"], ROWS),
            "patient": [f"P{seed}-{at}" for at in range(ROWS)],
            "y": random.integers(0, 2, ROWS),
        }
    )


def commas(tables: dict[str, pd.DataFrame]) -> None:
    """Decimal commas and a word in one of several files, whose fields stand between commas."""
    ages = tables["west"]["age"].map(lambda age: f"{age:.1f}".replace(".", ","))
    ages[0] = "unknown"
    tables["west"]["age"] = ages


def words(tables: dict[str, pd.DataFrame]) -> None:
    """Words among numbers, in one of several files."""
    bones = tables["west"]["bone"].astype(object)
    bones[::10] = "unknown"
    tables["west"]["bone"] = bones


@pytest.mark.parametrize(
    ("change", "name", "reason"),
    [
        (commas, "age", "numbers with a decimal comma"),
        (words, "bone", "12 of 240 are not numbers, such as 'unknown'"),
    ],
    ids=["decimal commas", "words"],
)
def test_run_inspect_and_report_say_the_same_of_numbers_that_are_text(
    change, name: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = {"north": hospital(1), "west": hospital(2)}
    change(tables)
    for place, table in tables.items():
        table.to_csv(tmp_path / f"{place}.csv", index=False)
    config = tmp_path / "run.toml"
    files = [f"{tmp_path}/{place}.csv" for place in tables]
    config.write_text(
        f"[data]\nsource = 'file'\npath = {files}\nfeatures = '*'\nclient = '(file)'\n"
        "[model]\nname = 'mclr'\n[local]\nepochs = 1\n[train]\nrounds = 1\n"
        "[algorithm]\nname = 'fedavg'\n[engine]\nname = 'serial'\n"
    )
    assert invoke(["data", "inspect", str(config)]) == 0
    inspected = capsys.readouterr()
    assert f"column {name}: " in inspected.err
    (line,) = [one for one in inspected.out.splitlines() if " read as text: " in one]
    assert line.startswith("2 of 3 columns, which make up ")
    assert reason in line
    assert "sex (2 different values)" in line
    assert line.endswith("left out: patient (text with 240 different values in 240 rows)")

    assert invoke(["run", str(config), "--out", str(tmp_path / "run")]) == 0
    assert line in capsys.readouterr().out.splitlines()

    columns = {one.name: one for one in view_of(tmp_path / "run").text_columns}
    assert list(columns) == [name, "patient", "sex"]
    assert reason in columns[name].why
    assert columns["patient"].inputs == 0
    assert columns["sex"] == TextColumn("sex", 2, "2 different values")
    assert invoke(["report", str(tmp_path / "run")]) == 0
    assert "Columns that are read as text" in (tmp_path / "run" / "report.html").read_text()


def test_a_table_of_numbers_has_no_line(tmp_path: Path) -> None:
    frame = hospital(1)[["age", "bone", "y"]].assign(client=["a", "b"] * (ROWS // 2))
    frame.loc[0, "age"] = np.nan
    data = ct.load(frame, partition={"kind": "natural"})
    result = ct.run("fedavg", data=data, model="mclr", rounds=1, engine="serial")
    run = result.save(tmp_path / "run")
    assert data.table is not None
    assert text_columns(data.table.encoder, data.table.raw.origin.why_text) == []
    assert list(view_of(run).text_columns) == []
    record = json.loads((run / "columns.json").read_text())
    assert record["training"]["why_text"] == {}


@pytest.mark.parametrize(("step", "said"), [(7, True), (0, False)], ids=["different", "repeats"])
def test_whole_numbers_that_differ_in_each_row_may_be_identifiers(
    step: int, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = hospital(1).assign(client=["a", "b"] * (ROWS // 2))
    numbers = np.random.default_rng(0).permutation(ROWS)
    frame["patient"] = 1000 + (numbers * step if step else numbers % 50)
    ct.load(frame, partition={"kind": "natural"})
    assert ("[data.columns] patient = 'identifier'" in capsys.readouterr().err) == said
    # Who lists the columns knows them.
    ct.load(frame, features=["age", "patient"], partition={"kind": "natural"})
    assert "identifier" not in capsys.readouterr().err
