"""Images by Pillow's own rules: the same pixels from a folder, a column, in predictions and at a node."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image

from coterie.data import load_samples
from coterie.data.images import cache, decoding
from coterie.data.images.decoding import decode
from coterie.data.tabular.raw import Origin
from coterie.errors import Code, DataError
from coterie.export.table_files import read_rows_for_run, write_readers
from coterie.flower.node.node_source import read_node_data
from coterie.runs.stored import make_record
from tests.refusals import refuses

# A stored image: how its file is called, and its bytes.
Stored = tuple[str, bytes]
Pixels = NDArray[np.float32]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def stored(image: Image.Image, name: str = "a.png", **options: Any) -> Stored:
    file = BytesIO()
    image.save(file, Image.registered_extensions()[Path(name).suffix.lower()], **options)
    return name, file.getvalue()


def grey(value: int = 51) -> Image.Image:
    return Image.new("L", (4, 3), value)


def deep(value: int = 1000) -> Image.Image:
    return Image.fromarray(np.full((3, 4), value, np.uint16))


def colour(value: tuple[int, int, int] = (255, 0, 51)) -> Image.Image:
    return Image.new("RGB", (4, 3), value)


def turned(kind: str = "a.jpg") -> Stored:
    """A picture that was taken upright, and is stored lying with the orientation 6."""
    picture = Image.new("L", (4, 3))
    picture.paste(255, (0, 0, 4, 1))
    exif = Image.Exif()
    exif[0x0112] = 6
    return stored(picture, kind, exif=exif)


# --- five ways to read the same images ---------------------------------------------------------------


def from_folder(images: Sequence[Stored], place: Path) -> Pixels:
    for row, (name, content) in enumerate(images):
        folder = place / "folder" / "cat"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{row}{Path(name).suffix}").write_bytes(content)
    return load_samples({"source": "image_folder", "path": str(place / "folder")}).x.numpy()


def from_column(images: Sequence[Stored], place: Path) -> Pixels:
    values = [content for _, content in images]
    pq.write_table(pa.table({"x": values, "y": [0] * len(values)}), place / "images.parquet")
    return load_samples({"source": "file", "path": str(place / "images.parquet")}).x.numpy()


def from_node(images: Sequence[Stored], place: Path) -> Pixels:
    for row, (name, content) in enumerate(images):
        (place / "node").mkdir(exist_ok=True)
        (place / "node" / f"{row}{Path(name).suffix}").write_bytes(content)
    (inputs, _), _ = read_node_data({"data": str(place / "node"), "unlabelled": True}, None)
    return inputs


def from_labelled_node(images: Sequence[Stored], place: Path) -> Pixels:
    for row, (name, content) in enumerate(images):
        # The last one is the test data.
        part = "test" if row and row == len(images) - 1 else "train"
        folder = place / "labelled" / part / "cat"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{row}{Path(name).suffix}").write_bytes(content)
    (inputs, _), test = read_node_data({"data": str(place / "labelled")}, ("cat",))
    assert test is not None
    return np.concatenate([inputs, test[0]])


def from_prediction(images: Sequence[Stored], place: Path) -> Pixels:
    shape = from_column(images, place).shape[1:]
    record = make_record(None, Origin(), ("0",), shape) | {"features": "x"}
    return read_rows_for_run(place / "images.parquet", record, "file").x.numpy()


READERS = (from_prediction, from_folder, from_column, from_node, from_labelled_node)
Reader = Callable[[Sequence[Stored], Path], Pixels]
WHITE = (1.0, 1.0, 1.0)

# The images, and the first pixel of each as it is right.
CASES: dict[str, tuple[list[Stored], list[Sequence[float]]]] = {
    "16 bits": ([stored(deep())], [[1000 / 65535]]),
    "16 bits as TIFF": ([stored(deep(), "a.tif")], [[1000 / 65535]]),
    "16 bits as PGM": ([stored(deep(), "a.pgm")], [[1000 / 65535]]),
    "all of 16 bits": ([stored(deep(0)), stored(deep(65535))], [[0.0], [1.0]]),
    "8 bits beside 16": ([stored(grey()), stored(deep())], [[0.2], [1000 / 65535]]),
    "16 bits and colour": (
        [stored(deep()), stored(colour())],
        [[1000 / 65535] * 3, (1.0, 0.0, 0.2)],
    ),
    "grey first, colour later": ([stored(grey()), stored(colour())], [[0.2] * 3, (1.0, 0.0, 0.2)]),
    "colour first, grey later": ([stored(colour()), stored(grey())], [(1.0, 0.0, 0.2), [0.2] * 3]),
    "black and white": ([stored(Image.new("1", (4, 3), 1))], [[1.0]]),
    "transparent": ([stored(Image.new("RGBA", (4, 3), (255, 0, 0, 0)))], [WHITE]),
    "opaque": ([stored(Image.new("RGBA", (4, 3), (255, 0, 51, 255)))], [(1.0, 0.0, 0.2)]),
    "half transparent": ([stored(Image.new("RGBA", (4, 3), (0, 0, 0, 51)))], [(0.8, 0.8, 0.8)]),
    "transparent grey": ([stored(Image.new("LA", (4, 3), (0, 0)))], [[1.0]]),
    "opaque grey": ([stored(Image.new("LA", (4, 3), (51, 255)))], [[0.2]]),
    "transparent by its value": ([stored(grey(), transparency=51)], [[1.0]]),
    "16 bits transparent by its value": ([stored(deep(), transparency=1000)], [[1.0]]),
    "palette": ([stored(colour().quantize(2))], [(1.0, 0.0, 0.2)]),
    "palette and transparent": ([stored(colour().quantize(2), transparency=0)], [WHITE]),
    "CMYK": ([stored(Image.new("CMYK", (4, 3), (0, 255, 0, 0)), "a.tif")], [(1.0, 0.0, 1.0)]),
    "BMP": ([stored(grey(), "a.bmp")], [[0.2]]),
    "TIFF": ([stored(grey(), "a.TIFF")], [[0.2]]),
    "GIF": ([stored(colour(), "a.gif")], [(1.0, 0.0, 0.2)]),
    "WebP": ([stored(colour(), "a.webp", lossless=True)], [(1.0, 0.0, 0.2)]),
    "upper case": ([stored(grey(), "a.PNG")], [[0.2]]),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("case", CASES)
def test_every_mode_is_read_as_it_is_right_by_every_reader(
    case: str, read: Reader, tmp_path: Path
) -> None:
    images, expected = CASES[case]
    x = read(images, tmp_path)
    assert x.dtype == np.float32
    assert x.shape[2:] == (3, 4)
    np.testing.assert_allclose(x[:, :, 0, 0], np.array(expected), rtol=1e-6)


def test_an_export_refuses_images_in_one_line(tmp_path: Path) -> None:
    from_column([stored(grey())], tmp_path)
    write_readers(tmp_path)
    record = make_record(None, Origin(), ("0",), (1, 3, 4)) | {"features": "x"}
    (tmp_path / "columns.json").write_text(json.dumps(record))
    call = [sys.executable, "-c", "import inputs; inputs.inputs('images.parquet')"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "DataError: images.parquet: column x:" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("kind", ["a.jpg", "a.png", "a.tif", "a.webp"])
def test_an_image_is_turned_as_it_was_taken(read: Reader, kind: str, tmp_path: Path) -> None:
    x = read([turned(kind)], tmp_path)
    assert x.shape == (1, 1, 4, 3) or (kind == "a.webp" and x.shape == (1, 3, 4, 3))
    # The bright row of the stored image is the last column.
    assert (x[..., 2] > 0.9).all()
    assert (x[..., :2] < 0.1).all()


@pytest.mark.parametrize(
    "suffix", sorted(decoding._suffixes() & set(Image.registered_extensions()))
)
def test_every_kind_that_pillow_reads_and_writes(suffix: str, tmp_path: Path) -> None:
    try:
        with warnings.catch_warnings():
            # Of formats that a later Pillow will not know.
            warnings.simplefilter("ignore", DeprecationWarning)
            image = stored(colour(), f"a{suffix}")
            with Image.open(BytesIO(image[1])) as opened:
                expected = np.asarray(opened.convert("RGB"), np.float32) / 255
    except (KeyError, OSError, ValueError) as error:
        pytest.skip(f"Pillow writes no colour to it: {error}")
    x = from_folder([image], tmp_path)
    np.testing.assert_array_equal(x[0].transpose(1, 2, 0), expected)


@pytest.mark.parametrize(
    ("image", "code"),
    [
        (stored(Image.new("F", (4, 3)), "a.tif"), "wrong-type"),
        (stored(Image.new("I", (4, 3), 70_000), "a.tif"), "out-of-range"),
        (stored(Image.new("I", (4, 3), -1), "a.tif"), "out-of-range"),
        (("a.png", b""), "cannot-be-read"),
        (("a.png", stored(grey())[1][:50]), "cannot-be-read"),
        # Pillow would start Ghostscript on it.
        (stored(colour(), "a.eps"), "cannot-be-read"),
    ],
)
@pytest.mark.parametrize("read", [from_folder, from_column, from_node])
def test_what_has_no_scale_or_is_damaged_is_one_line(
    image: Stored, code: Code, read: Reader, tmp_path: Path
) -> None:
    _, content = image
    with refuses(DataError, code, "images.parquet" if read is from_column else "1.png") as caught:
        read([stored(grey()), ("a.png", content)], tmp_path)
    assert "\n" not in str(caught.value)
    assert "object at" not in str(caught.value)


@pytest.mark.parametrize("name", ["1.heic", "1.svg"])
def test_an_image_that_pillow_cannot_read_is_not_left_out_in_silence(
    name: str, tmp_path: Path
) -> None:
    from_folder([stored(grey())], tmp_path)
    (tmp_path / "folder" / "cat" / name).write_bytes(b"image")
    with refuses(DataError, "cannot-be-read", name):
        load_samples({"source": "image_folder", "path": str(tmp_path / "folder")})


def test_what_is_hidden_and_what_is_no_image_is_left_out(tmp_path: Path) -> None:
    from_folder([stored(grey())], tmp_path)
    folder = tmp_path / "folder"
    (folder / "cat" / "._0.png").write_bytes(b"what macOS leaves")
    (folder / "cat" / "notes.txt").write_text("of the cat")
    (folder / ".checkpoints").mkdir()
    (folder / ".checkpoints" / "0.png").write_bytes(b"no class")
    samples = load_samples({"source": "image_folder", "path": str(folder)})
    assert (len(samples), samples.label_names) == (1, ("cat",))


def test_pixels_of_8_bits_are_kept_as_bytes() -> None:
    eight = decode([stored(grey())[1], stored(colour())[1]])
    assert (eight.dtype, eight.shape) == (np.uint8, (2, 3, 3, 4))
    assert decode([stored(grey())[1], stored(deep())[1]]).dtype == np.float32


@pytest.mark.parametrize("read", [from_folder, from_column])
def test_pixels_that_older_rules_kept_are_decoded_again(
    read: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read([stored(deep())], tmp_path)
    source = {"source": "file", "path": str(tmp_path / "images.parquet")}
    if read is from_folder:
        source = {"source": "image_folder", "path": str(tmp_path / "folder")}
    folder = tmp_path / "cache" / "coterie"
    kept = set(folder.rglob("*.npy"))
    assert len(kept) == 1
    load_samples(source)
    assert set(folder.rglob("*.npy")) == kept
    monkeypatch.setattr(cache, "RULES", decoding.RULES + 1)
    load_samples(source)
    assert len(set(folder.rglob("*.npy")) - kept) == 1


def test_a_mapped_file_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    first = from_folder([stored(grey())], tmp_path).copy()
    (kept,) = (tmp_path / "cache" / "coterie" / "mapped").iterdir()
    whole = kept.read_bytes()
    for damaged in (b"", whole[:50], whole[:-4], b"\x93NUMPY" + whole[9:]):
        kept.write_bytes(damaged)
        np.testing.assert_array_equal(from_folder([stored(grey())], tmp_path), first)


@pytest.mark.parametrize("pixels", ["unit", "inverted", "standardised"])
def test_a_test_split_in_colour_beside_a_grey_one(pixels: str, tmp_path: Path) -> None:
    for split, image in (("train", grey()), ("test", colour())):
        (tmp_path / "mnist").mkdir(exist_ok=True)
        table = pa.table({"image": [stored(image)[1]] * 2, "label": [0, 1]})
        pq.write_table(table, tmp_path / "mnist" / f"{split}.parquet")
    x = load_samples({"source": "mnist", "pixels": pixels}, root=tmp_path).x
    assert x.shape == (4, 3, 3, 4)
    assert x[0, 0].equal(x[0, 2]) or pixels == "standardised"
