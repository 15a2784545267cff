"""The subspaces of a client's data, class by class: PACFL's signature."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.process import one_library_thread
from coterie.data.population import Population

_RANK = 1e-10  # of the largest eigenvalue; below it an eigenvalue is rounding


def leading(samples: FloatArray, p: int) -> FloatArray:
    """The first ``p`` left singular vectors of ``D = samples^T``, from the smaller of its two Gram
    matrices.

    With ``n < features``: ``D^T D = V S^2 V^T`` and ``U = D V S^{-1}``. LAPACK leaves the sign of a
    singular vector open; here the components of each add up to a positive number. Beyond the rank
    the columns are zero.

    Args:
        samples: ``[n, features]``, one row per sample, not centred.
        p: number of vectors.

    Returns:
        float64 ``[features, p]``.

    Example:
        >>> np.abs(leading(np.array([[2.0, 0.0, 0.0], [0.0, -1.0, 0.0]]), 3)).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    from scipy.linalg import eigh

    # A Gram matrix has the squares of the singular values: in float32 those below 3e-4 of the
    # largest would be rounding.
    rows = np.asarray(samples, np.float64)
    n, features = rows.shape
    found = np.zeros((features, p))
    tall = n < features
    # The smaller Gram matrix has the same eigenvalues but for zeros, and costs less.
    if tall:
        gram = rows @ rows.T
    else:
        gram = rows.T @ rows
    size = len(gram)
    keep = min(p, n, features)
    if keep == 0:
        return found
    values, vectors = eigh(gram, subset_by_index=[size - keep, size - 1])
    # Eigenvalues come in ascending order, singular vectors are wanted with the largest first.
    values = values[::-1]
    vectors = vectors[:, ::-1]
    rank = int((values > _RANK * max(values[0], np.finfo(np.float64).tiny)).sum())
    basis = vectors[:, :rank]
    if tall:  # the eigenvectors are V then, and U = D V S^{-1}
        basis = rows.T @ basis / np.sqrt(values[:rank])
    # One sign for all machines: a principal angle does not depend on it, a checkpoint does.
    found[:, :rank] = basis * np.where(basis.sum(axis=0) < 0, -1.0, 1.0)
    return found


def subspaces(population: Population, ids: IntArray, vectors: int) -> NDArray[np.float32]:
    """The data subspaces of some clients, class by class.

    Args:
        population: who holds what; inputs are taken as they are, flattened and not centred.
        ids: int64 ``[n]``, the clients.
        vectors: singular vectors per class, ``p``.

    Returns:
        float32 ``[n, features, p * c]``; the columns of class ``j`` are ``j p .. (j + 1) p - 1``,
        zero where the client holds none of it, or fewer than ``p`` independent samples.

    Source: Vahidian et al., PACFL (2023), Alg. 1.
    """
    features = math.prod(population.shape)
    found = np.zeros((len(ids), features, vectors * population.classes), np.float32)
    with one_library_thread():
        for out, client in zip(found, ids.tolist(), strict=True):
            held = torch.from_numpy(population.train[client])
            x = population.x[held].reshape(len(held), features).numpy()
            labels = population.y[held].numpy()
            for j in np.unique(labels):
                out[:, j * vectors : (j + 1) * vectors] = leading(x[labels == j], vectors)
    return found
