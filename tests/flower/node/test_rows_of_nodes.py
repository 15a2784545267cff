"""What the files of nodes say, by the names of columns and never by their places."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coterie.data.sources.files import ColumnOption, DataForm
from coterie.data.tabular.raw import Encode
from coterie.errors import DataError
from coterie.flower.node.client_data import ClientData
from coterie.flower.node.client_table import read_client_table
from coterie.flower.node.data_sources import read_files
from coterie.flower.node.node_source import read_node_data
from coterie.flower.node.site_checks import check_data
from tests.refusals import refuses

FEATURES = ("age", "weight")
ONE = "age,weight,outcome\n64,85,0\n65,85,1\n"
OTHER = "outcome,weight,age\n0,85,64\n1,85,65\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("text", [ONE, OTHER], ids=["age first", "weight first"])
@pytest.mark.parametrize("features", [FEATURES, None])
def test_inputs_are_in_the_order_of_the_server(
    tmp_path: Path, text: str, features: tuple[str, ...] | None
) -> None:
    file = write(tmp_path / "p.csv", text)
    (x, _), _ = read_files(file, {"label": "outcome"}, None, features)
    assert x.mean(axis=0).tolist() == [64.5, 85.0]
    (x, _), _ = read_files(file, {"label": "outcome"}, None, ("weight", "age"))
    assert x.mean(axis=0).tolist() == [85.0, 64.5]


def test_other_names_and_other_test_columns_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", ONE)
    write(tmp_path / "test.csv", ONE.replace("weight", "height"))
    with refuses(DataError, "not-found", "test.csv"):
        read_files(tmp_path, {"label": "outcome"}, None, FEATURES)
    with refuses(DataError, "differs", "test.csv"):
        read_files(tmp_path, {"label": "outcome"})
    with refuses(DataError, "does-not-fit", "train.csv"):
        read_files(tmp_path, {"label": "outcome"}, None, ())


def test_classes_with_numbers_for_names_are_names(tmp_path: Path) -> None:
    """Of the classes 1, 2 and 3 the label 1 is the first; of classes with words, 1 is a place."""
    file = write(tmp_path / "p.csv", "x0,label\n5,1\n6,2\n7,1\n8,2\n")
    (_, y), _ = read_node_data({"data": str(file)}, ("1", "2", "3"), ("x0",))
    assert sorted(set(y.tolist())) == [0, 1]
    (_, y), _ = read_node_data({"data": str(file)}, ("a", "b", "c"), ("x0",))
    assert sorted(set(y.tolist())) == [1, 2]


def test_columns_of_a_table_are_found_by_name_and_read_by_the_servers_kinds(tmp_path: Path) -> None:
    columns: dict[str, ColumnOption] = {"code": ["01", "1B"], "age": "number"}
    form = DataForm((), ("no", "yes"), columns=columns)
    texts = [
        "code,age,label\n01,64,no\n01,66,no\n1B,65,yes\n",
        "label,age,code\nno,64,01\nno,66,01\nyes,65,1B\n",
    ]
    found = [
        read_client_table(write(tmp_path / f"{at}.csv", text), {}, form, Encode()).train
        for at, text in enumerate(texts)
    ]
    assert np.array_equal(found[0][0].values, found[1][0].values)
    assert np.array_equal(found[0][1], found[1][1])
    # A site that has 01 alone reads the same code.
    alone = write(tmp_path / "alone.csv", "code,age,label\n01,64,no\n")
    assert read_client_table(alone, {}, form, Encode()).train[0].values.tolist() == [[0.0, 64.0]]


def test_parquet_and_csv_of_a_node_say_the_same(tmp_path: Path) -> None:
    file = write(tmp_path / "p.csv", OTHER)
    table = pa.table({"weight": [85, 85], "outcome": [0, 1], "age": [64.0, 65.0]})
    pq.write_table(table, tmp_path / "p.parquet")
    form = DataForm((2,), ("well", "ill"), features=FEATURES)
    found = []
    for path in (file, tmp_path / "p.parquet"):
        options = {"data": str(path), "label": "outcome"}
        train, test = read_node_data(options, form.classes, FEATURES)
        found.append(ClientData.of(train, test, form))
    assert found[0].train[0].tolist() == found[1].train[0].tolist()
    assert found[0].train[1].tolist() == found[1].train[1].tolist()


def test_what_a_check_says_of_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = 120
    told = ["ill" if row % 2 else "well" for row in range(rows)]
    table = pd.DataFrame({"age": np.arange(rows) % 7, "seen": told, "site": "x", "y": told})
    table.loc[[3, 4, 5], "y"] = None
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    (tmp_path / "folder").mkdir()
    table.to_csv(tmp_path / "folder" / "train.csv", index=False)
    with sqlite3.connect(tmp_path / "t.db") as connection:
        table.assign(key=range(rows)).to_sql("t", connection, index=False)
    columns: dict[str, ColumnOption] = {
        "age": "number",
        "seen": ["ill", "well"],
        "site": ["x"],
    }
    form = DataForm(shape=(), classes=("ill", "well"), columns=columns)
    query = {"query": "SELECT * FROM t ORDER BY key"}
    sources = [(str(tmp_path / name), {}) for name in ("t.csv", "t.parquet", "folder")]
    for source, more in [*sources, (f"sqlite:///{tmp_path}/t.db", query)]:
        check_data({"data": source, "label": "y", **more}, form)
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 3
        assert "left out 3 rows without y" in said[0]
        assert said[1].startswith("warning: column site has the same value in every row")
        assert said[2].startswith("warning: column seen determines the label")
