"""Updates to features or distances: the measures of FedGroup, on plain matrices.

Up to ``MANY`` rows a matrix is made in one piece. Beyond, it is made in blocks, so that memory is
that of the result and of the updates themselves; the values are the same up to rounding.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from coterie.core.arrays import IntArray
from coterie.core.threads import one_library_thread, one_torch_thread

Matrix = NDArray[np.float64]
_TINY = 1e-12
_NOISE = 1e-13
MANY = 2048  # rows that are handled in one piece
# rows and columns of a tile whose distances are summed up in the cache
_TILE = 128
_STRIP = 512


def cosine(a: Tensor, b: Tensor) -> Matrix:
    """The cosine kernel ``S(a, b) = <a, b> / (|a| |b|)``, 0 where a norm is 0 (FedGroup eq. 5, 6).

    Args:
        a: ``[n, d]``.
        b: ``[l, d]``.

    Returns:
        float64 ``[n, l]`` in -1..1.

    Example:
        >>> cosine(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 3.0]])).tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """
    if len(a) > MANY:
        return np.concatenate([cosine(rows, b) for rows in a.split(MANY)])
    a = a.to(torch.float64)
    b = b.to(torch.float64)
    norms = a.norm(dim=1)[:, None] * b.norm(dim=1)[None]
    smallest = torch.finfo(torch.float64).tiny
    kernel: Matrix = (
        torch.where(norms > 0, (a @ b.T) / norms.clamp_min(smallest), 0.0).clamp(-1, 1).numpy()
    )
    return kernel


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
    total = _tiled(s) if n > MANY else np.stack([np.abs(s - row).sum(axis=1) for row in s])
    # z = i and z = j each add |S(i,i) - S(i,j)|, whose diagonal is 1, or 0 for a zero update
    own = np.abs(np.diag(s)[:, None] - s)
    total -= own
    total -= own.T
    total /= n - 2
    np.fill_diagonal(total, 0)
    return np.maximum(total, 0, out=total)


def _tiled(s: Matrix) -> Matrix:
    """``sum_z |s_iz - s_jz|``, tile by tile, each pair once."""
    from scipy.spatial.distance import cdist

    n = len(s)
    total = np.zeros_like(s)
    strips = [np.ascontiguousarray(s[:, z : z + _STRIP]) for z in range(0, n, _STRIP)]

    def rows(i: int) -> None:
        for j in range(i, n, _TILE):
            tile = sum(
                cdist(strip[i : i + _TILE], strip[j : j + _TILE], "cityblock") for strip in strips
            )
            total[i : i + _TILE, j : j + _TILE] = tile
            total[j : j + _TILE, i : i + _TILE] = np.transpose(tile)

    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        list(threads.map(rows, range(0, n, _TILE)))
    return total


def directions(updates: Tensor, m: int) -> Tensor:
    """The first ``m`` left singular vectors of ``updates^T`` (FedGroup eq. 8), from the ``n x n``
    Gram matrix.

    ``DW DW^T = Q L Q^T``, ``V = DW^T Q_m L_m^{-1/2}``. A direction whose eigenvalue is under 1e-12
    of the largest is left zero. Of more than ``MANY`` updates of more than ``MANY`` values they are
    found by a randomised SVD in float32 with ten power iterations (Halko et al., 2011): exact to
    about 1e-5 where the directions stand out of the noise.

    Args:
        updates: ``[n, d]``.
        m: number of directions.

    Returns:
        float64 ``[m, d]``, orthonormal rows (or zero rows), each up to its sign.
    """
    if min(updates.shape) > MANY:
        return _randomised(updates, m)
    rows = updates.to(torch.float64)
    if len(rows) > MANY:
        return _from_columns(rows, m)
    values, vectors = torch.linalg.eigh(rows @ rows.T)
    values = values.flip(0)[:m]
    vectors = vectors.flip(1)[:, :m]
    keep = values > _TINY * values[0].clamp_min(torch.finfo(torch.float64).tiny)
    scale = torch.where(keep, values.clamp_min(torch.finfo(torch.float64).tiny).rsqrt(), 0.0)
    found = (vectors * scale).T @ rows
    missing = m - len(found)
    if missing > 0:
        return torch.cat([found, found.new_zeros(missing, rows.shape[1])])
    return found


def _randomised(updates: Tensor, m: int) -> Tensor:
    from sklearn.utils.extmath import randomized_svd

    _, values, right = randomized_svd(
        updates.to(torch.float32).numpy(), m, n_iter=10, random_state=0
    )
    keep = values**2 > _TINY * values[0] ** 2
    return torch.from_numpy(right.astype(np.float64) * keep[:, None])


def _from_columns(rows: Tensor, m: int) -> Tensor:
    """The same from the ``d x d`` Gram matrix, where there are many more updates than values."""
    values, vectors = torch.linalg.eigh(rows.T @ rows)
    values = values.flip(0)[:m]
    found = vectors.flip(1)[:, :m].T
    found = torch.where((values > _TINY * values[0])[:, None], found, 0.0)
    missing = m - len(found)
    if missing > 0:
        return torch.cat([found, found.new_zeros(missing, rows.shape[1])])
    return found


def edc_embedding(updates: Tensor, m: int, basis: Tensor | None = None) -> Matrix:
    """The embedding whose Euclidean distance is EDC: cosines with the ``m`` leading directions
    (FedGroup eq. 8).

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
    return cosine(updates, directions(updates if basis is None else basis, m))


def edc(updates: Tensor, m: int) -> Matrix:
    """Euclidean distance of decomposed cosine similarity, ``[n, n]`` (FedGroup eq. 8)."""
    e = edc_embedding(updates, m)
    return np.sqrt(((e[:, None] - e[None]) ** 2).sum(axis=2)) / m


def l2(a: Tensor, b: Tensor | None = None) -> Matrix:
    """Euclidean distances ``|a_i - b_j|_2``, float64 ``[n, l]``, through one matrix product
    (FedClust's proximity).

    A squared distance under 1e-13 of the squared norms, the rounding error of the product, counts
    as 0.

    Args:
        a: ``[n, d]``.
        b: ``[l, d]``; ``None``: ``a`` itself, with an exactly symmetric result and a zero diagonal.

    Example:
        >>> l2(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist()
        [[0.0, 5.0], [5.0, 0.0]]
    """
    x = a.to(torch.float64).numpy()
    y = x if b is None else b.to(torch.float64).numpy()
    distance = np.empty((len(x), len(y)))
    mine = (x**2).sum(axis=1)
    theirs = (y**2).sum(axis=1)
    for at in range(0, len(x), MANY):
        with one_library_thread():
            product = x[at : at + MANY] @ y.T
        norms = mine[at : at + MANY, None] + theirs
        square = norms - 2 * product
        distance[at : at + MANY] = np.sqrt(np.where(square > _NOISE * norms, square, 0.0))
    if b is not None:
        return distance
    return _symmetric(distance)


def l1(a: Tensor, b: Tensor | None = None) -> Matrix:
    """Manhattan distances ``sum_z |a_iz - b_jz|``, float64 ``[n, l]`` (FL+HC's recommended metric).

    Args:
        a: ``[n, d]``.
        b: ``[l, d]``; ``None``: ``a`` itself.

    Example:
        >>> l1(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist()
        [[0.0, 7.0], [7.0, 0.0]]
    """
    from scipy.spatial.distance import cdist, pdist, squareform

    distance: Matrix = squareform(pdist(a, "cityblock")) if b is None else cdist(a, b, "cityblock")
    return distance


def cosine_distance(a: Tensor, b: Tensor | None = None) -> Matrix:
    """``1 - S(a_i, b_j)`` in 0..2, float64 ``[n, l]``; 1 where a row is zero.

    Example:
        >>> cosine_distance(torch.tensor([[1.0, 0.0], [0.0, 2.0]])).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    distance = 1 - _snapped(cosine(a, a if b is None else b))
    if b is not None:
        return distance
    return _symmetric(distance)


def entry_min(a: Tensor, b: Tensor | None = None) -> Matrix:
    """The least angle between a basis vector of one client and one of another, in degrees.

    ``A_ij = min_{p,q} arccos((U_i^T U_j)_pq)``, as PACFL's code has it: no orthonormalisation, no
    SVD. A zero column (a class that a client does not hold) never counts; a client without any is
    at 90 degrees from everybody.

    Args:
        a: ``[n, features, q]``, basis vectors as columns, of any length.
        b: ``[l, features, q]``; ``None``: ``a`` itself, with a zero diagonal.

    Returns:
        float64 ``[n, l]`` in 0..180.

    Source: Vahidian et al., PACFL (2023), and its reference code.

    Example:
        >>> entry_min(torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]])).round(6).tolist()
        [[0.0, 45.0], [45.0, 0.0]]
    """
    x, mine = _columns(a)
    y, theirs = (x, mine) if b is None else _columns(b)
    best = np.zeros((len(a), len(a if b is None else b)))
    others, first = np.unique(theirs, return_index=True)
    with one_library_thread():
        for i in np.unique(mine):
            best[i, others] = np.maximum.reduceat((x[mine == i] @ y.T).max(axis=0), first)
    return _degrees(best, b is None)


def principal_angles(a: Tensor, b: Tensor | None = None) -> Matrix:
    """The smallest principal angle between the spans of the clients' basis vectors, in degrees.

    ``A_ij = arccos(sigma_max(Q_i^T Q_j))`` with ``Q_i`` an orthonormal basis of the columns of
    ``U_i`` (columns of different classes are not orthogonal). A client without a non-zero column is
    at 90 degrees from everybody.

    Args:
        a: ``[n, features, q]``, basis vectors as columns.
        b: ``[l, features, q]``; ``None``: ``a`` itself, with a zero diagonal.

    Returns:
        float64 ``[n, l]`` in 0..90.

    Source: Vahidian et al., PACFL (2023), eq. 3; Bjorck and Golub (1973).

    Example:
        >>> principal_angles(torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]])).round(6).tolist()
        [[0.0, 45.0], [45.0, 0.0]]
    """
    x = _orthonormal(a)
    y = x if b is None else _orthonormal(b)
    best = np.zeros((len(x), len(y)))
    with one_library_thread():
        for i, basis in enumerate(x):
            later = y[i + 1 :] if b is None else y
            product = (later.reshape(-1, a.shape[1]) @ basis.T).reshape(
                len(later), y.shape[1], len(basis)
            )
            squares = np.linalg.eigvalsh(product.transpose(0, 2, 1) @ product)
            best[i, len(y) - len(later) :] = np.sqrt(squares.max(axis=1, initial=0))
    return _degrees(best if b is not None else best + best.T, b is None)


def _symmetric(distance: Matrix) -> Matrix:
    """The mean of a square matrix and its transpose, in its own memory, with a zero diagonal."""
    n = len(distance)
    for i in range(0, n, MANY):
        for j in range(i, n, MANY):
            upper = distance[i : i + MANY, j : j + MANY]
            lower = distance[j : j + MANY, i : i + MANY]
            upper[...] = (upper + lower.T) / 2
            lower[...] = upper.T
    np.fill_diagonal(distance, 0)
    return distance


def _degrees(cosines: Matrix, itself: bool) -> Matrix:
    angle = np.degrees(np.arccos(np.clip(_snapped(cosines), -1, 1)))
    if itself:
        return _symmetric(angle)
    return angle


def _snapped(cosines: Matrix) -> Matrix:
    """Cosines that miss 1 by no more than rounding are 1: the angles of equal vectors are no
    structure."""
    return np.where(cosines > 1 - _TINY, 1.0, cosines)


def _unit(rows: Tensor) -> Matrix:
    """The last axis scaled to length one in float64; zero rows stay zero."""
    unit: Matrix = normalize(
        rows.to(torch.float64), dim=-1, eps=torch.finfo(torch.float64).tiny
    ).numpy()
    return unit


def _columns(bases: Tensor) -> tuple[Matrix, NDArray[np.int64]]:
    """All non-zero columns side by side as unit rows ``[z, features]``, and whose each is,
    ascending."""
    rows = bases.transpose(1, 2)
    held = (rows != 0).any(dim=2)
    unit: Matrix = _unit(rows[held])
    return unit, held.nonzero()[:, 0].numpy()


def _orthonormal(bases: Tensor) -> Matrix:
    """Orthonormal rows that span each client's columns, float64 ``[n, q, features]``, zero rows
    behind."""
    unit = _unit(bases.transpose(1, 2))
    found = np.zeros((len(unit), *unit.shape[1:]))
    with one_library_thread():
        for own, out in zip(unit, found, strict=True):
            _, values, right = np.linalg.svd(own[own.any(axis=1)], full_matrices=False)
            rank = int((values > _TINY * values.max(initial=0)).sum())
            out[:rank] = right[:rank]
    return found


@one_torch_thread()
def nearest(delta: Tensor, target: Tensor) -> IntArray:
    """The direction of ``target [k, d]`` that each row of ``delta [n, d]`` is closest to in cosine,
    int64 ``[n]``.

    Groups without a direction (zero rows) are nobody's nearest.

    Example:
        >>> target = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
        >>> nearest(torch.tensor([[0.0, 2.0], [-1.0, 0.0]]), target).tolist()
        [1, 1]
    """
    similarity = np.where((target != 0).any(dim=1).numpy(), cosine(delta, target), -2.0)
    return similarity.argmax(axis=1).astype(np.int64)
