"""Updates to features or distances: the measures of FedGroup, on plain matrices."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Matrix = NDArray[np.float64]
_TINY = 1e-12


def _unit(rows: Tensor) -> Tensor:
    """Rows of length one in float64; a zero row stays zero, so that its cosine with anything is 0."""
    rows = rows.to(torch.float64)
    norm = rows.norm(dim=1, keepdim=True)
    return torch.where(norm > 0, rows / norm.clamp_min(torch.finfo(torch.float64).tiny), 0.0)


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
    kernel: Matrix = (_unit(a) @ _unit(b).T).clamp(-1, 1).numpy()
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
    total = np.stack([np.abs(s - row).sum(axis=1) for row in s])
    # z = i and z = j each add |S(i,i) - S(i,j)|, whose diagonal is 1, or 0 for a zero update
    own = np.abs(np.diag(s)[:, None] - s)
    distance = (total - own - own.T) / (n - 2)
    np.fill_diagonal(distance, 0)
    return np.maximum(distance, 0)


def directions(updates: Tensor, m: int) -> Tensor:
    """The first ``m`` left singular vectors of ``updates^T`` (FedGroup eq. 8), from the ``n x n`` Gram matrix.

    ``DW DW^T = Q L Q^T``, ``V = DW^T Q_m L_m^{-1/2}``. A direction whose eigenvalue is under 1e-12 of the largest is
    left zero.

    Args:
        updates: ``[n, d]``.
        m: number of directions.

    Returns:
        float64 ``[m, d]``, orthonormal rows (or zero rows), each up to its sign.
    """
    rows = updates.to(torch.float64)
    values, vectors = torch.linalg.eigh(rows @ rows.T)
    values, vectors = values.flip(0)[:m], vectors.flip(1)[:, :m]
    keep = values > _TINY * values[0].clamp_min(torch.finfo(torch.float64).tiny)
    scale = torch.where(keep, values.clamp_min(torch.finfo(torch.float64).tiny).rsqrt(), 0.0)
    found = (vectors * scale).T @ rows
    missing = m - len(found)
    return torch.cat([found, found.new_zeros(missing, rows.shape[1])]) if missing > 0 else found


def edc_embedding(updates: Tensor, m: int, basis: Tensor | None = None) -> Matrix:
    """The embedding whose Euclidean distance is EDC: cosines with the ``m`` leading directions (FedGroup eq. 8).

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
