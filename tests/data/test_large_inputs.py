"""Numbers that float32 holds, and with which a network would become infinite, are one line that names
column and row: in training, in a prediction, in an export and on a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from coterie.cli.main import invoke
from coterie.errors import DataError
from coterie.experiment import check
from coterie.flower.node.data_sources import read_files
from coterie.runs.data import load_data
from coterie.runs.run import run_config
from tests.forks import without_coterie
from tests.refusals import refuses

PLACE = "column dose: not finite (3e+38 in row 7"
ROWS = 60


def frame(**large: float) -> pd.DataFrame:
    """A table of complete numbers, with a value in its row 7."""
    draws = np.random.default_rng(0)
    found = pd.DataFrame(
        {
            "age": draws.normal(50, 9, ROWS),
            "dose": draws.normal(0, 1, ROWS),
            "y": np.arange(ROWS) % 2,
            "client": [f"c{row % 4}" for row in range(ROWS)],
        }
    )
    for name, value in large.items():
        found[name] = found[name].astype(float)
        found.loc[7, name] = value
    return found


def tables(path: Path, **encode: Any) -> dict[str, Any]:
    data = {
        "source": "file",
        "path": str(path),
        "features": ["age", "dose"],
        "partition": {"kind": "natural"},
    }
    if encode:
        data["encode"] = encode
    return {
        "data": data,
        "model": {"name": "mlp", "hidden": 4},
        "train": {"rounds": 1, "clients_per_round": 4},
        "algorithm": {"name": "fedavg"},
        "engine": {"name": "serial"},
    }


def written(folder: Path, suffix: str = "csv", **large: float) -> Path:
    path = folder / f"t.{suffix}"
    if suffix == "csv":
        frame(**large).to_csv(path, index=False)
    else:
        frame(**large).to_parquet(path)
    return path


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_training(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path, suffix, dose=3e38)
    with refuses(DataError, "not-finite", path.name) as caught:
        load_data(check(tables(path)))
    assert PLACE in str(caught.value)
    # A column of the label, too.
    with refuses(DataError, "not-finite", f"t.{suffix}"):
        load_data(
            check(tables(written(tmp_path, suffix, y=-3e38)) | {"task": {"kind": "regression"}})
        )


@pytest.mark.parametrize("scaling", ["standard", "none"])
def test_training_on_encoded_columns(tmp_path: Path, scaling: str) -> None:
    """Scaled, one value of n training rows, beside which all others are zero, is sqrt(n - 1)
    deviations from the mean; unscaled it is refused."""
    config = check(tables(written(tmp_path, dose=3e38), scaling=scaling))
    if scaling == "none":
        with refuses(DataError, "out-of-range", "data"):
            load_data(config)
        return
    population = load_data(config)[2]
    deviations = np.sqrt(population.sizes("train").sum() - 1)
    assert float(population.x.abs().max()) == pytest.approx(deviations, rel=1e-5)


def test_prediction_and_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    run_config(check(tables(written(tmp_path))), run)
    assert invoke(["export", str(run)]) == 0
    new = str(written(tmp_path, dose=3e38))
    capsys.readouterr()
    code = invoke(["predict", str(run), "--data", new, "--out", str(tmp_path / "p.csv")])
    command = capsys.readouterr().err
    script = without_coterie(run / "export" / "predict.py", new, str(tmp_path / "q.csv"))
    code_of_script, _, error = script.ended()
    assert (code, code_of_script) == (3, 1)
    assert command.startswith("error: ")
    assert PLACE in command
    # The same line from both.
    assert error == command


def test_node(tmp_path: Path) -> None:
    written(tmp_path, "parquet", dose=3e38).rename(tmp_path / "train.parquet")
    options = {"label": "y"}
    with refuses(DataError, "not-finite", "train.parquet"):
        read_files(tmp_path, options, features=("age", "dose"))
    lists = pd.DataFrame({"dose": [[0.0, 1.0]] * 7 + [[1.0, 3e38]], "y": [0, 1] * 4})
    lists.to_parquet(tmp_path / "train.parquet")
    with refuses(DataError, "not-finite", "train.parquet"):
        read_files(tmp_path, {"input": "dose", "label": "y"})
