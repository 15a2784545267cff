"""Distances between all pairs of updates or weights: L1, L2 and cosine."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from coterie.core.process import one_library_thread
from coterie.core.startup import starting_up
from coterie.math import similarity
from coterie.math.similarity import Matrix, cosine

# A squared distance under this share of the squared norms is the product's rounding error.
_NOISE = 1e-13

# Cosines this near to 1 differ from it by rounding.
_TINY = 1e-12


def l2(a: Tensor, b: Tensor | None = None) -> Matrix:
    """Euclidean distances ``|a_i - b_j|_2`` through one matrix product (FedClust's proximity).

    A squared distance under 1e-13 of the squared norms counts as 0.

    Args:
        a: ``[n, d]``.
        b: ``[l, d]``; ``None``: ``a`` itself, with an exactly symmetric result and a zero diagonal.

    Returns:
        float64 ``[n, l]``.

    Example:
        >>> l2(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist()
        [[0.0, 5.0], [5.0, 0.0]]
    """
    x = a.to(torch.float64).numpy()
    y = x if b is None else b.to(torch.float64).numpy()
    distance = np.empty((len(x), len(y)))
    x_squares = (x**2).sum(axis=1)
    y_squares = (y**2).sum(axis=1)
    # |x - y|^2 = |x|^2 + |y|^2 - 2 <x, y>: a product is many times as fast as differences, and
    # what it loses to cancellation is cut off as noise.
    for at in range(0, len(x), similarity.MANY):
        with one_library_thread():
            product = x[at : at + similarity.MANY] @ y.T
        squares = x_squares[at : at + similarity.MANY, None] + y_squares
        square = squares - 2 * product
        distance[at : at + similarity.MANY] = np.sqrt(
            np.where(square > _NOISE * squares, square, 0.0)
        )
    if b is not None:
        return distance
    return symmetrise(distance)


def l1(a: Tensor, b: Tensor | None = None) -> Matrix:
    """Manhattan distances ``sum_z |a_iz - b_jz|`` (FL+HC's recommended metric).

    Args:
        a: ``[n, d]``.
        b: ``[l, d]``; ``None``: ``a`` itself.

    Returns:
        float64 ``[n, l]``.

    Example:
        >>> l1(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist()
        [[0.0, 7.0], [7.0, 0.0]]
    """
    with starting_up():
        from scipy.spatial.distance import cdist, pdist, squareform

    distance: Matrix
    if b is None:
        distance = squareform(pdist(a, "cityblock"))
    else:
        distance = cdist(a, b, "cityblock")
    return distance


def cosine_distance(a: Tensor, b: Tensor | None = None) -> Matrix:
    """``1 - S(a_i, b_j)`` in 0..2; 1 if a row is zero.

    Args:
        a: ``[n, d]``.
        b: ``[l, d]``; ``None``: ``a`` itself, with an exactly symmetric result and a zero diagonal.

    Returns:
        float64 ``[n, l]``.

    Example:
        >>> cosine_distance(torch.tensor([[1.0, 0.0], [0.0, 2.0]])).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    if b is not None:
        return 1 - snap_to_one(cosine(a, b))
    return symmetrise(1 - snap_to_one(cosine(a, a)))


def snap_to_one(cosines: Matrix) -> Matrix:
    """The cosines, with those that differ from 1 only by rounding set to 1.

    The angles between equal vectors would otherwise be about 1e-8, and trees of distances would
    find structure in them.
    """
    return np.where(cosines > 1 - _TINY, 1.0, cosines)


def symmetrise(distance: Matrix) -> Matrix:
    """The mean of a square matrix and its transpose, computed in place, with a zero diagonal."""
    n = len(distance)
    for i in range(0, n, similarity.MANY):
        for j in range(i, n, similarity.MANY):
            upper = distance[i : i + similarity.MANY, j : j + similarity.MANY]
            lower = distance[j : j + similarity.MANY, i : i + similarity.MANY]
            upper[...] = (upper + lower.T) / 2
            lower[...] = upper.T
    np.fill_diagonal(distance, 0)
    return distance
