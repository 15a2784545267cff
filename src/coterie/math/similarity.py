"""Similarities of updates: the cosine kernel and the measures of FedGroup."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core import IntArray, Key, one_torch_thread
from coterie.core.startup import starting_up

Matrix = NDArray[np.float64]

# Rows of a matrix that is made in one piece. Beyond, it is made in blocks, so that memory is that of
# the result and of the updates themselves; the values are the same up to rounding.
MANY = 2048
# Rows and columns of a tile whose distances are summed up in the processor's cache.
TILE = 128
STRIP = 512

# Eigenvalues under this share of the largest are rounding errors of zero.
_TINY = 1e-12


# --- cosines --------------------------------------------------------------------------------------


def cosine(a: Tensor, b: Tensor) -> Matrix:
    """The cosine kernel ``S(a, b) = <a, b> / (|a| |b|)``, 0 if a norm is 0 (FedGroup eq. 5, 6).

    Args:
        a: ``[n, d]``.
        b: ``[l, d]``.

    Returns:
        float64 ``[n, l]`` in -1..1.

    Example:
        >>> a = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
        >>> cosine(a, torch.tensor([[2.0, 0.0], [0.0, 3.0]])).tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """
    if len(a) > MANY:
        return np.concatenate([cosine(rows, b) for rows in a.split(MANY)])
    # Updates of nearby clients differ in few bits of their cosine; float32 would lose them.
    a = a.to(torch.float64)
    b = b.to(torch.float64)
    norms = a.norm(dim=1)[:, None] * b.norm(dim=1)[None]
    # Division by the smallest number, not by zero, where the result is discarded anyway.
    smallest = torch.finfo(torch.float64).tiny
    kernel = torch.where(norms > 0, (a @ b.T) / norms.clamp_min(smallest), 0.0)
    # Rounding may leave -1..1, where arccos is undefined.
    return kernel.clamp(-1, 1).numpy()


@one_torch_thread()
def nearest_direction(delta: Tensor, target: Tensor) -> IntArray:
    """The direction that each update is closest to in cosine; the lowest number in a tie.

    Args:
        delta: ``[n, d]``, the updates.
        target: ``[k, d]``, the directions. A zero row, a group without a direction, is nearest to
            no update.

    Returns:
        int64 ``[n]``, rows of ``target``.

    Example:
        >>> target = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
        >>> nearest_direction(torch.tensor([[0.0, 2.0], [-1.0, 0.0]]), target).tolist()
        [1, 1]
    """
    has_direction = (target != 0).any(dim=1).numpy()
    # -2 is below all cosines.
    similarity = np.where(has_direction, cosine(delta, target), -2.0)
    return similarity.argmax(axis=1).astype(np.int64)


# --- MADC -----------------------------------------------------------------------------------------


def madc(updates: Tensor) -> Matrix:
    """Mean of absolute differences of pairwise cosines (FedGroup eq. 7).

    ``MADC(i, j) = 1/(n-2) sum_{z != i,j} |S(i,z) - S(j,z)|``.

    Args:
        updates: ``[n, d]``, ``n >= 3``.

    Returns:
        float64 ``[n, n]``, symmetric, zero diagonal.

    Raises:
        ValueError: for fewer than three updates.

    Example:
        >>> madc(torch.eye(3)).round(6).tolist()
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    n = len(updates)
    if n < 3:
        raise ValueError(f"madc: needs updates of at least 3 clients, got {n}")
    s = cosine(updates, updates)
    if n > MANY:
        total = _absolute_differences(s)
    else:
        total = np.stack([np.abs(s - row).sum(axis=1) for row in s])
    # The sum above has z = i and z = j, too. Each adds |S(i,i) - S(i,j)|, whose diagonal entry is
    # 1, or 0 for a zero update.
    excess = np.abs(np.diag(s)[:, None] - s)
    total -= excess
    total -= excess.T
    total /= n - 2
    np.fill_diagonal(total, 0)
    # What was taken off may exceed what was added by a rounding error.
    return np.maximum(total, 0, out=total)


def _absolute_differences(s: Matrix) -> Matrix:
    """``sum_z |s_iz - s_jz|``, tile by tile, each pair once.

    A row at a time would read the whole matrix for each of its rows. A tile and a strip of columns
    fit into the processor's cache, and scipy's loop runs without Python's lock, so threads help.
    """
    with starting_up():
        from scipy.spatial.distance import cdist

    n = len(s)
    tile = TILE
    total = np.zeros_like(s)
    strips = [np.ascontiguousarray(s[:, z : z + STRIP]) for z in range(0, n, STRIP)]

    def tiles_of_row(i: int) -> None:
        for j in range(i, n, tile):
            found = sum(
                cdist(strip[i : i + tile], strip[j : j + tile], "cityblock") for strip in strips
            )
            total[i : i + tile, j : j + tile] = found
            total[j : j + tile, i : i + tile] = np.transpose(found)

    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        list(threads.map(tiles_of_row, range(0, n, tile)))
    return total


# --- EDC ------------------------------------------------------------------------------------------


def directions(updates: Tensor, m: int) -> Tensor:
    """The first ``m`` left singular vectors of ``updates^T`` (FedGroup eq. 8).

    They come from the ``n x n`` Gram matrix, as there are far fewer updates than parameters:
    ``DW DW^T = Q L Q^T``, ``V = DW^T Q_m L_m^{-1/2}``. A direction whose eigenvalue is under 1e-12
    of the largest is left zero. For more than ``MANY`` updates of more than ``MANY`` values, they
    are computed by a randomised SVD in float32 with ten power iterations (Halko et al., 2011):
    exact to about 1e-5 if the directions stand out from the noise.

    Args:
        updates: ``[n, d]``.
        m: number of directions.

    Returns:
        float64 ``[m, d]``, orthonormal rows (or zero rows), each up to its sign.
    """
    if min(updates.shape) > MANY:
        return _randomised_directions(updates, m)
    rows = updates.to(torch.float64)
    if len(rows) > MANY:
        return _directions_from_columns(rows, m)
    # torch's eigenvalues ascend.
    values, vectors = torch.linalg.eigh(rows @ rows.T)
    values = values.flip(0)[:m]
    vectors = vectors.flip(1)[:, :m]
    smallest = torch.finfo(torch.float64).tiny
    keep = values > _TINY * values[0].clamp_min(smallest)
    scale = torch.where(keep, values.clamp_min(smallest).rsqrt(), 0.0)
    return _with_zero_rows((vectors * scale).T @ rows, m)


def _directions_from_columns(rows: Tensor, m: int) -> Tensor:
    """The same from the ``d x d`` Gram matrix, where there are many more updates than values."""
    values, vectors = torch.linalg.eigh(rows.T @ rows)
    values = values.flip(0)[:m]
    found = vectors.flip(1)[:, :m].T
    keep = values > _TINY * values[0]
    return _with_zero_rows(torch.where(keep[:, None], found, 0.0), m)


def _randomised_directions(updates: Tensor, m: int) -> Tensor:
    with starting_up():
        from sklearn.utils.extmath import randomized_svd

    matrix = updates.to(torch.float32).numpy()
    # A fixed seed: the directions are a function of the updates, whatever round it is.
    _, values, right = randomized_svd(matrix, m, n_iter=10, random_state=0)
    keep = values**2 > _TINY * values[0] ** 2
    return torch.from_numpy(right.astype(np.float64) * keep[:, None])


def _with_zero_rows(found: Tensor, m: int) -> Tensor:
    """``m`` rows: fewer updates than directions leave the rest zero."""
    missing = m - len(found)
    if missing <= 0:
        return found
    return torch.cat([found, found.new_zeros(missing, found.shape[1])])


def edc_embedding(updates: Tensor, m: int, basis: Tensor | None = None) -> Matrix:
    """The embedding whose Euclidean distance is EDC: cosines with ``m`` directions (FedGroup eq. 8).

    Args:
        updates: ``[n, d]``.
        m: number of directions.
        basis: the updates that give the directions; default ``updates`` themselves.

    Returns:
        float64 ``[n, m]``; ``EDC(i, j) = |e_i - e_j| / m``.

    Example:
        >>> e = edc_embedding(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]), 2)
        >>> bool(np.allclose(e[0], e[1]))
        True
    """
    if basis is None:
        basis = updates
    return cosine(updates, directions(basis, m))


def edc(updates: Tensor, m: int) -> Matrix:
    """Euclidean distance of decomposed cosine similarity, ``[n, n]`` (FedGroup eq. 8)."""
    e = edc_embedding(updates, m)
    return np.sqrt(((e[:, None] - e[None]) ** 2).sum(axis=2)) / m


# --- random projections ---------------------------------------------------------------------------


# Coordinates whose random numbers are held at once: a matrix [d, q] of a large model would not fit.
_BLOCK = 4096


@one_torch_thread()
def project(rows: Tensor, values: int, key: Key) -> Tensor:
    """Vectors projected at random, float32 ``[n, q]``: ``s_i = R u_i / sqrt(q)`` with ``R [q, d]``
    of independent normal numbers.

    A squared distance is multiplied by a chi-squared variable of ``q`` degrees of freedom over
    ``q``, whatever the vectors are. So it is right on average, with a standard error of ``sqrt(2 /
    q)`` of itself; a distance has about ``1 / sqrt(2 q)``. `largest_error` bounds many of them.

    Source: Johnson and Lindenstrauss, Extensions of Lipschitz Mappings into a Hilbert Space (1984).
    """
    found = rows.new_zeros(len(rows), values)
    generator = key.torch()
    for at in range(0, rows.shape[1], _BLOCK):
        some = rows[:, at : at + _BLOCK]
        normal = torch.randn(some.shape[1], values, generator=generator)
        found.addmm_(some, normal)
    return found / math.sqrt(values)


def largest_error(values: int, distances: int, risk: float = 0.01) -> float:
    """How far projected distances are from the exact ones at most, as a share of these.

    By the exact distribution of one distance and a union bound over all: with a probability of at
    least ``1 - risk`` no distance is farther off.

    Args:
        distances: how many there are, ``n (n - 1) / 2`` among ``n`` vectors.

    Example:
        >>> round(largest_error(512, 1), 3), round(largest_error(512, 10_000 * 9_999 // 2), 3)
        (0.081, 0.204)
    """
    with starting_up():
        from scipy.stats import chi2

    tail = risk / distances / 2
    low = math.sqrt(chi2.ppf(tail, values) / values)
    high = math.sqrt(chi2.isf(tail, values) / values)
    return max(1 - low, high - 1)
