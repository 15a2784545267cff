"""Where a node's samples come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch

from coterie.data.sources.files import DataForm
from coterie.errors import Code, DataError
from coterie.flower.node.client_data import ClientData
from coterie.flower.node.data_sources import load_function, read_files
from tests.refusals import refuses


def test_parquet_files_of_a_node(tmp_path: Path) -> None:
    rows = [[float(4 * i + j) for j in range(4)] for i in range(10)]
    parquet.write_table(
        pa.table({"x": rows, "label": [i % 2 for i in range(10)]}), tmp_path / "train.parquet"
    )
    (x, y), (tx, ty) = read_files(tmp_path, {"shape": "2,2"})
    assert x.shape == (10, 2, 2)
    assert (len(tx), len(ty)) == (0, 0)
    (x, y), (tx, ty) = read_files(tmp_path / "train.parquet", {})
    assert (x.shape, tx.shape) == ((8, 4), (2, 4))
    assert sorted([*x[:, 0], *tx[:, 0]]) == [4.0 * i for i in range(10)]
    assert all(
        int(row[0] // 4) % 2 == label for row, label in zip([*x, *tx], [*y, *ty], strict=True)
    )
    columns = {"a": [1.0, 2.0], "b": [3.0, 4.0], "diagnosis": [0, 1]}
    parquet.write_table(pa.table(columns), tmp_path / "own.parquet")
    assert read_files(tmp_path / "own.parquet", {"label": "diagnosis"})[0][0].shape == (2, 2)
    with refuses(DataError, "missing", "own.parquet"):
        read_files(tmp_path / "own.parquet", {})
    with refuses(DataError, "not-found", "none"):
        read_files(tmp_path / "none", {})


def test_targets_of_other_tasks(tmp_path: Path) -> None:
    columns = {"x": [[1.0], [2.0]], "label": [0.5, -1.0], "both": [[1.0, 2.0], [3.0, 4.0]]}
    parquet.write_table(pa.table(columns), tmp_path / "train.parquet")
    train, test = read_files(tmp_path, {})
    data = ClientData.of(train, test, DataForm((1,), ()))
    assert data.train[1].tolist() == [0.5, -1.0]
    assert data.train[1].dtype == torch.float32
    with refuses(DataError, "wrong-type", "load_client"):
        ClientData.of(train, test, DataForm((1,), ("no", "yes")))
    both = read_files(tmp_path, {"label": "both"})
    assert ClientData.of(*both, DataForm((1,), (), (2,))).train[1].shape == (2, 2)
    with refuses(DataError, "wrong-shape", "load_client"):
        ClientData.of(*both, DataForm((1,), ()))


@pytest.mark.parametrize(
    ("targets", "form", "refusal"),
    [
        ([0, 2], DataForm((1,), ("a", "b")), ("out-of-range", "load_client")),
        ([0.0, float("nan")], DataForm((1,), ()), ("not-finite", "load_client: train: y")),
        ([0.0, 1e308], DataForm((1,), ()), ("out-of-range", "load_client: train: y")),
        ([0.0, float("inf")], DataForm((1,), ("a", "b")), ("not-finite", "load_client: train: y")),
        (["a", "b"], DataForm((1,), ("a", "b")), ("wrong-type", "load_client")),
    ],
)
def test_targets_that_do_not_fit(targets: Any, form: DataForm, refusal: tuple[Code, str]) -> None:
    with refuses(DataError, *refusal):
        ClientData.of((np.ones((2, 1)), targets), None, form)
    # A place that does not count is no token.
    tokens = DataForm((1,), ("a", "b"), (2,))
    data = ClientData.of((np.ones((2, 1)), [[0, -100], [1, 1]]), None, tokens)
    assert data.train[1].tolist() == [[0, -100], [1, 1]]


@pytest.mark.parametrize(("value", "code"), [(1e20, "out-of-range"), (np.inf, "not-finite")])
def test_inputs_with_which_a_network_would_overflow(value: float, code: Code) -> None:
    with refuses(DataError, code, "load_client: test: x"):
        samples = np.ones((2, 1)), [0, 1]
        ClientData.of(samples, (np.array([[1.0], [value]]), [0, 1]), DataForm((1,), ("a", "b")))


def test_a_loader_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text("load = 3\n")
    with refuses(DataError, "missing", "client.py"):
        load_function(tmp_path / "client.py")


@pytest.mark.parametrize(
    ("shape", "code", "where"),
    [
        ("3,3", "wrong-shape", "t.csv"),
        ("a", "wrong-type", "--shape"),
        ("2,-2", "wrong-type", "--shape"),
        ("2;2", "wrong-type", "--shape"),
        ("0,4", "wrong-type", "--shape"),
    ],
)
def test_a_shape_that_rows_do_not_have_is_one_line(
    tmp_path: Path, shape: str, code: Code, where: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,c,d,label\n" + "1,2,3,4,0\n" * 10)
    with refuses(DataError, code, where) as caught:
        read_files(path, {"shape": shape})
    assert "\n" not in str(caught.value)
