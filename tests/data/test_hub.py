"""Datasets of the hub by their columns: by the real library on a folder, and by a stand-in."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coterie.core.keys import Key
from coterie.data import load_population, load_samples
from coterie.errors import Code, DataError
from tests.refusals import refuses


def people(rows: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    return pa.table(
        {
            "vector": [row.tolist() for row in rng.normal(size=(rows, 3))],
            "label": (np.arange(rows) % 2).tolist(),
            "who": [f"c{i % 4}" for i in range(rows)],
            "age": rng.normal(size=rows),
            "town": ["a", "b"] * (rows // 2),
        }
    )


class Rows:
    """What the library gives for a split."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.features = {"label": SimpleNamespace(names=["no", "yes"])}

    def with_format(self, name: str) -> Rows:
        assert name == "arrow"
        return self

    def __getitem__(self, rows: slice) -> pa.Table:
        return self.table[rows] if rows != slice(None) else self.table


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A stand-in for `datasets`, and the splits that it has."""
    splits: dict[str, Any] = {"train": Rows(people(40)), "test": Rows(people(8))}
    made: Any = ModuleType("datasets")

    def load_dataset(place: str, subset: str | None) -> dict[str, Any]:
        if place != "somebody/people":
            raise ConnectionError("no such\ndataset")
        return splits

    made.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", made)
    return splits


GIVEN = {"source": "hub", "id": "somebody/people", "client": "who"}


@pytest.mark.usefixtures("library")
def test_columns_splits_clients_and_names_of_classes() -> None:
    samples = load_samples({**GIVEN, "features": "vector"})
    assert (tuple(samples.x.shape), samples.train_rows) == ((48, 3), 40)
    assert samples.x[0].tolist() == pytest.approx(people(40)["vector"][0].as_py())
    assert samples.label_names == ("no", "yes")
    natural = {"kind": "natural", "column": "who"}
    population = load_population({**GIVEN, "features": "vector"}, natural, key=Key(0))
    assert (population.clients, population.sizes("test").tolist()) == (4, [2, 2, 2, 2])


def test_tables_and_datasets_of_one_split(library: dict[str, Any]) -> None:
    population = load_population(
        {**GIVEN, "features": ["age", "town"]}, {"kind": "natural", "column": "who"}, key=Key(0)
    )
    assert population.table is not None
    assert population.table.encoder.features == ("age", "town = a", "town = b")
    test = library.pop("test")
    library.clear()
    library["validation"] = test
    assert load_samples({**GIVEN, "features": "vector"}).train_rows == 8


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"id": "nobody/none"}, ("cannot-be-read", "data.id")),
        ({"features": "vectors"}, ("not-found", "data.features")),
        ({"client": "whom"}, ("not-found", "data.client")),
    ],
)
def test_what_cannot_be_read_is_one_line(
    options: dict[str, Any], refusal: tuple[Code, str]
) -> None:
    with refuses(DataError, *refusal) as caught:
        load_samples({**GIVEN, "features": "vector", **options})
    assert "\n" not in str(caught.value)


def test_splits_without_a_training_split_are_named(library: dict[str, Any]) -> None:
    library["validation"] = library.pop("train")
    with refuses(DataError, "missing", "data.id"):
        load_samples({**GIVEN, "features": "vector"})


def test_the_package_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with refuses(DataError, "not-installed", "data.id"):
        load_samples({**GIVEN, "features": "vector"})


def test_the_real_library_reads_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    pytest.importorskip("datasets")
    folder = tmp_path / "people"
    folder.mkdir()
    for split, rows in (("train", 40), ("test", 8)):
        pq.write_table(people(rows), folder / f"{split}.parquet")
    given = {"source": "hub", "id": "people", "features": "vector", "client": "who"}
    samples = load_samples(given, root=tmp_path)
    assert (tuple(samples.x.shape), samples.train_rows, samples.classes) == ((48, 3), 40, 2)
