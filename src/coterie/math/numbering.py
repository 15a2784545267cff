"""The numbers of new clusters, so that they are those of the groups before."""

from __future__ import annotations

import numpy as np

from coterie.core.arrays import IntArray


def numbered_as_before(cluster: IntArray, before: IntArray, k: int) -> IntArray:
    """The clusters under the numbers of the groups that most of their clients had.

    Of all ways to give the clusters different numbers, it is the one in which most clients keep theirs.

    Args:
        cluster: int64 ``[n]`` in ``0..m-1``, with ``m <= k``.
        before: int64 ``[n]``, the group that each client had, -1 for none.
        k: number of groups.

    Returns:
        int64 ``[n]``.

    Example:
        >>> numbered_as_before(np.array([0, 0, 1, 1]), np.array([2, 2, 0, -1]), 3).tolist()
        [2, 2, 0, 0]
    """
    # Imported late: it is slow to load, and every run loads this file.
    from scipy.optimize import linear_sum_assignment

    had = before >= 0
    kept = np.zeros((int(cluster.max()) + 1, k))
    np.add.at(kept, (cluster[had], before[had]), 1)
    _, number = linear_sum_assignment(-kept)
    found: IntArray = number.astype(np.int64)[cluster]
    return found
