"""The same images as another group sees them: turned, inverted, with thinner or thicker strokes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from coterie.errors import DataError

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
        expected = "square images to rotate"
        raise DataError("does-not-fit", "data.partition.how", found=got, allowed=expected)
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
