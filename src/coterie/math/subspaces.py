"""Angles between the data subspaces of clients: PACFL's proximity."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from coterie.core import IntArray, one_library_thread
from coterie.math.distances import snap_to_one, symmetrise
from coterie.math.similarity import Matrix

# Singular values under this share of the largest are rounding errors of zero.
_TINY = 1e-12


def entry_min(a: Tensor, b: Tensor | None = None) -> Matrix:
    """The least angle between a basis vector of one client and one of another, in degrees.

    ``A_ij = min_{p,q} arccos((U_i^T U_j)_pq)``, as in PACFL's code: no orthonormalisation, no SVD.
    A zero column (a class that a client does not hold) never counts; a client with only such
    columns is at 90 degrees from all others.

    Args:
        a: ``[n, features, q]``, basis vectors as columns, of any length.
        b: ``[l, features, q]``; ``None``: ``a`` itself, with a zero diagonal.

    Returns:
        float64 ``[n, l]`` in 0..180.

    Source: Vahidian et al., PACFL (2023), and its reference code.

    Example:
        >>> bases = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]])
        >>> entry_min(bases).round(6).tolist()
        [[0.0, 45.0], [45.0, 0.0]]
    """
    x, x_owner = _unit_columns(a)
    y, y_owner = (x, x_owner) if b is None else _unit_columns(b)
    best = np.zeros((len(a), len(a if b is None else b)))
    # The columns of a client lie together, so the best over each of theirs is one pass.
    others, first = np.unique(y_owner, return_index=True)
    with one_library_thread():
        for i in np.unique(x_owner):
            over_mine = (x[x_owner == i] @ y.T).max(axis=0)
            best[i, others] = np.maximum.reduceat(over_mine, first)
    return _degrees(best, b is None)


def principal_angles(a: Tensor, b: Tensor | None = None) -> Matrix:
    """The smallest principal angle between the spans of the clients' basis vectors, in degrees.

    ``A_ij = arccos(sigma_max(Q_i^T Q_j))`` with ``Q_i`` an orthonormal basis of the columns of
    ``U_i`` (columns of different classes are not orthogonal). A client without a non-zero column is
    at 90 degrees from all others.

    Args:
        a: ``[n, features, q]``, basis vectors as columns.
        b: ``[l, features, q]``; ``None``: ``a`` itself, with a zero diagonal.

    Returns:
        float64 ``[n, l]`` in 0..90.

    Source: Vahidian et al., PACFL (2023), eq. 3; Bjorck and Golub (1973).

    Example:
        >>> bases = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]])
        >>> principal_angles(bases).round(6).tolist()
        [[0.0, 45.0], [45.0, 0.0]]
    """
    x = _orthonormal(a)
    y = x if b is None else _orthonormal(b)
    best = np.zeros((len(x), len(y)))
    with one_library_thread():
        for i, basis in enumerate(x):
            # Within one set each pair is done once; the other half is its mirror image.
            begin = i + 1 if b is None else 0
            best[i, begin:] = _largest_cosines(basis, y[begin:])
    if b is None:
        best = best + best.T
    return _degrees(best, b is None)


def _largest_cosines(basis: Matrix, others: Matrix) -> Matrix:
    """The largest singular value of each ``Q_j^T Q``: ``[l]`` from ``[q, f]`` and ``[l, q, f]``.

    It is the root of the largest eigenvalue of ``(Q_j^T Q)^T (Q_j^T Q)``, a ``q x q`` matrix, so
    one call does all ``j``.
    """
    flat = others.reshape(-1, others.shape[2])
    product = (flat @ basis.T).reshape(len(others), others.shape[1], len(basis))
    squares = np.linalg.eigvalsh(product.transpose(0, 2, 1) @ product)
    return np.sqrt(squares.max(axis=1, initial=0))


def _degrees(cosines: Matrix, itself: bool) -> Matrix:
    angle = np.degrees(np.arccos(np.clip(snap_to_one(cosines), -1, 1)))
    if itself:
        return symmetrise(angle)
    return angle


def _unit_rows(rows: Tensor) -> Matrix:
    """The last axis scaled to length one in float64; zero rows stay zero."""
    smallest = torch.finfo(torch.float64).tiny
    return normalize(rows.to(torch.float64), dim=-1, eps=smallest).numpy()


def _unit_columns(bases: Tensor) -> tuple[Matrix, IntArray]:
    """All non-zero columns as unit rows ``[z, features]``, and the client of each, ascending."""
    rows = bases.transpose(1, 2)
    held = (rows != 0).any(dim=2)
    owner: IntArray = held.nonzero()[:, 0].numpy()
    return _unit_rows(rows[held]), owner


def _orthonormal(bases: Tensor) -> Matrix:
    """Orthonormal rows that span each client's columns, ``[n, q, features]``, zero rows behind."""
    unit = _unit_rows(bases.transpose(1, 2))
    found = np.zeros_like(unit)
    with one_library_thread():
        for i, rows in enumerate(unit):
            _, values, right = np.linalg.svd(rows[rows.any(axis=1)], full_matrices=False)
            rank = int((values > _TINY * values.max(initial=0)).sum())
            found[i, :rank] = right[:rank]
    return found
