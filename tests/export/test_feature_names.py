"""What an export says of its inputs: their scale, and the names of their features."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coterie.experiment import check
from coterie.export import export_run
from coterie.export.card import describe_scaling, feature_names
from coterie.runs.run import run_config


def test_the_card_says_how_inputs_were_scaled() -> None:
    experiment = SimpleNamespace(name=lambda kind: "theirs")
    composed = SimpleNamespace(experiment=experiment)

    def said(scaling: str = "", real: bool = False, record: Any = None) -> str:
        source: Any = SimpleNamespace(record=record, real=real, composed=composed)
        population: Any = SimpleNamespace(scaling=scaling)
        return describe_scaling(source, population)

    assert said("pixels are divided by 16.") == "pixels are divided by 16."
    assert said() == "as the source `theirs` does it."
    assert said(real=True) == "as in every client's own code."
    words = {
        2.5: "each number has mean 0 and standard deviation 1 over all training rows.",
        1.0: "numbers are as in the table.",
    }
    for scale, expected in words.items():
        rules = [{"name": "age", "center": scale - 1, "scale": scale}, {"common": ["a", "b"]}]
        assert said(record={"rules": rules}) == expected


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a column for each feature."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "patients.parquet"
    columns = {
        "age": rng.normal(size=120),
        'bmi" <b>': rng.normal(size=120),
        "y": rng.integers(2, size=120),
        "client": np.repeat(np.arange(4), 30),
    }
    pq.write_table(pa.table(columns), path)
    return path


def test_load_py_and_the_card_name_the_features(patients: Path, tmp_path: Path) -> None:
    features = ["age", 'bmi" <b>']
    config = check(
        {
            "data": {
                "source": "file",
                "path": str(patients),
                "features": features,
                "partition": {"kind": "natural", "column": "client"},
            },
            "model": {"name": "mclr"},
            "train": {"rounds": 1, "clients_per_round": 2},
            "algorithm": {"name": "fedavg"},
            "engine": {"name": "serial"},
        }
    )
    run_config(config, tmp_path / "run")
    out = export_run(tmp_path / "run").folder
    loaded = runpy.run_path(str(out / "load.py"))
    assert loaded["FEATURES"] == tuple(features)
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "columns age, bmi&#34; &lt;b&gt;, in this order" in card
    assert "How inputs were scaled: pixels are divided by 255" in card


def test_a_column_of_lists_has_no_names(run: Path, tmp_path: Path) -> None:
    out = export_run(run, tmp_path / "out").folder
    assert "FEATURES" not in (out / "load.py").read_text()
    assert feature_names(None) == ()
