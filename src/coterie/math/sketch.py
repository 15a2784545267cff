"""Random projections: long vectors as short ones whose distances are nearly the same.

One-shot grouping of many clients compares short vectors, so that the work no longer grows with the
size of what clients sent (`coterie.rules.one_shot`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from coterie.core import Key, one_torch_thread
from coterie.core.startup import starting_up

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
