"""A user's table from its file to a run's folder: the task that labels suggest, warnings, the
ledger, and the export."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
import torch

import coterie as ct
from coterie.cli.main import invoke
from coterie.data import Population
from coterie.errors import ConfigError, DataError
from coterie.experiment import check
from coterie.export import export_run
from coterie.runs.columns import telling_columns
from coterie.runs.compose import compose
from coterie.runs.run import run_config
from coterie.sweep.comparison import headline_for
from coterie.sweep.plan import make_plan
from tests.data.test_tables import columns, write
from tests.refusals import refuses


def tables(path: str, **data: Any) -> dict[str, Any]:
    """A configuration of a table."""
    return {
        "data": {
            "source": "file",
            "path": path,
            "features": "*",
            "partition": {"kind": "natural"},
            **data,
        },
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "lr": 0.1},
        "train": {"rounds": 2},
        "algorithm": {"name": "fedavg"},
        "engine": {"name": "serial"},
    }


def test_a_table_is_described_once_in_the_ledger(tmp_path: Path) -> None:
    config = check(tables(write(tmp_path, columns())))
    blocks = []
    run_config(config, tmp_path / "run", lambda result: blocks.append(result.blocks))
    described = [block for block in blocks[0] if block.what == "describe"]
    assert [block.up for block in described] == [True, False]
    assert described[0].fields == ("columns", "size")
    assert described[0].clients.tolist() == list(range(6))
    assert (described[0].bytes > 8 * 14).all()
    assert not any(block.what == "describe" for block in blocks[1])
    rows = [
        json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    ]
    assert rows[0]["transfers"]["up_bytes"] > rows[1]["transfers"]["up_bytes"]


def test_labels_that_look_like_numbers_are_a_regression(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = columns()
    table["y"] = np.linspace(0, 5, len(table["y"]))
    path = write(tmp_path, table)
    file = tmp_path / "c.toml"
    file.write_text(
        f'[data]\nsource = "file"\npath = "{path}"\nfeatures = "*"\n'
        '[data.partition]\nkind = "natural"\n[model]\nname = "mclr"\n[local]\nlr = 0.01\n'
        '[train]\nrounds = 1\n[engine]\nname = "serial"\n[algorithm]\nname = "fedavg"\n'
    )
    assert invoke(["run", str(file), "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr()
    assert "task.kind: labels look like numbers to predict, so this is a regression" in printed.err
    assert "MAE" in printed.out
    assert 'kind = "regression"' in (tmp_path / "run" / "config.toml").read_text()
    assert headline_for(make_plan(file)).name == "mae"
    # A guess that does not fit, and one that is overruled wrongly, are one line each.
    with refuses(ConfigError, "does-not-fit", "task.kind"):
        compose(check({**tables(path), "algorithm": {"name": "fedgsp"}}))
    with refuses(DataError, "wrong-type", "t.parquet") as caught:
        compose(check({**tables(path), "task": {"kind": "classification"}}))
    assert "\n" not in str(caught.value)


def test_widely_different_scales_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = columns()
    table["small"] = np.random.default_rng(0).normal(size=len(table["y"])) / 1000
    path = write(tmp_path, table)
    compose(check(tables(path)))
    assert "scale" not in capsys.readouterr().err
    compose(check(tables(path, encode={"scaling": "none"})))
    printed = capsys.readouterr().err
    assert "features differ widely in scale" in printed
    assert "(small)" in printed
    plain = {"small": table["small"], "large": 1e4 * table["small"], "y": table["y"]}
    path = write(tmp_path, {**plain, "client": table["client"]}, "p.parquet")
    compose(check(tables(path, features=["small", "large"])))
    assert "features differ widely in scale" in capsys.readouterr().err


def test_privacy_of_updates_does_not_cover_the_description(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tables(write(tmp_path, columns()))
    compose(check(config))
    assert "privacy" not in capsys.readouterr().err
    compose(check({**config, "privacy": {"epsilon": 8.0}}))
    assert "[privacy] protects updates, but not the clients' reports" in capsys.readouterr().err


def test_an_export_makes_the_inputs_of_a_table_without_coterie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = columns()
    config = check(tables(write(tmp_path, table), encode={"missing_flags": True}))
    run_config(config, tmp_path / "run")
    out = export_run(tmp_path / "run").folder
    assert "coterie." not in (out / "inputs.py").read_text().replace("`coterie export`", "")
    monkeypatch.syspath_prepend(out)
    made = runpy.run_path(str(out / "inputs.py"))["inputs"]
    names = ("age", "ward", "smokes", "seen")
    rows = [{name: table[name][at] for name in names} for at in range(20)]
    texts = [
        {name: "" if value is None else str(value) for name, value in row.items()} for row in rows
    ]
    composed = compose(config)
    expected = composed.population.x[:20]
    assert torch.allclose(made(rows), expected, rtol=0, atol=1e-6)
    assert torch.equal(made(texts), made(rows))
    # A value that is not there is a missing one, and a category that was never seen is a rare one.
    assert torch.isfinite(made([{"ward": "new"}, {}])).all()
    card = (out / "README.md").read_text()
    assert "columns age, ward, smokes, seen of a table" in " ".join(card.split())
    assert runpy.run_path(str(out / "load.py"))["FEATURES"][0] == "age"


def test_inspect_shows_features_and_numbers_to_predict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = columns()
    table["y"] = np.linspace(0, 5, len(table["y"]))
    table["same"] = [1.0] * len(table["y"])
    file = tmp_path / "c.toml"
    file.write_text(
        f'[data]\nsource = "file"\npath = "{write(tmp_path, table)}"\nfeatures = "*"\n'
        '[data.partition]\nkind = "natural"\n[model]\nname = "mclr"\n[train]\nrounds = 1\n'
        '[algorithm]\nname = "fedavg"\n'
    )
    assert invoke(["data", "inspect", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "8 features: age, ward = (missing), ward = a" in printed
    assert "column same: only the value 1 in training rows; left out" in printed
    assert "targets of the training samples: mean 2." in printed


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
    assert "column stage: determines y in " in printed
    assert "leave it out: [data.encode] leave_out = ['stage']" in printed
    # No other column is accused, and what the line says is enough.
    assert printed.count(": determines") == 1
    # To look at the data is the first that a user does, and a look without a network.
    (tmp_path / "c.toml").write_text(tomli_w.dumps(tables(path)))
    assert invoke(["data", "inspect", str(tmp_path / "c.toml")]) == 0
    assert "column stage: determines y in " in capsys.readouterr().err
    compose(check(tables(path, encode={"leave_out": ["stage"]})))
    assert ": determines" not in capsys.readouterr().err


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
    assert "column stage: determines y" in printed.err
    assert "measure11, stage" in printed.out


@pytest.mark.parametrize("folder", [False, True])
def test_a_run_in_python_warns_of_columns_once(
    folder: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pd.DataFrame({**columns(), "client": np.arange(len(columns()["y"])) % 3})
    table["stage"] = 2 * table["y"]
    roles = {"label": "y", "client": "client", "partition": {"kind": "natural"}}
    data = ct.load(table, features=["age", "stage"], **roles)
    out = tmp_path / "run" if folder else None
    ct.run(ct.fedavg(), data=data, model="mclr", rounds=1, engine="serial", out=out)
    assert capsys.readouterr().err.count("column stage: determines") == 1


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
    assert not lines_of(np.where(rng.random(60) < 0.1, 1 - y, y), y)
    assert not lines_of(np.zeros(60), y)
    # Too few rows to say.
    assert not lines_of(score[:20], y[:20])


@pytest.mark.parametrize("spread", [0.0, 0.9])
def test_a_copy_of_the_label_with_a_few_wrong_entries_tells(spread: float) -> None:
    rng = np.random.default_rng(0)
    y = np.tile([0, 1], 400)
    copy = y + spread * rng.random(800)
    copy[[3, 50, 601, 702]] = 1 - y[[3, 50, 601, 702]]
    assert len(lines_of(copy, y)) == 1
    assert len(lines_of(np.where(y == 1, 1.0, 5.0), y)) == 1
    assert len(lines_of(np.arange(800) % 3, np.arange(800) % 3, classes=3)) == 1
    # Of a rare class the copy has to name nearly all rows.
    rare = (np.arange(800) % 100 == 0).astype(int)
    assert len(lines_of(rare + spread * rng.random(800), rare)) == 1
    assert not lines_of(np.zeros(800) + spread * rng.random(800), rare)


def test_a_number_in_another_unit_tells() -> None:
    rng = np.random.default_rng(0)
    celsius = rng.normal(20, 8, 60)
    y = celsius.astype(np.float32)
    assert lines_of(32 + 1.8 * celsius, y, classes=0)
    assert not lines_of(celsius + rng.normal(size=60), y, classes=0)


def measured(rng: np.random.Generator, clients: int = 6) -> pd.DataFrame:
    """Patients of some hospitals: nothing is wrong."""
    rows = 40 * clients
    table = {
        "site": [f"site{at // 40}" for at in range(rows)],
        "pressure": rng.normal(130, 15, rows),
        "ward": rng.integers(1, 4, rows),
        "year": 2000 + np.arange(rows) // 40,
        "flag": (np.arange(rows) // 40 == 2).astype(int),
        "y": rng.integers(0, 2, rows),
    }
    return pd.DataFrame(table)


@pytest.mark.parametrize("features", ["*", ["pressure", "ward", "year", "flag"]])
def test_a_column_in_another_unit_at_one_client_is_named(
    features: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = measured(np.random.default_rng(0))
    path = tmp_path / "patients.csv"
    table.to_csv(path, index=False)
    config = check(tables(str(path), features=features, label="y", client="site"))
    compose(config)
    # Years follow one another, and a single ward has the flag: no wrong units.
    assert "unit" not in capsys.readouterr().err
    table.loc[table.site == "site5", "pressure"] *= 0.1333
    table.loc[table.index[3], "pressure"] = np.nan if features == "*" else 130.0
    table.to_csv(path, index=False)
    compose(config)
    [line] = [line for line in capsys.readouterr().err.splitlines() if "unit" in line]
    assert "column pressure" in line
    assert "site5" in line


def test_a_target_in_another_unit_at_one_client_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = measured(np.random.default_rng(0))
    table["y"] = np.random.default_rng(1).normal(37, 0.5, len(table))
    table.loc[table.site == "site2", "y"] = table.y * 1.8 + 32
    path = tmp_path / "patients.csv"
    table.to_csv(path, index=False)
    config = tables(str(path), features="*", label="y", client="site")
    compose(check({**config, "task": {"kind": "regression"}}))
    [line] = [line for line in capsys.readouterr().err.splitlines() if "unit" in line]
    assert "column y" in line
    assert "site2" in line
