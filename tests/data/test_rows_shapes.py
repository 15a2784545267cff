"""New inputs have the shape of the run's, and come from files, frames and Arrow alike."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image

from coterie.cli.main import invoke
from coterie.core.keys import Key
from coterie.data import load_population
from coterie.data.from_python import load
from coterie.errors import DataError
from coterie.experiment import check
from coterie.export.folder import export_run
from coterie.export.joining import read_joining
from coterie.export.predictions import predict
from coterie.runs.compose import compose
from coterie.runs.data import read_record
from coterie.runs.run import run_config
from tests.data.test_rows_kinds import config, exported_predictions, population, text
from tests.refusals import refuses

EACH = 20


def png(pixels: Any) -> bytes:
    out = BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(out, "PNG")
    return out.getvalue()


def images(*shape: int) -> list[bytes]:
    rng = np.random.default_rng(0)
    return [png(rng.integers(0, 256, shape)) for _ in range(2 * EACH)]


def table(values: list[Any]) -> pd.DataFrame:
    return pd.DataFrame({"x": values, "client": ["a", "b"] * EACH, "y": [0, 1] * EACH})


def trained(folder: Path, values: list[Any], **data: Any) -> Path:
    """A run on a column of images or lists."""
    table(values).to_parquet(folder / "t.parquet")
    options = {"features": "x", "client": "client", **data}
    run_config(check(config(str(folder / "t.parquet"), **options)), folder / "run")
    return folder / "run"


def refuse_shape(run: Path, values: list[Any]) -> None:
    """In `predict`, in the command, and where clients join."""
    path = str(run.parent / "new.parquet")
    new = table(values)
    new.to_parquet(path)
    for data, where in ((path, path), (new, "data")):
        with refuses(DataError, "wrong-shape", where):
            predict(run, data, None)
    assert invoke(["predict", str(run), "--data", path, "--out", f"{path}.csv"]) not in (0, 70)
    with refuses(DataError, "wrong-shape", path):
        source = config(str(run.parent / "t.parquet"), features="x", client="client")
        read_joining(path, compose(check(source)), read_record(run))


def test_images_of_another_size_or_with_more_colours(tmp_path: Path) -> None:
    run = trained(tmp_path, images(4, 4))
    for shape in ((2, 8), (5, 5), (4, 4, 3)):
        refuse_shape(run, images(*shape))


def test_grey_images_are_grey_in_each_colour(tmp_path: Path) -> None:
    run = trained(tmp_path, images(4, 4, 3))
    grey = np.arange(16).reshape(4, 4)
    colour = table([png(np.stack([grey] * 3, axis=2))] * 2 * EACH)
    expected = predict(run, colour, None).columns
    assert predict(run, table([png(grey)] * 2 * EACH), None).columns == expected
    refuse_shape(run, images(3, 5))


def test_lists_of_another_shape(tmp_path: Path) -> None:
    rows = [[float(at), 1.0, 2.0] for at in range(2 * EACH)]
    run = trained(tmp_path, [[row, row] for row in rows])
    for shape in ((3, 2), (7,), (1, 2, 4)):
        refuse_shape(run, [np.ones(shape).tolist()] * 2 * EACH)
    # Flat ones in the order of data.shape are the same inputs.
    flat = predict(run, table([row + row for row in rows]), None).columns
    assert flat == predict(run, table([[row, row] for row in rows]), None).columns
    export_run(run, run / "export")
    table([[[1.0, 2.0]] * 3] * 2 * EACH).to_parquet(tmp_path / "new.parquet")
    new = str(tmp_path / "new.parquet")
    code, error = exported_predictions(run / "export", new, tmp_path / "p.csv")
    assert (code, error.count("\n")) == (1, 1), error
    assert "x" in error
    assert "[3, 2]" in error
    assert "[2, 3]" in error


def test_a_run_that_changed_the_shape_of_its_lists_predicts_its_own_file(tmp_path: Path) -> None:
    nested = [[[float(at), 1.0], [2.0, 3.0]] for at in range(2 * EACH)]
    for shape in ([4], [1, 2, 2]):
        folder = tmp_path / str(len(shape))
        folder.mkdir()
        run = trained(folder, nested, shape=shape)
        assert predict(run, folder / "t.parquet", None).rows == 2 * EACH


@pytest.mark.parametrize("records", [False, True], ids=["bytes", "records"])
def test_images_of_frames_and_of_arrow_are_those_of_the_file(tmp_path: Path, records: bool) -> None:
    blobs: list[Any] = images(4, 4)
    if records:
        blobs = [{"bytes": blob, "path": None} for blob in blobs]
    run = trained(tmp_path, blobs)
    expected = predict(run, tmp_path / "t.parquet", None).columns
    frame = table(blobs)
    for data in (frame, pa.Table.from_pandas(frame)):
        assert predict(run, data, None).columns == expected
        made = load(data, features="x", label="y", client="client")
        source = {"source": "file", "path": str(tmp_path / "t.parquet"), "features": "x"}
        assert made.x.equal(load_population(source, {"kind": "natural"}, key=Key(0)).x)


# --- frames ---------------------------------------------------------------------------------------


def test_an_index_that_has_the_name_of_a_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.DataFrame(
        {"site": ["a", "b"] * EACH, "v": np.arange(2.0 * EACH), "y": [0, 1] * EACH}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    run_config(check(config(str(tmp_path / "t.csv"))), tmp_path / "run")
    expected = predict(tmp_path / "run", frame, None).columns
    kept = frame.set_index("site", drop=False)
    levels = pd.MultiIndex.from_arrays([frame.site, range(2 * EACH)], names=["site", None])
    capsys.readouterr()
    for other in (kept, frame.set_axis(levels)):
        assert predict(tmp_path / "run", other, None).columns == expected
        assert load(other, client="site", label="y").names == ("a", "b")
    assert "left out" not in capsys.readouterr().err
    # One that says something else is left out, and a line says so.
    other = frame.set_axis(pd.RangeIndex(5, 5 + 2 * EACH, name="v"))
    assert predict(tmp_path / "run", other, None).columns == expected
    assert "index v" in capsys.readouterr().err
    # An index with a name that no column has is a column.
    assert predict(tmp_path / "run", frame.set_index("site"), None).columns == expected


@pytest.mark.parametrize(
    "values",
    [[{1}] * 2 * EACH, ["a", {1}] * EACH, [Image.new("L", (2, 2))] * 2 * EACH],
    ids=["sets", "sets among text", "images of Pillow"],
)
def test_objects_in_frames_that_no_column_can_hold(values: list[Any]) -> None:
    frame = table(values)
    for features in ("x", "*", ["x"]):
        with pytest.raises(DataError) as caught:
            load(frame, features=features, label="y", client="client")
        assert "\n" not in str(caught.value)
        assert "column x" in str(caught.value)


# --- what columns are for -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["number", "category"])
@pytest.mark.parametrize("twice", ["y", "client", "split", "v"])
def test_a_column_of_another_use_is_no_feature(twice: str, kind: str) -> None:
    frame = pd.DataFrame(
        {
            "v": np.arange(2.0 * EACH),
            "w": np.arange(2.0 * EACH) if kind == "number" else ["p", "q"] * EACH,
            "y": [0, 1] * EACH,
            "client": np.repeat([1, 2], EACH),
            "split": ["train"] * EACH + ["test"] * EACH,
        }
    )
    with refuses(DataError, "in-conflict", "data.features"):
        load(frame, features=["v", "w", twice], label="y", client="client")


def test_no_label_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = text(tmp_path, "site,v,y\n" + "a,1,0\nb,2,1\n" * EACH)
    with refuses(DataError, "missing", "data.label"):
        population(path, client="site", label=[])
    file = tmp_path / "run.toml"
    file.write_text(
        f'[data]\nsource = "file"\npath = "{path}"\nfeatures = "*"\nlabel = []\nclient = "site"\n'
        '[algorithm]\nname = "fedavg"\n[model]\nname = "mclr"\n[train]\nrounds = 1\n'
    )
    assert invoke(["run", str(file), "--out", str(tmp_path / "out")]) not in (0, 70)
    assert "data.label" in capsys.readouterr().err


def test_hidden_files_of_a_folder_are_left_out(tmp_path: Path) -> None:
    text(tmp_path, "client,v,y\n" + "a,1,0\nb,2,1\n" * EACH, "a.csv")
    text(tmp_path, b"\0\5\x16\7Mac OS X", "._a.csv")
    text(tmp_path, "client,v,y\nc,1,0\n", ".hidden.csv")
    assert population(str(tmp_path)).names == ("a", "b")
