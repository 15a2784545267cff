"""Who holds a row: two files are two clients, and no client's name means that there is none."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from coterie.errors import DataError
from coterie.experiment import check
from coterie.export.folder import export_run
from coterie.export.joining import read_joining
from coterie.export.predictions import predict
from coterie.runs.compose import compose
from coterie.runs.data import read_record
from coterie.runs.run import run_config
from tests.data.test_rows_kinds import config, exported_predictions, population, rows_of, text
from tests.refusals import refuses


def table(folder: Path, name: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text(path.parent, rows_of(["a"]).replace("\na,", "\n").replace("site,", ""), path.name)
    if path.suffix == ".parquet":
        pd.read_csv(path).to_parquet(path)
    return str(path)


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["a.csv", "b.csv"], ("a", "b")),
        (["s1/data.csv", "s2/data.csv"], ("s1/data", "s2/data")),
        (["s1/x/data.csv", "s2/x/data.csv", "c.csv"], ("c", "s1/x/data", "s2/x/data")),
        (["a.csv", "a.parquet"], ("a.csv", "a.parquet")),
        (["s1/a.csv", "s1/a.parquet", "s2/a.csv"], ("s1/a.csv", "s1/a.parquet", "s2/a.csv")),
        (["a.csv", "a.parquet", "a.csv.csv"], ("DIR/a.csv", "DIR/a.parquet", "a.csv")),
    ],
)
def test_two_files_are_two_clients(
    tmp_path: Path, files: list[str], names: tuple[str, ...]
) -> None:
    made = population([table(tmp_path, name) for name in files], client="(file)")
    expected = sorted(name.replace("DIR", tmp_path.name) for name in names)
    assert sorted(made.names) == expected
    assert [len(rows) for rows in made.train] == [len(made.train[0])] * len(files)


def test_one_file_twice_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path, "a.csv")
    with refuses(DataError, "in-conflict", "data.path"):
        population([path, path], client="(file)")


def clients_of(run: Path, data: str, out: Path) -> set[str]:
    """The clients of new rows, by `coterie predict` and by `predict.py` of the export alike."""
    code, error = exported_predictions(run / "export", data, out)
    assert code == 0, error
    found = predict(run, data, None).columns["client"]
    with out.open(newline="", encoding="utf-8") as file:
        assert [row["client"] for row in csv.DictReader(file)] == found
    return set(found)


def test_predictions_and_new_clients_of_files_that_share_a_name(tmp_path: Path) -> None:
    files = [table(tmp_path, f"{site}/data.csv") for site in ("s1", "s2")]
    experiment = check(config(files, client="(file)"))
    run = tmp_path / "run"
    run_config(experiment, run)
    export_run(run, run / "export")
    new = table(tmp_path, "s3/data.csv")
    assert clients_of(run, files[1], tmp_path / "p.csv") == {"s2/data"}
    assert clients_of(run, new, tmp_path / "p.csv") == {"s3/data"}
    assert read_joining(new, compose(experiment), read_record(run)).names == ("s3/data",)


def test_a_client_that_is_called_new_is_no_newcomer(tmp_path: Path) -> None:
    path = text(tmp_path, rows_of(["a", "new"]))
    experiment = check(config(path))
    run = tmp_path / "run"
    run_config(experiment, run)
    export_run(run, run / "export")
    nobody = text(tmp_path, "site,code,age\nnew,A,50\n,A,60\n", "nobody.csv")
    assert clients_of(run, nobody, tmp_path / "p.csv") == {"new", "(new)"}
    placed = predict(run, nobody, None).columns["placed by"]
    assert placed[0] == "known client" != placed[1]


def test_a_client_that_is_called_new_joins(tmp_path: Path) -> None:
    path = text(tmp_path, rows_of(["a", "b"]))
    experiment = check(config(path))
    run_config(experiment, tmp_path / "run")
    record = read_record(tmp_path / "run")
    new = text(tmp_path, rows_of(["new"]), "new.csv")
    assert read_joining(new, compose(experiment), record).names == ("new",)
    nobody = text(tmp_path, rows_of(["new", ""]), "nobody.csv")
    with refuses(DataError, "missing", "--data"):
        read_joining(nobody, compose(experiment), record)
