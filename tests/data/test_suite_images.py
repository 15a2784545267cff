"""Images of every mode and format, and files that mix them: the same pixels to every reader.

What is right is computed here: Pillow decodes each file alone, and the rules of `docs/tables.md` are
written out in a few lines of NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from PIL import Image

import coterie as ct
from coterie.data.tabular.raw import Origin
from coterie.errors import DataError
from coterie.runs.stored import make_record
from tests.data.all_readers import (
    ALL_CASES,
    CLIENT,
    LABEL,
    Case,
    Read,
    differing,
    exported,
    load,
    node,
    prediction,
    refuse_any,
    training,
)

MIXTURES = 40
CLIENTS = ["a", "b", "a", "b", "a"]
LABELS = ["a", "b", "b", "a", "a"]
HEIGHT = 3
WIDTH = 5
ORIENTATION = 0x0112
# How rows and columns of a stored image become those of the picture, by its EXIF orientation.
TURNS = {
    1: lambda one: one,
    2: lambda one: one[:, ::-1],
    3: lambda one: one[::-1, ::-1],
    4: lambda one: one[::-1],
    5: lambda one: one.swapaxes(0, 1),
    6: lambda one: one.swapaxes(0, 1)[:, ::-1],
    7: lambda one: one[::-1, ::-1].swapaxes(0, 1),
    8: lambda one: one.swapaxes(0, 1)[::-1],
}
Pixels = NDArray[np.float64]
FORMATS = {
    "png": {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"},
    "tif": {"1", "L", "LA", "P", "RGB", "RGBA", "I;16", "CMYK"},
    "bmp": {"1", "L", "P", "RGB"},
    "webp": {"RGB", "RGBA"},
    "jpg": {"L", "RGB", "CMYK"},
    "gif": {"L", "P"},
}


def picture(mode: str, rng: np.random.Generator, shape: tuple[int, int]) -> Image.Image:
    """An image of some mode with random pixels."""
    if mode == "I;16":
        return Image.fromarray(rng.integers(0, 2**16, shape).astype(np.uint16))
    if mode == "1":
        return Image.fromarray(rng.random(shape) < 0.5)
    if mode == "P":
        colours = picture("RGB", rng, shape)
        return colours.quantize(8)
    channels = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    values = rng.integers(0, 256, (*shape, channels)).astype(np.uint8)
    return Image.fromarray(values[..., 0] if channels == 1 else values, mode)


def right_pixels(content: bytes) -> Pixels:
    """The pixels of a file in 0 to 1, ``[height, width]`` or ``[height, width, 3]``, as the page
    says them: turned, on white, 16 bits as such."""
    with Image.open(BytesIO(content)) as stored:
        stored.load()
        turn = TURNS[stored.getexif().get(ORIENTATION, 1)]
        if stored.mode.startswith("I"):
            return turn(np.asarray(stored).astype(np.float64) / 65535)
        if stored.mode in ("1", "L"):
            return turn(np.asarray(stored.convert("L")).astype(np.float64) / 255)
        if stored.mode == "LA":
            values = np.asarray(stored).astype(np.float64) / 255
            return turn(values[..., 0] * values[..., 1] + 1 - values[..., 1])
        if not stored.has_transparency_data:
            return turn(np.asarray(stored.convert("RGB")).astype(np.float64) / 255)
        values = np.asarray(stored.convert("RGBA")).astype(np.float64) / 255
        alpha = values[..., 3:]
        return turn(values[..., :3] * alpha + 1 - alpha)


def stored(mode: str, suffix: str, rng: np.random.Generator) -> bytes:
    """A file that shows a picture of the same size, however it is stored."""
    orientation = int(rng.integers(1, 9)) if suffix in ("png", "tif", "jpg", "webp") else 1
    shape = (WIDTH, HEIGHT) if orientation > 4 else (HEIGHT, WIDTH)
    options: dict[str, Any] = {"lossless": True} if suffix == "webp" else {}
    if suffix == "tif" and mode != "1":
        options["compression"] = str(rng.choice(["raw", "tiff_lzw", "tiff_deflate"]))
    if suffix == "png" and mode == "P" and rng.random() < 0.5:
        options["transparency"] = int(rng.integers(8))
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    file = BytesIO()
    kind = Image.registered_extensions()[f".{suffix}"]
    if orientation > 1:
        options["exif"] = exif
    picture(mode, rng, shape).save(file, kind, **options)
    return file.getvalue()


def right_inputs(contents: Sequence[bytes]) -> NDArray[np.float32]:
    """All of them with the channels of the widest, float32 ``[n, channels, height, width]``."""
    each = [right_pixels(content) for content in contents]
    if any(one.ndim == 3 for one in each):
        each = [one if one.ndim == 3 else np.stack([one] * 3, axis=2) for one in each]
    else:
        each = [one[..., None] for one in each]
    return np.stack(each).transpose(0, 3, 1, 2).astype(np.float32)


@dataclass(frozen=True)
class Nearly(Read):
    """Where Pillow rounds what shows through to a step of 255."""

    def differences(self, right: Read) -> Iterator[str]:
        same = self.values.shape == right.values.shape
        if same and np.abs(self.values - right.values).max() < 1.01 / 255:
            yield from replace(right, labels=self.labels, clients=self.clients).differences(right)
        else:
            yield from super().differences(right)


def sets(folder: Path) -> Iterator[tuple[str, list[str], list[bytes]]]:
    """Each mode of each format alone, and mixtures."""
    rng = np.random.default_rng(0)
    pairs = [(mode, suffix) for suffix, modes in FORMATS.items() for mode in sorted(modes)]
    for mode, suffix in pairs:
        yield f"{mode} {suffix}", [suffix] * 5, [stored(mode, suffix, rng) for _ in range(5)]
    for at in range(MIXTURES):
        chosen = [pairs[one] for one in rng.integers(len(pairs), size=5)]
        yield (
            f"mixture {at} {chosen}",
            [one for _, one in chosen],
            [stored(*one, rng) for one in chosen],
        )


def sources(place: Path, suffixes: list[str], contents: list[bytes]) -> dict[str, Any]:
    """The same images as a column of bytes or of records, in files and frames, and in a folder."""
    place.mkdir()
    columns: dict[str, Any] = {"site": CLIENTS, "y": LABELS}
    frame = pd.DataFrame({"x": contents, **columns})
    records = frame.assign(x=[{"bytes": content, "path": "a"} for content in contents])
    frame.to_parquet(place / "bytes.parquet")
    records.to_parquet(place / "records.parquet")
    for at, (suffix, content) in enumerate(zip(suffixes, contents, strict=True)):
        path = place / "folder" / "cat" / f"{at}.{suffix.upper() if at % 2 else suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return {
        "bytes": place / "bytes.parquet",
        "records": place / "records.parquet",
        "frame": records,
        "table": pa.Table.from_pandas(frame),
        "folder": place / "folder",
    }


@ALL_CASES
def test_images_of_every_mode_and_format(
    all_cases: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    columns = []
    folders = []
    for at, (name, suffixes, contents) in enumerate(sets(tmp_path)):
        inputs = right_inputs(contents)
        record = make_record(None, Origin(LABEL, CLIENT), ("a", "b"), inputs.shape[1:])
        for form, source in sources(tmp_path / str(at), suffixes, contents).items():
            right = Read(inputs, CLIENTS, LABELS)
            case = Case(f"{name}: {form}", source, right, {**record, "features": "x"})
            (folders if form == "folder" else columns).append(case)

    def of_folder(case: Case) -> Read:
        partition = {"kind": "iid", "clients": 2, "test_fraction": 0.2}
        made = ct.load("image_folder", path=str(case.source), partition=partition)
        return Nearly(made.x.numpy(), None, LABELS)

    def refused(case: Case) -> Read:
        # Pillow is no part of an export.
        with pytest.raises(DataError) as caught:
            of_export(case.source, case.record)
        assert "\n" not in str(caught.value)
        return case.right

    def nearly(found: Read) -> Read:
        return Nearly(found.values, found.clients, found.labels)

    with exported(tmp_path) as of_export:
        refuse_any(
            [
                *differing(
                    columns, lambda one: nearly(training(load(one.source))), "train", all_cases
                ),
                *differing(
                    columns,
                    lambda one: nearly(prediction(one.source, one.record)),
                    "predict",
                    all_cases,
                ),
                *differing(columns, refused, "export", all_cases),
                *differing(folders, of_folder, "folder", all_cases),
                *differing(
                    folders,
                    lambda one: replace(nearly(node(one.source, ("cat",))), labels=LABELS),
                    "node",
                    all_cases,
                ),
            ]
        )
