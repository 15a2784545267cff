"""A list of columns of numbers: used as they are, whatever type a file or a frame gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import coterie as ct
from coterie.data.rows.reading import read_rows
from coterie.data.tabular.new_rows import read_new_rows
from coterie.flower.node.data_sources import pair_of_rows
from tests.refusals import refuses

INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
TYPES = (*INTEGERS, "bool", "UInt8", "Int8", "Int64", "boolean", "float16", "float32", "float64")
FEATURES = ["first", "second"]
RECORD: dict[str, Any] = {
    "rules": None,
    "features": FEATURES,
    "window": None,
    "client": "site",
    "labels": ["y"],
    "classes": ["0", "1"],
    "kinds": {"site": "identifier", "y": "category"},
    "shape": [2],
}


def frame_of(kind: str) -> pd.DataFrame:
    highest = 2 if kind.startswith("bool") else 100
    frame = pd.DataFrame(
        {
            "site": ["a", "b"] * 20,
            "first": np.arange(40) % highest,
            "second": np.arange(40)[::-1] % highest,
            "y": [0, 1] * 20,
        }
    )
    return frame.astype({"first": kind, "second": kind})


def readers(data: Any) -> dict[str, list[list[float]]]:
    """The inputs of all rows by every reader."""
    options = {"features": FEATURES, "client": "site", "label": "y"}
    if isinstance(data, Path):
        trained = ct.load("file", path=str(data), **options)
    else:
        trained = ct.load(data, **options)
    rows = pair_of_rows(read_rows(data), {"label": "y"}, ["0", "1"], FEATURES)
    new = read_new_rows(data, RECORD)
    return {"training": trained.x.tolist(), "predict": new.x.tolist(), "node": rows[0].tolist()}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", TYPES)
def test_numbers_of_every_width_are_used_unscaled(kind: str, tmp_path: Path) -> None:
    frame = frame_of(kind)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    expected = frame[FEATURES].astype(float).to_numpy().tolist()
    for data in (frame, tmp_path / "rows.csv", tmp_path / "rows.parquet"):
        for reader, found in readers(data).items():
            assert found == expected, (reader, data)


def test_yes_and_no_of_a_csv_file_are_ones_and_zeros_to_every_reader(tmp_path: Path) -> None:
    frame = frame_of("bool")
    for name in FEATURES:
        frame[name] = frame[name].map({True: "TRUE", False: "False"})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    expected = frame_of("int8")[FEATURES].to_numpy() % 2
    assert all(found == expected.tolist() for found in readers(tmp_path / "rows.csv").values())


def test_dummies_are_ones_and_zeros() -> None:
    frame = frame_of("uint8").assign(town=["Bern", "Basel", "Chur", "Bern"] * 10)
    dummies = pd.get_dummies(frame, columns=["town"], dtype=np.uint8)
    names = ["town_Basel", "town_Bern", "town_Chur"]
    x = ct.load(dummies, features=names, client="site", label="y").x
    assert x[:3].tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]


def test_a_single_column_of_bytes_is_no_image() -> None:
    frame = frame_of("uint8")
    x = ct.load(frame, features="first", client="site", label="y").x
    assert x[:3].tolist() == [[0.0], [1.0], [2.0]]


@pytest.mark.parametrize("kind", ["uint8", "int64"])
def test_lists_of_bytes_are_pixels_to_every_reader(kind: str, tmp_path: Path) -> None:
    pixels = [np.array([0, 51, at % 2 * 255], kind) for at in range(40)]
    frame = frame_of(kind)[["site", "y"]].assign(x=pixels)
    frame.to_parquet(tmp_path / "rows.parquet")
    record = {**RECORD, "features": "x", "shape": [3]}
    options = {"features": "x", "client": "site", "label": "y"}
    trained = ct.load("file", path=str(tmp_path / "rows.parquet"), **options).x
    node = pair_of_rows(read_rows(tmp_path / "rows.parquet"), {"label": "y"}, ["0", "1"], ["x"])[0]
    new = read_new_rows(tmp_path / "rows.parquet", record).x
    expected = np.stack(pixels).astype(np.float32) / np.float32(255 if kind == "uint8" else 1)
    for found in (trained, node, new):
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("kind", ["int64", "uint8"])
def test_numbers_said_to_be_codes_are_categories_in_every_file(kind: str, tmp_path: Path) -> None:
    frame = frame_of(kind).assign(first=np.arange(40) // 2 % 3)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    for name in ("rows.csv", "rows.parquet"):
        options: dict[str, Any] = {"features": FEATURES, "client": "site", "label": "y"}
        path = str(tmp_path / name)
        found = ct.load("file", path=path, columns={"first": "category"}, **options)
        assert found.table is not None
        assert [column.kind for column in found.table.raw.columns] == ["category", "number"]


@pytest.mark.parametrize("source", ["file", "frame"])
def test_a_column_of_yes_and_no_takes_no_other_number(source: str, tmp_path: Path) -> None:
    frame = frame_of("bool")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    data: Any = {"source": frame, "features": FEATURES, "client": "site", "label": "y"}
    if source == "file":
        data |= {"source": "file", "path": str(tmp_path / "rows.csv")}
        data["partition"] = {"kind": "natural"}
    result = ct.run("fedavg", data=data, model="mclr", rounds=1, engine="serial")
    assert len(result.predict(frame).frame()) == len(frame)
    for other in (2, 0.5, "maybe"):
        with refuses(ct.DataError, "wrong-type", "data"):
            result.predict(frame.assign(second=other))
