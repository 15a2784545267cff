"""The user's own data: parquet and npz, every layout, every complaint."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from coterie.core.keys import Key
from coterie.data import load_population, load_samples
from coterie.errors import Code, ConfigError, DataError
from tests.refusals import refuses

Y = ["cat", "dog", "cat", "ant"]
X = np.arange(8, dtype=np.float64).reshape(4, 2)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def parquet(folder: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), folder / "mine.parquet")
    return str(folder / "mine.parquet")


def npz(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "mine.npz", **arrays)
    return str(folder / "mine.npz")


def load(path: str, **options: Any) -> Any:
    return load_samples({"source": "file", "path": path, **options})


def test_parquet_and_npz_give_the_same_samples(tmp_path: Path) -> None:
    client = ["b", "a", "b", "a"]
    split = ["train", "test", "train", "train"]
    files = [
        parquet(tmp_path, x=X.tolist(), y=Y, client=client, split=split),
        npz(tmp_path, x=X, y=np.array(Y), client=np.array(client), split=np.array(split)),
    ]
    for path in files:
        s = load(path)
        assert s.x.tolist() == X[[0, 2, 3, 1]].tolist()
        assert (s.y.tolist(), s.label_names, s.classes, s.train_rows) == (
            [1, 1, 0, 2],
            ("ant", "cat", "dog"),
            3,
            3,
        )
        assert s.columns["client"].tolist() == ["b", "b", "a", "a"]
        p = load_population({"source": "file", "path": path}, {"kind": "natural"}, key=Key(0))
        assert (p.names, p.sizes("train").tolist(), p.sizes("test").tolist()) == (
            ("a", "b"),
            [1, 2],
            [1, 0],
        )


def test_number_columns_and_other_names(tmp_path: Path) -> None:
    path = parquet(
        tmp_path, height=[1, 2, 3], weight=[0.5, 1.5, 2.5], kind=[7, 9, 7], site=[3, 1, 3]
    )
    s = load(path, features=["height", "weight"], label="kind", client="site")
    assert s.x.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5]]
    assert (s.y.tolist(), s.label_names, s.columns["site"].tolist()) == (
        [0, 1, 0],
        ("7", "9"),
        [3, 1, 3],
    )
    assert s.columns["client"].tolist() == [3, 1, 3]
    assert load(path, features="weight", label="kind").x.shape == (3, 1)


def test_image_columns_and_shapes(tmp_path: Path) -> None:
    file = BytesIO()
    Image.fromarray(np.full((4, 4), 51, np.uint8)).save(file, "PNG")
    for values in ([file.getvalue()] * 2, [{"bytes": file.getvalue(), "path": None}] * 2):
        s = load(parquet(tmp_path, x=values, y=[0, 1]))
        assert s.x.shape == (2, 1, 4, 4)
        assert torch.allclose(s.x, torch.tensor(0.2))
    nested = load(parquet(tmp_path, x=np.arange(18).reshape(2, 3, 3).tolist(), y=[0, 1]))
    assert nested.x.shape == (2, 3, 3)
    assert nested.x.flatten().tolist() == list(range(18))
    shaped = load(npz(tmp_path, x=np.full((2, 9), 255, np.uint8), y=[0, 1]), shape=[1, 3, 3])
    assert shaped.x.shape == (2, 1, 3, 3)
    assert float(shaped.x.max()) == 1


def test_a_relative_path_is_looked_for_in_the_data_folder(tmp_path: Path) -> None:
    npz(tmp_path, x=X, y=[0, 1, 0, 1])
    assert len(load_samples({"source": "file", "path": "mine.npz"}, root=tmp_path)) == 4


def test_rows_without_a_label_or_a_client_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As tables.md says, whether inputs are lists, columns of numbers, or a table."""
    y = [0.0, float("nan"), 1.0, 0.0]
    client = ["a", "b", None, "b"]
    for path in (parquet(tmp_path, x=X.tolist(), y=y, client=client),):
        s = load(path)
        assert s.x.tolist() == X[[0, 3]].tolist()
        assert s.columns["client"].tolist() == ["a", "b"]
    assert "left out 1 row without y\n" in (printed := capsys.readouterr().err)
    assert "left out 1 row without client" in printed
    assert len(load(npz(tmp_path, x=X, y=y))) == 3
    with refuses(DataError, "missing", "mine.npz"):
        load(npz(tmp_path, x=X, y=[float("nan")] * 4))


@pytest.mark.parametrize(
    ("columns", "options", "refusal"),
    [
        ({"x": X.tolist(), "yy": Y}, {}, ("not-found", "data.label")),
        ({"x": X.tolist(), "y": Y}, {"client": "site"}, ("not-found", "data.client")),
        (
            {"x": X.tolist(), "y": Y, "split": ["train"] * 3 + ["val"]},
            {},
            ("unknown-choice", "mine.parquet"),
        ),
        ({"x": [[1.0], [float("nan")]], "y": [0, 1]}, {}, ("not-finite", "mine.parquet")),
        ({"x": [[1.0], [1.0, 2.0]], "y": [0, 1]}, {}, ("wrong-shape", "mine.parquet")),
        ({"x": [[1.0], [1.0, 2.0, 3.0]], "y": [0, 1]}, {}, ("wrong-shape", "mine.parquet")),
        ({"x": [[1.0], None], "y": [0, 1]}, {}, ("missing", "mine.parquet")),
        ({"x": [["a"], ["b"]], "y": [0, 1]}, {}, ("wrong-type", "mine.parquet")),
        ({"x": [b"no", b"image"], "y": [0, 1]}, {}, ("cannot-be-read", "mine.parquet")),
        ({"x": X.tolist(), "y": [0, 1, 0.5, 1]}, {}, ("wrong-type", "mine.parquet")),
        ({"x": X.tolist(), "y": Y}, {"shape": [3]}, ("wrong-shape", "data.shape")),
        (
            {"x": pa.array([], pa.list_(pa.float64())), "y": pa.array([], pa.int64())},
            {},
            ("missing", "mine.parquet"),
        ),
    ],
)
def test_parquet_complaints_are_one_line(
    tmp_path: Path, columns: Any, options: Any, refusal: tuple[Code, str]
) -> None:
    with refuses(DataError, *refusal) as caught:
        load(parquet(tmp_path, **columns), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "refusal"),
    [
        ({"x": X, "y": np.array(Y, dtype=object)}, ("cannot-be-read", "mine.npz")),
        ({"x": X, "y": [0, 1]}, ("wrong-shape", "mine.npz")),
        ({"x": X, "y": np.zeros((4, 2))}, ("wrong-shape", "mine.npz")),
        ({"x": X, "z": [0]}, ("not-found", "data.label")),
        ({"x": np.array(["a", "b"]), "y": [0, 1]}, ("wrong-type", "mine.npz")),
        ({"x": np.array([[1.0], [np.inf]]), "y": [0, 1]}, ("not-finite", "mine.npz")),
        ({"x": np.empty((0, 2)), "y": np.empty(0, int)}, ("missing", "mine.npz")),
        ({"x": X, "y": [0, 1, 0, 1], "client": ["a"]}, ("wrong-shape", "mine.npz")),
        ({"x": X, "y": [0, 1, 0, 1], "split": ["train"]}, ("wrong-shape", "mine.npz")),
    ],
)
def test_npz_complaints_are_one_line(
    tmp_path: Path, arrays: Any, refusal: tuple[Code, str]
) -> None:
    with refuses(DataError, *refusal) as caught:
        load(npz(tmp_path, **arrays))
    assert "\n" not in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    whole = Path(npz(tmp_path, x=X, y=[0, 1, 0, 1])).read_bytes()
    for name, content in (
        ("a.npz", b"x"),
        ("b.npz", whole[:200]),
        ("c.parquet", b"x"),
        ("d.csv", b"x"),
        ("e.npz", b""),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError) as caught:
            load(str(tmp_path / name))
        [line] = str(caught.value).splitlines()
        assert name in line
    with refuses(DataError, "not-found", "data.path"):
        load(str(tmp_path / "none.npz"))
    with refuses(ConfigError, "missing", "data.path"):
        load_samples({"source": "file"})
