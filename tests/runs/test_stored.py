"""The kinds of columns are those of the training files when the run began, whatever became of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import coterie as ct
from coterie.data.rows.reading import read_rows
from coterie.errors import CheckpointError, DataError
from coterie.experiment import check
from coterie.export.folder import export_run
from coterie.export.predictions import predict
from coterie.runs.run import run_config
from tests.refusals import refuses

SITES = ("007", "7")
CODES = ("01", "1B", "true")
NEW = "site,code,age\n007,01,50\n7,true,60\n9,1B,70\n"
EACH = 30


def rows_of(codes: tuple[str, ...] = CODES, age: int = 40) -> str:
    lines = ["site,code,age,note,y"]
    for at, site in enumerate(SITES):
        for row in range(EACH):
            code = codes[(row + at) % len(codes)]
            lines.append(f"{site},{code},{age + row + at},{row},{row % 2}")
    return "\n".join(lines) + "\n"


def tables(path: Path, **changes: Any) -> dict[str, Any]:
    return {
        "data": {
            "source": "file",
            "path": str(path),
            "features": "*",
            "client": "site",
            "columns": {"note": "identifier"},
            "partition": {"kind": "natural"},
        },
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "lr": 0.1},
        "train": {"rounds": 2, "clients_per_round": 2},
        "algorithm": {"name": "fedavg"},
        "engine": {"name": "serial"},
        **changes,
    }


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(rows_of())
    return path


def predicted(run: Path, folder: Path) -> dict[str, list[Any]]:
    new = folder / "new.csv"
    new.write_text(NEW)
    return {name: list(values) for name, values in predict(run, new, None).columns.items()}


def change_codes(path: Path) -> None:
    """A file that would make a number of the codes, and has another scale of ages."""
    path.write_text(rows_of(("1", "2", "3"), age=4000))


@pytest.mark.parametrize("what", [change_codes, Path.unlink], ids=["changed", "gone"])
def test_new_rows_are_read_by_what_the_run_stored(what: Any, table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run_config(check(tables(table)), run)
    before = predicted(run, tmp_path)
    assert before["client"] == ["007", "7", "9"]
    assert before["placed by"] == ["known client", "known client", "one model"]
    first = export_run(run, tmp_path / "first").folder
    result = ct.Result.open(run)
    what(table)

    assert predicted(run, tmp_path) == before
    assert list(result.predict(tmp_path / "new.csv").columns["score"]) == before["score"]
    assert len(ct.Result.open(run).groups) == len(SITES)
    again = export_run(run, tmp_path / "again").folder
    for name in (
        "columns.json",
        "group-0.safetensors",
        "groups.csv",
        "predict.json",
        "rows/table.py",
    ):
        assert (again / name).read_bytes() == (first / name).read_bytes(), name
    assert ct.Result.open(run).report().is_file()
    # What trains on the rows is refused in a line: other rows would be another run.
    with pytest.raises(DataError) as caught:
        ct.resume(run, rounds=3)
    assert caught.value.problems[0].path in {"data.path", "data.columns"}
    assert "\n" not in str(caught.value)


def test_the_kinds_of_all_columns_are_stored_and_an_export_has_those_of_inputs(
    table: Path, tmp_path: Path
) -> None:
    run_config(check(tables(table)), tmp_path / "run")
    record = json.loads((tmp_path / "run" / "columns.json").read_text())
    kinds = {"site": "identifier", "code": "category", "age": "number", "y": "category"}
    assert record["kinds"] == kinds
    assert record["training"]["kinds"] == {**kinds, "note": "identifier"}
    assert (record["client"], record["labels"], record["classes"]) == ("site", ["y"], ["0", "1"])
    out = export_run(tmp_path / "run").folder
    exported = json.loads((out / "columns.json").read_text())
    assert exported == {name: value for name, value in record.items() if name != "training"}


def test_the_same_rows_in_another_form_go_on(table: Path, tmp_path: Path) -> None:
    """As parquet in which codes are no numbers and numbers are text, and as CSV with semicolons."""
    run = tmp_path / "run"
    run_config(check(tables(table)), run)
    straight = tmp_path / "straight"
    longer = {"rounds": 4, "clients_per_round": 2}
    run_config(check(tables(table, train=longer)), straight)
    names = read_rows(table).names
    table.write_text(table.read_text().replace(",", ";"))
    assert read_rows(table).names == names
    resumed = ct.resume(run, rounds=4)
    assert resumed.rows[-1]["accuracy"] == ct.Result.open(straight).rows[-1]["accuracy"]
    assert (resumed.state.models == ct.Result.open(straight).state.models).all()


def test_clients_join_by_the_stored_kinds(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run_config(check(tables(table)), run)
    # A file in which each code is a number, and so is each site.
    new = pd.DataFrame({"site": [8] * 20, "code": [1] * 20, "age": range(20), "y": [0, 1] * 10})
    resumed = ct.resume(run, data=new, rounds=3)
    assert len(resumed.groups) == len(SITES) + 1
    new.to_csv(tmp_path / "new.csv", index=False)
    assert predict(run, tmp_path / "new.csv", None).columns["placed by"] == ["known client"] * 20


def test_predictions_that_need_training_rows_say_so(table: Path, tmp_path: Path) -> None:
    train = {"rounds": 2, "clients_per_round": 2, "hold_out": 0.6}
    run = tmp_path / "run"
    run_config(check(tables(table, train=train)), run)
    assert "calibrated probability of 1" in predict(run, table, None).columns
    rows = tmp_path / "new.csv"
    rows.write_text(NEW)
    table.write_text(rows_of(age=60))
    with refuses(DataError, "differs", "data.path"):
        predict(run, rows, None)


@pytest.mark.parametrize("content", ["{}", "[]", '{"rules": 3}', "no"])
def test_a_damaged_record_is_one_line(content: str, table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run_config(check(tables(table)), run)
    (run / "columns.json").write_text(content)
    with pytest.raises(CheckpointError) as caught:
        ct.Result.open(run)
    assert "\n" not in str(caught.value)
