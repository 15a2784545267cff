"""Image files to pixels: one decoder for folders, columns of bytes and nodes.

Pillow reads them, and these are the rules:

- Every format that Pillow reads is taken; of several frames the first counts.
- An image is turned as its EXIF orientation says.
- What is transparent shows white, as on paper.
- Images are grey or in colour, and have 8 or 16 bits. The widest of all files decides for all: a
  grey one among coloured ones is grey in each colour, whatever the order of the files.
- Pillow reads colours of 16 bits with 8 of them.
"""

from __future__ import annotations

import mimetypes
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coterie.data.images.pixels import Pixels, unit
from coterie.errors import Code, DataError, first_line

if TYPE_CHECKING:
    from PIL.Image import Image

# Counts the changes of the rules above: pixels that were kept by other rules are decoded again.
RULES = 2

# Of one image: a file of a few kilobytes may have hundreds of millions.
MOST_PIXELS = 4096 * 4096

# EPS would run Ghostscript on a file that may be hostile; of the others Pillow reads the header
# alone.
_LEFT_OUT = {"EPS", "BUFR", "GRIB", "HDF5", "MPEG", "WMF"}
_COMMON = ("PNG", "JPEG")
_GREY = ("1", "L", "LA", "La")
_DEEPEST = 65535
_UNREADABLE = "not an image that Pillow can read"

Encoded = bytes | Path
Source = tuple[str, str]  # of an error: a file, and what of it is wrong


@cache
def _formats() -> tuple[str, ...]:
    from PIL import Image

    Image.init()
    # Formats that their first bytes identify come first: others try to read the whole header.
    names = dict.fromkeys((*_COMMON, *Image.ID))
    return tuple(name for name in names if name not in _LEFT_OUT)


@cache
def _suffixes() -> frozenset[str]:
    from PIL import Image

    formats = _formats()
    known = Image.registered_extensions().items()
    return frozenset(suffix for suffix, name in known if name in formats)


def images_in(folder: Path, pattern: str) -> list[Path]:
    """The image files of a folder by a pattern, in the order of their names.

    What is hidden is left out. An image that Pillow cannot read is refused: it would be missed.
    """
    return sorted(file for file in folder.glob(pattern) if _is_image(file, folder))


def is_hidden(file: Path, folder: Path) -> bool:
    """Whether a file of a folder, or a folder that it is in there, is hidden: such as the ._1.png that
    macOS leaves, or .ipynb_checkpoints, which would be a class."""
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def _is_image(file: Path, folder: Path) -> bool:
    if is_hidden(file, folder):
        return False
    if file.suffix.lower() in _suffixes():
        return True
    kind, _ = mimetypes.guess_type(file.name)
    if kind is not None and kind.startswith("image/"):
        expected = ".png, .jpg or another format that Pillow can read"
        raise DataError("cannot-be-read", file, found=file.suffix, allowed=expected)
    return False


# --- all images -----------------------------------------------------------------------------------


def decode(images: Sequence[Encoded], source: Source = ("data", "image")) -> Pixels:
    """Images of one size as ``[S, channels, height, width]``: uint8, or float32 in 0 to 1 where one
    of them has 16 bits.

    Args:
        images: files, or their bytes.
        source: where bytes come from, for error messages: a file, and a part of it.
    """
    form = _Form(1, deep=False)
    out: Pixels = np.empty((0, 1, 0, 0), np.uint8)
    for row, image in enumerate(images):
        with _opened(image, _where(image, row, source)) as opened:
            wider = form.widened(opened)
            if wider != form:
                form, out = wider, wider.brought(out).copy()
            pixels = form.pixels(opened, _where(image, row, source))
        if row == 0:
            out = np.empty((len(images), *pixels.shape), pixels.dtype)
        _check_shape(pixels, out.shape[1:], images, row, source)
        out[row] = pixels
    return out


def decode_each(images: Sequence[Encoded], source: Source = ("data", "image")) -> Iterator[Pixels]:
    """The same, one ``[channels, height, width]`` after another, so each file is opened twice."""
    form = _Form(1, deep=False)
    for row, image in enumerate(images):
        with _opened(image, _where(image, row, source)) as opened:
            form = form.widened(opened)
    shape = None
    for row, image in enumerate(images):
        with _opened(image, _where(image, row, source)) as opened:
            pixels = form.pixels(opened, _where(image, row, source))
        shape = shape or pixels.shape
        _check_shape(pixels, shape, images, row, source)
        yield pixels


def _check_shape(
    pixels: Pixels, shape: tuple[int, ...], images: Sequence[Encoded], row: int, source: Source
) -> None:
    if pixels.shape != shape:
        first = ": ".join(filter(None, _where(images[0], 0, source)))
        what = f"shape {pixels.shape}"
        where = _where(images[row], row, source)
        raise _image_error("wrong-shape", where, what, f"{shape}, as {first}")


@dataclass(frozen=True, slots=True)
class _Form:
    """What all images are brought to.

    Args:
        deep: whether they have 16 bits.
    """

    channels: int
    deep: bool

    def widened(self, image: Image) -> _Form:
        """The form that also holds all that is in an image."""
        deep = _is_deep(image)
        channels = 1 if deep or image.mode in _GREY else 3
        return _Form(max(self.channels, channels), self.deep or deep)

    def pixels(self, image: Image, where: Source) -> Pixels:
        """An image as ``[channels, height, width]``."""
        from PIL import ImageOps

        ImageOps.exif_transpose(image, in_place=True)
        pixels = _deep_pixels(image, where) if _is_deep(image) else _pixels(image)
        return self.brought(pixels[None])[0]

    def brought(self, pixels: Pixels) -> Pixels:
        """Pixels of a narrower form, ``[S, channels, height, width]``, in this one."""
        if self.deep and pixels.dtype == np.uint8:
            pixels = unit(pixels)
        rows, channels, *size = pixels.shape
        if channels == self.channels:
            return pixels
        return np.broadcast_to(pixels, (rows, self.channels, *size))


# --- one image ------------------------------------------------------------------------------------


def _where(image: Encoded, row: int, source: Source) -> Source:
    if isinstance(image, Path):
        return str(image), ""
    path, what = source
    return path, f"{what}: row {row}"


def _image_error(code: Code, where: Source, what: str, expected: str = "") -> DataError:
    path, place = where
    return DataError(code, path, ": ".join(filter(None, (place, what))), allowed=expected)


@contextmanager
def _opened(image: Encoded, where: Source) -> Iterator[Image]:
    """An image whose header was read; what fails with it is one line."""
    from PIL import Image, UnidentifiedImageError

    try:
        # Not by its name: Pillow 13 maps some files then, and garbles a TIFF that is to be turned.
        source = BytesIO(image) if isinstance(image, bytes) else image.open("rb")
        with source, warnings.catch_warnings():
            # Of large images and of odd metadata, which a user can do nothing about.
            warnings.simplefilter("ignore")
            with Image.open(source, formats=_formats()) as opened:
                _check_header(opened, where)
                yield opened
    except UnidentifiedImageError:
        # Its text has an address in memory.
        raise _image_error("cannot-be-read", where, _UNREADABLE) from None
    except (
        *(OSError, ValueError, SyntaxError, TypeError, IndexError, KeyError, EOFError),
        *(struct.error, Image.DecompressionBombError),
    ) as error:
        what = f"{_UNREADABLE} ({first_line(error)})"
        raise _image_error("cannot-be-read", where, what) from None


def _check_header(image: Image, where: Source) -> None:
    """Refuse an image that would fill the memory, before it is decoded, and one without a scale."""
    width, height = image.size
    if width * height > MOST_PIXELS:
        got = f"{width} x {height} pixels ({width * height / 1e6:.0f} million)"
        most = f"at most {MOST_PIXELS / 1e6:.0f} million, such as 4096 x 4096"
        raise _image_error("out-of-range", where, f"too large, {got}", most)
    if image.mode == "F":
        what = "floating-point pixels, whose scale is unknown"
        raise _image_error("wrong-type", where, what, "8 or 16 bits")


def _is_deep(image: Image) -> bool:
    # 16 bits are "I;16" in one of several orders of bytes, or as "I" in 32 bits.
    return image.mode.startswith("I")


def _deep_pixels(image: Image, where: Source) -> Pixels:
    """An image with 16 bits, float32 ``[1, height, width]`` in 0 to 1."""
    values = np.asarray(image)
    low = int(values.min())
    high = int(values.max())
    if low < 0 or high > _DEEPEST:
        what = f"32 bits, with pixels from {low} to {high}"
        raise _image_error("out-of-range", where, what, f"0 to {_DEEPEST}")
    pixels = values.astype(np.float32)
    pixels /= _DEEPEST
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        pixels[values == transparent] = 1
    return pixels[None]


def _pixels(image: Image) -> Pixels:
    """An image with 8 bits, uint8 ``[1 or 3, height, width]``."""
    from PIL import Image as pillow

    mode = "L" if image.mode in _GREY else "RGB"
    if image.has_transparency_data:
        page = pillow.new("RGBA", image.size, "white")
        page.alpha_composite(image.convert("RGBA"))
        image = page
    if image.mode != mode:
        image = image.convert(mode)
    pixels = np.asarray(image)
    if mode == "L":
        return pixels[None]
    return pixels.transpose(2, 0, 1)
