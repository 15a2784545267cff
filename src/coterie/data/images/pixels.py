"""From pixels to inputs, in little memory."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from coterie.errors import DataError

Values = NDArray[np.float32]
# uint8, or float32 in 0 to 1 for images with more bits.
Pixels = NDArray[np.uint8 | np.float32]

# Images at a time. A float32 sum of so many squares is exact: 256 * 255^2 < 2^24.
BLOCK = 256

# What is added to a standard deviation, so that constant pixels are not divided by zero. FedProx's
# and Ditto's generators do the same.
_EPSILON = np.float32(0.001)


def alike(pieces: Sequence[Pixels], dataset: str) -> list[Pixels]:
    """Arrays of images with as many channels each: grey ones among coloured ones are grey in each
    colour."""
    sizes = {piece.shape[2:] for piece in pieces}
    if len(sizes) > 1:
        what = f"images of different sizes in {dataset}"
        raise DataError("wrong-shape", "data.source", what, found=sorted(sizes), allowed="one size")
    shape = (max(piece.shape[1] for piece in pieces), *pieces[0].shape[2:])
    return [np.broadcast_to(piece, (len(piece), *shape)) for piece in pieces]


def unit(*pieces: Pixels) -> Values:
    """Pixels in ``[0, 1]``, bytes divided by 255; several arrays one after another."""
    out = _empty_like(pieces)
    for block, pixels in _blocks(out, pieces):
        block[...] = pixels
        if pixels.dtype == np.uint8:
            block /= 255
    return out


def standardise(*pieces: Pixels, over: int | None = None, per_channel: bool = False) -> Values:
    """``(x - mean) / (std + 0.001)`` on the 0..255 scale, as FedProx's and Ditto's generators do.

    Args:
        over: mean and standard deviation are those of the first ``over`` arrays; ``None``: of all.
        per_channel: one mean and deviation per channel instead of per pixel.
    """
    pieces = tuple(piece if piece.dtype == np.uint8 else 255 * piece for piece in pieces)
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


# --- styles ---------------------------------------------------------------------------------------


ANGLE = re.compile(r"rotate (-?\d+(\.\d+)?(e-\d+)?)")


def is_style(style: str) -> bool:
    """Whether `restyle` knows it."""
    return style in STYLES or ANGLE.fullmatch(style) is not None


def moves_pixels_alone(style: str) -> bool:
    """Whether a style keeps the values of all pixels, so that it does not matter how they are scaled."""
    turned = ANGLE.fullmatch(style)
    if turned:
        return float(turned[1]) % 90 == 0
    return style == "plain"


def restyle(images: Tensor, style: str, low: float, high: float) -> Tensor:
    """Images in one of the styles.

    - ``plain``: as they are.
    - ``rotate A``: turned by ``A`` degrees against the clock. Pixels between others are interpolated
      by their four neighbours; corners that come from outside are ``low``.
    - ``invert``: ``low + high - x``.
    - ``erode``: each pixel is the least of the 3 x 3 around it, so that bright strokes grow thin.
    - ``dilate``: each pixel is the largest of them.

    Args:
        low: least value of any pixel of the dataset.
        high: largest one.

    Example:
        >>> image = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])
        >>> restyle(image, "rotate 90", 0.0, 1.0).tolist()
        [[[1.0, 0.0], [0.0, 0.0]]]
        >>> restyle(image, "invert", 0.0, 1.0).tolist()
        [[[1.0, 0.0], [1.0, 1.0]]]
    """
    turned = ANGLE.fullmatch(style)
    if turned:
        return _rotate(images, float(turned[1]), low)
    return STYLES[style](images, low, high)


def _rotate(images: Tensor, degrees: float, low: float) -> Tensor:
    if images.shape[-1] != images.shape[-2]:
        got = f"shape {tuple(images.shape[1:])}"
        what = "only square images can be rotated"
        raise DataError("does-not-fit", "data.partition.how", what, found=got)
    quarters, rest = divmod(degrees, 90)
    # Quarter turns move pixels and change none.
    turned = torch.rot90(images, int(quarters), dims=(-2, -1))
    if not rest:
        return turned
    angle = math.radians(rest)
    cosine, sine = math.cos(angle), math.sin(angle)
    # Where in the old image each pixel of the new one comes from; y points down.
    where = torch.tensor([[[cosine, -sine, 0.0], [sine, cosine, 0.0]]])
    stack = turned.reshape(1, -1, *turned.shape[-2:])
    grid = F.affine_grid(where, list(stack.shape), align_corners=False)
    # Outside of the image samples are zero, so the least value is moved there for the while.
    sampled = F.grid_sample(stack - low, grid, mode="bilinear", align_corners=False)
    return (sampled + low).reshape(turned.shape)


def _dilate(images: Tensor) -> Tensor:
    stack = images.reshape(1, -1, *images.shape[-2:])
    return F.max_pool2d(stack, 3, stride=1, padding=1).reshape(images.shape)


STYLES: Mapping[str, Callable[[Tensor, float, float], Tensor]] = {
    "plain": lambda images, low, high: images,
    "invert": lambda images, low, high: low + high - images,
    "erode": lambda images, low, high: -_dilate(-images),
    "dilate": lambda images, low, high: _dilate(images),
}
