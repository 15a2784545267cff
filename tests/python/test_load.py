"""What `coterie.load`, and ``data`` of `coterie.run`, do with arguments that cannot be meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import coterie as ct
from coterie.errors import Code
from tests.refusals import refuses

FRAME = pd.DataFrame(
    {"age": [0.1, 0.2, 0.3, 0.4] * 6, "y": [30, 50] * 12, "client": ["a", "b"] * 12}
)
IID = {"kind": "iid", "clients": 3}


def run(data: Any, **options: Any) -> ct.Result:
    return ct.run("fedavg", data=data, model="mclr", rounds=1, engine="serial", **options)


@pytest.mark.parametrize(
    ("source", "options", "code", "path"),
    [
        (FRAME, {"path": "other.csv"}, "in-conflict", "data.path"),
        (FRAME, {"targets": "number"}, "unknown-choice", "targets"),
        (FRAME, {"frame": FRAME}, "unknown-key", "data.frame"),
        (pd.DataFrame, {}, "wrong-type", "source"),
        ({"source": FRAME, "path": "other.csv"}, {}, "in-conflict", "data.path"),
        ({"source": FRAME, "client": "age"}, {"client": "client"}, "in-conflict", "client"),
        ({"source": FRAME, 3: 4}, {}, "wrong-type", "table.3"),
        ("digits", {"targets": "numbers", "partition": IID}, "does-not-fit", "targets"),
        ("digits", {"partition": "iid"}, "wrong-type", "partition"),
        ("digits", {"partition": {**IID, 3: 4}}, "wrong-type", "partition.3"),
        ("digits", {"partition": {}}, "unknown-choice", "data.partition.kind"),
        ("digits", {"partition": IID, "root": 3}, "wrong-type", "root"),
        ("digits", {"partition": IID, "seed": "x"}, "wrong-type", "seed"),
        ("digits", {"partition": IID, "seed": 1.5}, "wrong-type", "seed"),
        ("digits", {"partition": IID, "seed": object()}, "wrong-type", "seed"),
        ("digits", {"partition": IID, "seed": -1}, "out-of-range", "seed"),
        ({"source": "digits", "partition": IID}, {"partition": IID}, "in-conflict", "partition"),
        (Path("t.csv"), {}, "wrong-type", "source"),
        (["t.csv"], {}, "wrong-type", "source"),
        (None, {}, "wrong-type", "source"),
        ("file", {"path": {"a.csv", "b.csv"}, "client": "client"}, "wrong-type", "data.path"),
    ],
)  # fmt: skip
def test_an_argument_of_load_is_refused(
    source: Any, options: dict[str, Any], code: Code, path: str
) -> None:
    with refuses(ct.ConfigError, code, path):
        ct.load(source, **options)


@pytest.mark.parametrize(
    ("data", "options", "code", "path"),
    [
        ({"source": FRAME, "seed": 3}, {}, "unknown-key", "data.seed"),
        ({"source": FRAME, "targets": "auto"}, {}, "unknown-key", "data.targets"),
        ({"source": FRAME, "path": "other.csv"}, {}, "in-conflict", "data.path"),
        ({"source": FRAME, "root": 3}, {}, "wrong-type", "root"),
        ({"source": FRAME, "partition": "natural"}, {}, "wrong-type", "partition"),
        ({"source": FRAME, 3: 4}, {}, "wrong-type", "table.3"),
        (FRAME, {"task": 3}, "wrong-type", "task"),
        (FRAME, {"task": []}, "wrong-type", "task"),
        (FRAME, {"task": dict}, "wrong-type", "task"),
        (FRAME, {"seed": object()}, "wrong-type", "seed"),
        ({"source": "digits", "partition": {**IID, 3: 4}}, {}, "wrong-type", "data.partition.3"),
    ],
)
def test_data_of_run_are_refused(data: Any, options: dict[str, Any], code: Code, path: str) -> None:
    with refuses(ct.ConfigError, code, path):
        run(data, **options)


def test_a_frame_is_a_source_in_a_table_too() -> None:
    data = ct.load({"source": FRAME, "features": ["age"], "partition": {"kind": "natural"}})
    assert data.names == ("a", "b")
    assert data.shape == (1,)
    # A column may have the name of an attribute of other frames.
    named = FRAME.rename(columns={"age": "column_names"})
    assert torch.equal(ct.load(named, features=["column_names"]).x, data.x)


def test_a_run_folder_names_the_file_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another folder may have another file of this name when the run starts."""
    for place, rows in (("here", FRAME), ("there", FRAME.iloc[:8])):
        (tmp_path / place).mkdir()
        rows.iloc[:4].to_csv(tmp_path / place / "a.csv", index=False)
        rows.iloc[4:].to_csv(tmp_path / place / "b.csv", index=False)
    monkeypatch.chdir(tmp_path / "here")
    options = {"client": "client", "features": ["age"], "label": "y"}
    data = ct.load("file", path=[Path("a.csv"), "b.csv"], **options)
    monkeypatch.chdir(tmp_path / "there")
    run(data, out=tmp_path / "run")
    experiment = ct.Experiment.from_toml(tmp_path / "run" / "config.toml")
    read = [str(tmp_path / "here" / name) for name in ("a.csv", "b.csv")]
    assert experiment.options("source")["path"] == read
    assert len(ct.resume(tmp_path / "run", rounds=2).rows) == 2


def test_a_task_of_numbers_learns_no_numbered_classes() -> None:
    """As classes, 30 and 50 are 0 and 1."""
    options = {"features": ["age"], "label": "y"}
    with refuses(ct.ConfigError, "does-not-fit", "targets"):
        run(ct.load(FRAME, **options), task="regression")
    error = run(ct.load(FRAME, targets="numbers", **options), task="regression").scores[0]
    assert 0 < error < 50
    assert run({"source": FRAME, **options}, task="regression").scores[0] == error
