"""Folders of images, which are read from a disk when they are needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import coterie as ct
from coterie.data import load_population, load_samples
from coterie.errors import DataError
from tests.refusals import refuses

CLIENTS = ("ann", "bob", "cyd", "dan")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "coterie" / "mapped"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``CLIENT/CLASS/NUMBER.png``: bright cats and dark dogs, 12 of each for each client."""
    rng = np.random.default_rng(0)
    for client in CLIENTS:
        for label, level in (("cat", 170), ("dog", 60)):
            place = tmp_path / "scans" / client / label
            place.mkdir(parents=True)
            for number in range(12):
                pixels = rng.integers(level - 50, level + 50, (8, 8), np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")
    return tmp_path / "scans"


def source(folder: Path, layout: str = "client/label") -> dict[str, str]:
    return {"source": "image_folder", "path": str(folder), "layout": layout}


def test_folders_say_whose_images_they_are_and_what_they_show(folder: Path, cache: Path) -> None:
    samples = load_samples(source(folder))
    assert samples.x.shape == (96, 1, 8, 8)
    assert samples.label_names == ("cat", "dog")
    assert samples.columns["client"].tolist()[::24] == list(CLIENTS)
    first = np.asarray(Image.open(folder / "ann" / "cat" / "0.png"), np.float32) / 255
    assert samples.x[0, 0].tolist() == first.tolist()
    (kept,) = cache.iterdir()
    assert kept.stat().st_size == 128 + 4 * samples.x.numel()
    # The file itself is mapped, and what is written to the tensor does not reach it.
    assert kept.name in Path("/proc/self/maps").read_text()
    samples.x[0] = -1.0
    assert load_samples(source(folder)).x[0, 0].tolist() == first.tolist()


def test_spellings_and_other_files_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ann").rename(folder / "Bob")
    (folder / "dan" / "cat").rename(folder / "dan" / "Cat")
    (folder / "cyd" / "dog" / "scan.dcm").write_bytes(b"x")
    # What is hidden is left out without a word.
    hidden = folder / "cyd" / ".checkpoints"
    hidden.mkdir()
    (hidden / "1.png").write_bytes(b"x")
    load_samples(source(folder))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    for words in ("'Bob' and 'bob'", "'Cat' and 'cat'", "1 .dcm"):
        assert sum(words in line for line in lines) == 1


def test_an_image_that_changes_is_decoded_again(folder: Path, cache: Path) -> None:
    before = load_samples(source(folder)).x
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "ann" / "cat" / "0.png")
    after = load_samples(source(folder)).x
    assert after[0].max() == 0
    assert torch.equal(after[1:], before[1:])
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("model", ["resnet8", "mclr"])
def test_a_run_has_the_bits_of_one_in_memory(folder: Path, model: str) -> None:
    mapped = load_population(source(folder), {"kind": "natural", "column": "client"}, key=ct.Key(0))
    assert mapped.on_disk
    held = ct.Population(
        mapped.x.clone(), mapped.y, mapped.train, mapped.test, mapped.classes, mapped.names
    )
    settings = {
        "model": model,
        "local": ct.Solver(epochs=1, batch_size=12, lr=0.1),
        "rounds": 2,
        "clients_per_round": 3,
        "engine": "serial",
    }
    first, second = (ct.run(ct.ifca(groups=2), data=data, **settings) for data in (mapped, held))
    assert torch.equal(first.state.models, second.state.models)
    assert [row["accuracy"] for row in first.rows] == [row["accuracy"] for row in second.rows]


def test_a_split_of_folders_is_kept(folder: Path, tmp_path: Path) -> None:
    base = tmp_path / "split"
    (base / "train").mkdir(parents=True)
    (folder / "ann").rename(base / "test")
    (folder / "bob" / "cat").rename(base / "train" / "cat")
    (folder / "cyd" / "dog").rename(base / "train" / "dog")
    samples = load_samples(source(base, "split/label"))
    assert (samples.train_rows, len(samples)) == (24, 48)
    assert samples.y[:24].tolist() == [0] * 12 + [1] * 12


def test_what_is_wrong_is_one_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refuses(DataError, "not-found", "data.path"):
        load_samples(source(tmp_path / "nowhere"))
    with refuses(DataError, "wrong-shape", "data.layout"):
        load_samples(source(folder, "label"))
    with refuses(DataError, "wrong-type", "data.layout"):
        load_samples(source(folder, "client"))
    with refuses(DataError, "does-not-fit", "data.layout"):
        load_samples(source(folder, "split/label"))
    large = folder / "bob" / "cat" / "3.png"
    Image.fromarray(np.zeros((9, 8), np.uint8)).save(large)
    with refuses(DataError, "wrong-shape", "3.png"):
        load_samples(source(folder))
    large.write_text("no image")
    with refuses(DataError, "cannot-be-read", "3.png"):
        load_samples(source(folder))
    large.unlink()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.lib.format.write_array_header_1_0", full)
    with refuses(DataError, "cannot-be-written", "data.path"):
        load_samples(source(folder))
