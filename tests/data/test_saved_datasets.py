"""Folders that `save_to_disk` of the package datasets wrote, without that package."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import coterie as ct
from coterie.errors import DataError
from tests.refusals import refuses

ROWS = 24
FEATURES = {
    "age": {"dtype": "float64", "_type": "Value"},
    "tags": [{"dtype": "int64", "_type": "Value"}],
    "label": {"names": ["x", "y", "z"], "_type": "ClassLabel"},
}


def table(start: int = 0, rows: int = ROWS) -> Any:
    numbers = range(start, start + rows)
    found = pa.table(
        {
            "age": [float(number) for number in numbers],
            "site": ["ab"[number % 2] for number in numbers],
            "label": [number % 3 for number in numbers],
        }
    )
    said = json.dumps({"info": {"features": FEATURES}})
    return found.replace_schema_metadata({"huggingface": said})


def save(folder: Path, *parts: Any) -> None:
    """A split in the form of that package, a file a part."""
    folder.mkdir(parents=True)
    files = []
    for at, part in enumerate(parts):
        name = f"data-{at:05}-of-{len(parts):05}.arrow"
        with pa.ipc.new_stream(folder / name, part.schema) as file:
            file.write_table(part)
        files.append({"filename": name})
    (folder / "state.json").write_text(json.dumps({"_data_files": files, "_format_type": None}))
    (folder / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))


def loaded(folder: Path) -> ct.Population:
    return ct.load(
        "hub",
        id=str(folder),
        features=["age"],
        label="label",
        client="site",
        partition={"kind": "natural"},
    )


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)


def test_a_folder_of_one_split_in_several_files(tmp_path: Path) -> None:
    save(tmp_path / "saved", table(0, 10), table(10, 14))
    data = loaded(tmp_path / "saved")
    assert data.names == ("a", "b")
    assert data.x[:, 0].tolist() == [float(number) for number in range(ROWS)]
    assert data.y.tolist() == [number % 3 for number in range(ROWS)]
    assert data.origin is not None
    assert data.origin.label_names == ("x", "y", "z")


def test_a_folder_of_splits_tests_on_its_own(tmp_path: Path) -> None:
    save(tmp_path / "saved" / "train", table())
    save(tmp_path / "saved" / "test", table(100, 6))
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    data = loaded(tmp_path / "saved")
    tested = sorted(data.x[rows, 0].tolist() for rows in data.test)
    assert tested == [[100, 102, 104], [101, 103, 105]]


@pytest.mark.parametrize("damage", ["state", "file", "cut"])
def test_a_damaged_folder_is_one_line(damage: str, tmp_path: Path) -> None:
    save(tmp_path / "saved", table())
    file = tmp_path / "saved" / "data-00000-of-00001.arrow"
    if damage == "state":
        (tmp_path / "saved" / "state.json").write_text("{}")
    elif damage == "file":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:300])
    with refuses(DataError, "cannot-be-read", "data.id"):
        loaded(tmp_path / "saved")


def test_the_source_file_names_the_source_for_such_a_folder(tmp_path: Path) -> None:
    save(tmp_path / "saved", table())
    with refuses(DataError, "wrong-type", "data.path"):
        ct.load("file", path=str(tmp_path / "saved"), partition={"kind": "natural"})


NOTES = [
    "[" * 1000 + "]" * 1000,
    "3",
    '{"info": 3}',
    '{"info": {"features": {"label": {"names": 3}}}}',
]


@pytest.mark.parametrize("note", NOTES)
def test_what_a_file_says_of_its_columns_may_be_anything(note: str, tmp_path: Path) -> None:
    save(tmp_path / "saved", table().replace_schema_metadata({"huggingface": note}))
    with refuses(DataError, "cannot-be-read", "data.id"):
        loaded(tmp_path / "saved")
