"""Every source says what it did to its inputs, in words for the model card."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from coterie.core.keys import Key
from coterie.data import SOURCES, Population, load_samples, make_partition, populate
from coterie.data.sources.image_datasets import IMAGE_DATASETS
from coterie.data.sources.saved import POPULATION, population_bytes, population_digest
from coterie.errors import DataError
from tests.refusals import refuses

Table = dict[str, Any]

WORDS = {
    "digits": "pixels are divided by 16.",
    "synthetic": "not at all, they are as they were drawn.",
    "drift_stream": "not at all, they are between 0 and 1.",
    "sent140": "not at all, they are word vectors.",
    "sent140_tokens": "not at all, they are the numbers of words.",
    "file": "pixels are divided by 255, numbers are as in the file.",
    "hub": "pixels are divided by 255, numbers are as in the dataset.",
    "image_folder": "pixels are divided by 255, those of 16 bits by 65,535.",
    "saved": "not at all, they are as the program that ran it made them.",
}
# Their encoder says it.
TABLES = ("heart_disease", "parkinsons", "beijing_air")
STANDARDISED = {
    "mnist": "pixel has mean 0 and standard deviation 1 over all training and test images.",
    "cifar10": "colour channel has mean 0 and standard deviation 1 over all training images.",
    "svhn": "colour channel has mean 0 and standard deviation 1 over all training images.",
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def picture(seed: int) -> bytes:
    file = BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def columns(**values: Any) -> pa.Table:
    return pa.table({"x": [[0.0, 1.0], [1.0, 0.0]], "y": [0, 1], **values})


def write_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    pq.write_table(columns(), root / "rows.parquet")
    return {"path": "rows.parquet"}


def write_hub(root: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    class Rows:
        features = MappingProxyType[str, Any]({})

        def with_format(self, name: str) -> Rows:
            return self

        def __getitem__(self, rows: slice) -> pa.Table:
            return columns()

    made: Any = ModuleType("datasets")
    made.load_dataset = lambda place, subset: {"train": Rows()}
    monkeypatch.setitem(sys.modules, "datasets", made)
    return {"id": "somebody/rows", "features": "x", "label": "y"}


def write_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    (root / "images" / "cat").mkdir(parents=True)
    (root / "images" / "cat" / "1.png").write_bytes(picture(0))
    return {"path": "images"}


def write_saved(root: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    population = Population(torch.zeros(2, 1), torch.tensor([0, 1]), ([0], [1]), ([], []), 2)
    (root / POPULATION).write_bytes(population_bytes(population))
    return {"digest": population_digest(population)}


def write_tweets(root: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    (root / "sent140").mkdir()
    texts = {"text": ["good day", "bad day"] * 3, "label": [1, 0] * 3, "user": ["ann", "bob"] * 3}
    for stem in ("users", "others"):
        pq.write_table(pa.table(texts), root / "sent140" / f"{stem}.parquet")
    return {}


WRITERS = {
    "file": write_file,
    "hub": write_hub,
    "image_folder": write_folder,
    "saved": write_saved,
    "sent140": write_tweets,
    "sent140_tokens": write_tweets,
}


def test_these_are_all_sources() -> None:
    silent = set(SOURCES) - {*WORDS, *IMAGE_DATASETS, *TABLES, "nodes"}
    assert not silent, f"{silent}: add what its Samples say of scaling to WORDS"


@pytest.mark.parametrize("name", WORDS)
def test_a_source_says_how_it_scales_its_inputs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = WRITERS[name](tmp_path, monkeypatch) if name in WRITERS else {}
    samples = load_samples({"source": name, **options}, root=tmp_path)
    assert samples.scaling == WORDS[name]


@pytest.mark.parametrize("name", IMAGE_DATASETS)
def test_images_say_it_for_each_scale(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    table = pa.table({"image": [picture(1), picture(2)], "label": [0, 1]})
    for stem in ("train", "test"):
        pq.write_table(table, folder / f"{stem}.parquet")
    usual = "pixel has mean 0 and standard deviation 1 over all training images."
    words = {
        "unit": "pixels are between 0 and 1.",
        "inverted": "pixels are between 0 and 1, and then subtracted from 1.",
        "standardised": f"each {STANDARDISED.get(name, usual)}",
    }
    for scale, expected in words.items():
        samples = load_samples({"source": name, "pixels": scale}, root=tmp_path)
        assert samples.scaling == expected


def test_a_population_has_the_words_of_its_source() -> None:
    samples = load_samples({"source": "digits"})
    parts = make_partition(samples, {"kind": "iid", "clients": 2}, Key(0))
    assert populate(samples, parts).scaling == WORDS["digits"]


def test_nodes_have_no_samples() -> None:
    with refuses(DataError, "does-not-fit", "data.source"):
        load_samples({"source": "nodes", "shape": (1,), "classes": ("a", "b")})
