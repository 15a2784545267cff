"""Which clusters StoCFL merges."""

from __future__ import annotations

import numpy as np

from coterie.core import BoolArray, IntArray
from coterie.core.startup import starting_up
from coterie.math.similarity import Matrix
from coterie.rules.cold_start import Outliers


def merged_clusters(
    similarity: Matrix, size: IntArray, tau: float, outliers: Outliers = "keep"
) -> IntArray:
    """The cluster that each one is merged into, int64 ``[m]``: the largest of those it is joined
    to.

    Clusters of which the similarity is ``tau`` or more are joined, and so are those that are joined to
    the same one. Of equal sizes the lowest number counts as the largest.

    With ``leave_out`` no cluster alone joins others that are as large as itself: it is joined to the
    one that it is most similar to. The mean of several groups, as an attacker can send it, is
    similar to all of them.
    """
    like = similarity >= tau
    np.fill_diagonal(like, False)
    if outliers == "leave_out":
        like = _without_bridges(like, similarity, size)
    part = _connected(like)
    into = np.arange(len(size))
    for j in np.unique(part):
        joined = np.flatnonzero(part == j)
        into[joined] = joined[size[joined].argmax()]
    return into


def _without_bridges(like: BoolArray, similarity: Matrix, size: IntArray) -> BoolArray:
    """Which clusters are alike if each bridge is like one other only, and like no bridge."""
    # Imported late, as scipy below.
    with starting_up():
        from networkx import articulation_points, from_numpy_array

    bridge = np.zeros(len(size), bool)
    for j in articulation_points(from_numpy_array(like)):
        bridge[j] = _joins_large_parts(like, size, j)
    kept = like & ~bridge & ~bridge[:, None]
    for j in np.flatnonzero(bridge).tolist():
        others = np.flatnonzero(like[j] & ~bridge)
        if len(others):
            kept[j, others[similarity[j, others].argmax()]] = True
    return kept


def _joins_large_parts(like: BoolArray, size: IntArray, j: int) -> bool:
    """Whether two of the parts that are left without cluster ``j`` have as many clients as it has,
    and more than one."""
    without = like.copy()
    without[j] = False
    without[:, j] = False
    part = _connected(without)
    joined = np.unique(part[like[j]])
    clients = np.sort(np.bincount(part, weights=size)[joined])
    return bool(clients[-2] >= max(2, size[j]))


def _connected(like: BoolArray) -> IntArray:
    """The connected component of each cluster, int64 ``[m]``."""
    # Imported late: it is slow to load, and every run loads this file.
    with starting_up():
        from scipy.sparse.csgraph import connected_components

    _, part = connected_components(like, directed=False)
    return part.astype(np.int64)
