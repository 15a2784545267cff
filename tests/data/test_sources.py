"""Sources: shapes, scaling, the cache of decoded images, and what is said when something is
missing."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import coterie as ct
from coterie.core.keys import Key
from coterie.data import load_population, load_samples
from coterie.data.images.decoding import decode
from coterie.data.sources import image_datasets
from coterie.data.sources.generated import synthetic
from coterie.errors import ConfigError, DataError
from tests.conftest import real_data
from tests.refusals import refuses


@pytest.fixture(autouse=True)
def _own_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if "real" not in request.node.name:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def encoded(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    file = BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def pictures(rows: int, seed: int = 0, channels: int = 1) -> np.ndarray:
    shape = (rows, 6, 6) if channels == 1 else (rows, 6, 6, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write(path: Path, pixels: np.ndarray, **columns: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    labels = columns.pop("label", [i % 10 for i in range(len(pixels))])
    pq.write_table(
        pa.table({"image": [encoded(p) for p in pixels], "label": labels, **columns}), path
    )
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("mnist", "fashion_mnist", "cifar10"):
        channels = 3 if name == "cifar10" else 1
        for split, rows in (("train", 12), ("test", 5)):
            write(tmp_path / "data" / name / f"{split}.parquet", pictures(rows, rows, channels))
    return tmp_path / "data"


def test_digits() -> None:
    from sklearn.datasets import load_digits

    s = load_samples({"source": "digits"})
    assert (tuple(s.x.shape), s.x.dtype, s.y.dtype) == ((1797, 1, 8, 8), torch.float32, torch.int64)
    # The file is read without this loader, which takes long to import.
    expected = load_digits()
    np.testing.assert_array_equal(s.x[:, 0].numpy(), expected.images.astype(np.float32) / 16)
    np.testing.assert_array_equal(s.y.numpy(), expected.target)
    assert (float(s.x.min()), float(s.x.max()), s.classes, s.train_rows) == (0, 1, 10, 1797)


def test_mnist_is_standardised_over_the_pool_and_fashion_over_train(root: Path) -> None:
    pool = np.concatenate([pictures(12, 12), pictures(5, 5)]).astype(np.float64)[:, None]
    for name, reference in (("mnist", pool), ("fashion_mnist", pool[:12])):
        s = load_samples({"source": name}, root=root)
        expected = (pool - reference.mean(0)) / (reference.std(0) + 0.001)
        assert (tuple(s.x.shape), s.train_rows) == ((17, 1, 6, 6), 12)
        np.testing.assert_allclose(s.x.numpy(), expected, rtol=1e-4, atol=1e-4)
        unit = load_samples({"source": name, "pixels": "unit"}, root=root)
        np.testing.assert_allclose(unit.x.numpy(), pool / 255, rtol=1e-6)
        inverted = load_samples({"source": name, "pixels": "inverted"}, root=root)
        np.testing.assert_allclose(inverted.x.numpy(), 1 - pool / 255, atol=1e-6)


def test_cifar_is_standardised_per_channel(root: Path) -> None:
    pool = (
        np.concatenate([pictures(12, 12, 3), pictures(5, 5, 3)])
        .transpose(0, 3, 1, 2)
        .astype(np.float64)
    )
    train = pool[:12]
    expected = (pool - train.mean((0, 2, 3), keepdims=True)) / (
        train.std((0, 2, 3), keepdims=True) + 0.001
    )
    np.testing.assert_allclose(
        load_samples({"source": "cifar10"}, root=root).x.numpy(), expected, rtol=1e-4, atol=1e-4
    )


def test_svhn_is_read_as_cifar_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = {
        split: np.random.default_rng(n).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
        for split, n in SVHN
    }
    for split, pixels in pool.items():
        write(root / "svhn" / f"{split}.parquet", pixels)
    s = load_samples({"source": "svhn"}, root=root)
    assert (tuple(s.x.shape), s.train_rows, s.classes, s.label_names) == (
        (15, 3, 32, 32),
        10,
        10,
        tuple("0123456789"),
    )
    assert s.y.tolist() == [*range(10), *range(5)]
    train = pool["train"].transpose(0, 3, 1, 2).astype(np.float64)
    expected = (train - train.mean((0, 2, 3), keepdims=True)) / (
        train.std((0, 2, 3), keepdims=True) + 0.001
    )
    np.testing.assert_allclose(s.x[:10].numpy(), expected, rtol=1e-4, atol=1e-4)
    p = load_population({"source": "svhn"}, {"kind": "iid", "clients": 5}, root=root, key=Key(0))
    assert (p.sizes("train").tolist(), p.sizes("test").tolist()) == ([2] * 5, [1] * 5)

    def load_dataset(name: str, config: str) -> dict[str, FakeRows]:
        assert (name, config) == ("ufldl-stanford/svhn", "cropped_digits")
        return {split: FakeRows(len(rows), "image", rows) for split, rows in pool.items()}

    fake = SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    hub = load_samples({"source": "svhn", "hub": True})
    assert torch.equal(hub.x, s.x)
    assert torch.equal(hub.y, s.y)
    write(root / "svhn" / "test.parquet", pool["test"], label=[10] * 5)
    with refuses(DataError, "out-of-range", "data.source"):
        load_samples({"source": "svhn"}, root=root)


SVHN = (("train", 10), ("test", 5))


def test_femnist_has_writers_and_may_add_unseen_ones(tmp_path: Path) -> None:
    for stem, rows, writer in (("train", 6, "a"), ("test", 3, "a"), ("test_only_writers", 2, "b")):
        write(
            tmp_path / "femnist" / f"{stem}.parquet",
            pictures(rows),
            label=[61] * rows,
            writer_id=[writer] * rows,
        )
    s = load_samples({"source": "femnist"}, root=tmp_path)
    assert (len(s), s.train_rows, s.classes, s.label_names[61]) == (9, 6, 62, "z")
    more = {"source": "femnist", "test_only_writers": True}
    assert load_samples(more, root=tmp_path).columns["writer_id"].tolist() == ["a"] * 9 + ["b"] * 2
    p = load_population(more, {"kind": "natural", "column": "writer_id"}, root=tmp_path, key=Key(0))
    assert (p.names, p.sizes("train").tolist(), p.sizes("test").tolist()) == (
        ("a", "b"),
        [6, 0],
        [3, 2],
    )


def test_the_cache_is_used_and_never_trusted(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    monkeypatch.setattr(
        image_datasets,
        "decode",
        lambda blobs, what="": (decoded.append(len(blobs)), decode(blobs, what))[1],
    )

    def load() -> torch.Tensor:
        decoded.clear()
        return load_samples({"source": "mnist"}, root=root).x

    first = load()
    assert sorted(decoded) == [5, 12]
    assert torch.equal(load(), first)
    assert decoded == []
    files = sorted((tmp_path / "cache" / "coterie" / "images").iterdir())
    assert len(files) == 2
    whole = files[0].read_bytes()
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    for damaged in (b"", whole[:40], whole[:-3], bytes(flipped), b"\x93NUMPY" + whole[9:]):
        files[0].write_bytes(damaged)
        assert torch.equal(load(), first)
        assert len(decoded) == 1
        assert torch.equal(load(), first)
        assert decoded == []
    path = root / "mnist" / "train.parquet"
    write(path, 255 - pictures(12, 12))
    assert not torch.equal(load(), first), "a changed file is decoded anew"


def test_a_cache_that_cannot_be_written_is_done_without(
    root: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    first = load_samples({"source": "mnist"}, root=root).x
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert torch.equal(load_samples({"source": "mnist"}, root=root).x, first)


def test_what_is_missing_is_said_in_one_line(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    for place, code, path in (
        (None, "missing", "data.source"),
        (tmp_path, "not-found", "mnist"),
    ):
        with refuses(DataError, code, path) as caught:
            load_samples({"source": "mnist"}, root=place)
        [line] = str(caught.value).splitlines()
        assert "--data-root" in line
    monkeypatch.setenv("COTERIE_DATA", str(root))
    assert len(load_samples({"source": "mnist"})) == 17
    (root / "mnist" / "test.parquet").unlink()
    with refuses(DataError, "not-found", "test.parquet"):
        load_samples({"source": "mnist"}, root=root)
    for damage in (b"", b"PAR1 not parquet PAR1"):
        (root / "mnist" / "test.parquet").write_bytes(damage)
        with refuses(DataError, "cannot-be-read", "test.parquet"):
            load_samples({"source": "mnist"}, root=root)
    write(root / "mnist" / "test.parquet", pictures(3), label=[1, 2, 99])
    with refuses(DataError, "out-of-range", "data.source"):
        load_samples({"source": "mnist"}, root=root)
    pq.write_table(pa.table({"image": [b"x"], "lable": [1]}), root / "mnist" / "test.parquet")
    with refuses(DataError, "not-found", "test.parquet"):
        load_samples({"source": "mnist"}, root=root)
    with refuses(ConfigError, "unknown-choice", "data.source"):
        load_samples({"source": "mnits"}, root=root)
    with refuses(ConfigError, "unknown-choice", "data.pixels"):
        load_samples({"source": "mnist", "pixels": "raw"}, root=root)


@pytest.mark.parametrize("key", ["kind", "name"])
def test_a_source_has_one_spelling(key: str) -> None:
    with refuses(ConfigError, "unknown-choice", "data.source"):
        load_samples({key: "digits"})
    with refuses(ConfigError, "wrong-type", "source"):
        ct.load({key: "digits"}, partition={"kind": "iid", "clients": 3})


@pytest.mark.parametrize(
    "blob",
    [b"", b"\x89PNG\r\n\x1a\nrest", encoded(pictures(1)[0])[:60]],
)
def test_a_damaged_image_is_named_by_its_row(blob: bytes) -> None:
    source = ("a.parquet", "column x")
    with refuses(DataError, "cannot-be-read", "a.parquet") as caught:
        decode([encoded(pictures(1)[0]), blob], source)
    assert caught.value.problems[0].what.startswith("column x: row 1: ")
    with refuses(DataError, "cannot-be-read", "a.parquet") as caught:
        decode([blob], source)
    assert caught.value.problems[0].what.startswith("column x: row 0: ")


def test_images_of_other_sizes_and_modes() -> None:
    with refuses(DataError, "wrong-shape", "data"):
        decode([encoded(pictures(1)[0]), encoded(pictures(1)[0][:4])])
    mixed = [
        encoded(pictures(1, 0, 3)[0]),
        encoded(pictures(1)[0]),
        encoded(pictures(1, 0, 3)[0], "JPEG"),
    ]
    assert decode(mixed).shape == (3, 3, 6, 6)


def test_the_hub_is_lazy_and_its_absence_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with refuses(DataError, "not-installed", "data.hub"):
        load_samples({"source": "cifar10", "hub": True})


class FakeRows:
    def __init__(self, rows: int, image: str = "img", pixels: np.ndarray | None = None) -> None:
        shown = pictures(rows, rows, 3) if pixels is None else pixels
        files = [{"bytes": encoded(p), "path": None} for p in shown]
        self.table = pa.table({image: files, "label": list(range(rows))})

    def with_format(self, name: str) -> FakeRows:
        assert name == "arrow"
        return self

    def __getitem__(self, rows: slice) -> pa.Table:
        assert rows == slice(None)
        return self.table


def test_the_hub_gives_the_same_samples_as_files(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_dataset(name: str, config: None) -> dict[str, FakeRows]:
        assert name == "uoft-cs/cifar10"
        return {"train": FakeRows(10), "test": FakeRows(5)}

    fake = SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    for split, rows in (("train", 10), ("test", 5)):
        write(root / "cifar10" / f"{split}.parquet", pictures(rows, rows, 3))
    a = load_samples({"source": "cifar10", "hub": True})
    b = load_samples({"source": "cifar10"}, root=root)
    assert torch.equal(a.x, b.x)
    assert torch.equal(a.y, b.y)
    monkeypatch.setitem(
        sys.modules, "datasets", SimpleNamespace(load_dataset=lambda *a, **k: 1 / 0)
    )
    with refuses(DataError, "cannot-be-read", "data.hub"):
        load_samples({"source": "cifar10", "hub": True})


def test_synthetic_is_fixed_by_its_seed_and_dealt_by_client() -> None:
    a = synthetic(clients=12)
    b = synthetic(clients=12)
    c = synthetic(clients=12, seed=1)
    assert torch.equal(a.x, b.x)
    assert len(a) != len(c)
    assert np.bincount(a.columns["client"]).min() >= 50
    p = load_population({"source": "synthetic", "clients": 12}, {"kind": "natural"}, key=Key(0))
    assert p.names == tuple(map(str, range(12)))
    whole = p.sizes("train") + p.sizes("test")
    assert p.sizes("train").tolist() == [int(0.9 * n) for n in whole]


def test_synthetic_has_the_variances_of_the_recipe() -> None:
    s = synthetic(clients=200, alpha=0, beta=0, seed=2)
    client = s.columns["client"]
    biggest = s.x[torch.from_numpy(client == np.bincount(client).argmax())]
    np.testing.assert_allclose(biggest.var(0), np.arange(1, 61) ** -1.2, rtol=0.15)
    means = np.stack([s.x[torch.from_numpy(client == k)].mean(0).numpy() for k in range(200)])
    assert abs(means.std() - 1) < 0.05
    iid = synthetic(clients=20, iid=True)
    assert abs(float(iid.x.mean())) < 0.02


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "rows"), [("mnist", 70_000), ("femnist", 45_958)])
def test_real_files_load(name: str, rows: int) -> None:
    s = load_samples({"source": name}, root=real_data(name))
    assert tuple(s.x.shape) == (rows, 1, 28, 28)
    assert len(np.unique(s.columns["writer_id"])) == {"mnist": 836, "femnist": 300}[name]
    if name == "mnist":
        assert np.bincount(s.y.numpy()[:60_000]).tolist() == [
            *(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
        ]
        assert abs(float(s.x.mean())) < 1e-4
