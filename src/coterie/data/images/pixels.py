"""Encoded images to pixels, and pixels to inputs, in little memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from coterie.errors import DataError, first_line

Pixels = NDArray[np.uint8]
Values = NDArray[np.float32]

# Images at a time. A float32 sum of so many squares is exact: 256 * 255^2 < 2^24.
BLOCK = 256

# Of one image: a file of a few kilobytes may have hundreds of millions.
MOST_PIXELS = 4096 * 4096

# What is added to a standard deviation, so that constant pixels are not divided by zero. FedProx's
# and Ditto's generators do the same.
_EPSILON = np.float32(0.001)


def decode(blobs: Sequence[bytes], what: str = "image", mode: str | None = None) -> Pixels:
    """Decode PNG or JPEG files of one size, uint8 ``[S, channels, height, width]``; 1 channel if
    the first image is grey, else 3.

    Args:
        mode: that all images are converted to, see `mode_of`; by default that of the first.
    """
    from PIL import Image

    with warnings.catch_warnings():
        # Of large images, which are refused here in a line.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return _decode_all(blobs, what, mode)


def _decode_all(blobs: Sequence[bytes], what: str, mode: str | None) -> Pixels:
    if mode is None:
        # The first image decides for all: a grey one among coloured ones is converted, not refused.
        mode = mode_of(blobs[0], what)
    first = _decode_one(blobs, 0, mode, what)
    out = np.empty((len(blobs), *first.shape), np.uint8)
    for row in range(len(blobs)):
        pixels = _decode_one(blobs, row, mode, what)
        if pixels.shape != out.shape[1:]:
            raise DataError(
                f"{what}: row {row} has shape {pixels.shape}; expected {out.shape[1:]} as in row 0"
            )
        out[row] = pixels
    return out


def _decode_one(blobs: Sequence[bytes], row: int, mode: str, what: str) -> Pixels:
    """One image as ``[channels, height, width]``."""
    from PIL import Image

    try:
        # Only these two: Pillow's rarer formats have had holes that a hostile file could use.
        with Image.open(BytesIO(blobs[row]), formats=("PNG", "JPEG")) as image:
            _check_pixels(image.size, row, what)
            if image.mode == mode:
                pixels = np.asarray(image)
            else:
                pixels = np.asarray(image.convert(mode))
    except (OSError, ValueError, SyntaxError, TypeError, Image.DecompressionBombError) as error:
        raise _not_an_image(what, row, error) from None
    if pixels.ndim == 2:
        return pixels[None]
    return pixels.transpose(2, 0, 1)


def _check_pixels(size: tuple[int, int], row: int, what: str) -> None:
    """Refuse an image that would fill the memory, by its header and before it is decoded."""
    width, height = size
    if width * height > MOST_PIXELS:
        got = f"{width} x {height} pixels ({width * height / 1e6:.0f} million)"
        most = f"at most {MOST_PIXELS / 1e6:.0f} million, as 4096 x 4096"
        raise DataError(f"{what}: row {row} is too large, got {got}; expected {most}")


def mode_of(blob: bytes, what: str) -> str:
    """Pillow's name of the mode that all images are converted to: grey or colour."""
    from PIL import Image

    try:
        with Image.open(BytesIO(blob), formats=("PNG", "JPEG")) as image:
            grey = image.mode in ("1", "L", "LA")
    except (OSError, ValueError, SyntaxError, TypeError, Image.DecompressionBombError) as error:
        raise _not_an_image(what, 0, error) from None
    if grey:
        return "L"
    return "RGB"


def _not_an_image(what: str, row: int, error: Exception) -> DataError:
    return DataError(f"{what}: row {row} is not a PNG or JPEG image ({first_line(error)})")


def unit(*pieces: Pixels) -> Values:
    """Pixels divided by 255, in ``[0, 1]``; several arrays one after another."""
    out = _empty_like(pieces)
    for block, pixels in _blocks(out, pieces):
        block[...] = pixels
        block /= 255
    return out


def standardise(*pieces: Pixels, over: int | None = None, per_channel: bool = False) -> Values:
    """``(x - mean) / (std + 0.001)`` on the 0..255 scale, as FedProx's and Ditto's generators do.

    Args:
        over: mean and standard deviation are those of the first ``over`` arrays; ``None``: of all.
        per_channel: one mean and deviation per channel instead of per pixel.
    """
    mean, deviation = _moments(pieces[:over], per_channel)
    # Multiplied, which is faster than dividing each pixel.
    scale = 1 / (deviation + _EPSILON)
    out = _empty_like(pieces)
    for block, pixels in _blocks(out, pieces):
        block[...] = pixels
        block -= mean
        block *= scale
    return out


def _empty_like(pieces: Sequence[Pixels]) -> Values:
    return np.empty((sum(map(len, pieces)), *pieces[0].shape[1:]), np.float32)


def _blocks(out: Values, pieces: Sequence[Pixels]) -> Iterator[tuple[Values, Pixels]]:
    """Views of a few rows of the output, with the pixels that belong there.

    Whole arrays at a time would need the float32 images twice.
    """
    start = 0
    for piece in pieces:
        for at in range(0, len(piece), BLOCK):
            pixels = piece[at : at + BLOCK]
            yield out[start : start + len(pixels)], pixels
            start += len(pixels)


def _moments(pieces: Sequence[Pixels], per_channel: bool) -> tuple[Values, Values]:
    """Mean and standard deviation over the images, in one pass.

    Each block is summed exactly in float32, and blocks are added in float64.
    """
    total = np.zeros(pieces[0].shape[1:])
    squares = np.zeros(pieces[0].shape[1:])
    for piece in pieces:
        for at in range(0, len(piece), BLOCK):
            block = piece[at : at + BLOCK].astype(np.float32)
            total += block.sum(0)
            block *= block
            squares += block.sum(0)
    count = sum(map(len, pieces))
    if per_channel:
        count *= total[0].size
        total = total.sum((1, 2), keepdims=True)
        squares = squares.sum((1, 2), keepdims=True)
    mean = total / count
    # The difference of two large numbers may fall below zero by rounding.
    variance = np.maximum(squares / count - mean**2, 0)
    return mean.astype(np.float32), np.sqrt(variance).astype(np.float32)
