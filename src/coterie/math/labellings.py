"""Two labellings of the same clients: how alike they are, whatever their labels are called, and the one
under the numbers of the other.

scikit-learn has both scores, too. Loading it takes longer than a small run trains, and each command is
a process of its own; the tests compare these with it.
"""

from __future__ import annotations

import numpy as np

from coterie.core.arrays import IntArray
from coterie.core.startup import starting_up


def shared_counts(first: IntArray, second: IntArray) -> IntArray:
    """How many clients have each pair of labels, int64 ``[A, B]`` for ``A`` and ``B`` different
    ones."""
    first_names, rows = np.unique(first, return_inverse=True)
    second_names, columns = np.unique(second, return_inverse=True)
    shape = (len(first_names), len(second_names))
    cells = np.ravel_multi_index((rows, columns), shape)
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape).astype(np.int64)


def adjusted_rand_index(first: IntArray, second: IntArray) -> float:
    """The adjusted Rand index: 1 for the same groups, about 0 for what chance gives.

    Of all pairs of clients, ``both`` are together in both labellings, ``in_first`` and ``in_second``
    in one of them at least. By chance ``in_first * in_second / pairs`` would be together in both. The
    index is ``(both - chance) / ((in_first + in_second) / 2 - chance)``.

    Source:
        Hubert and Arabie, Comparing partitions, Journal of Classification 2, 1985.
    """
    counts = shared_counts(first, second)
    pairs = _pairs(np.array([counts.sum()]))
    both = _pairs(counts)
    in_first = _pairs(counts.sum(axis=1))
    in_second = _pairs(counts.sum(axis=0))
    # Whole numbers, which Python has of any size: twice `pairs` times the numerator and denominator.
    over_chance = 2 * (both * pairs - in_first * in_second)
    most = (in_first + in_second) * pairs - 2 * in_first * in_second
    if most == 0:
        # Both labellings have one group, or both have a group for each client.
        return 1.0
    return over_chance / most


def normalised_mutual_information(first: IntArray, second: IntArray) -> float:
    """The mutual information of two labellings over the mean of their entropies, from 0 to 1.

    ``sum_ab p_ab log(p_ab / (p_a p_b))`` over ``(H(first) + H(second)) / 2``, where ``p`` are shares of
    clients.

    Source:
        Strehl and Ghosh, Cluster ensembles, JMLR 3, 2002, with the mean of the entropies.
    """
    counts = shared_counts(first, second)
    of_first = counts.sum(axis=1)
    of_second = counts.sum(axis=0)
    entropy = (_entropy(of_first) + _entropy(of_second)) / 2
    if entropy == 0:
        # Both labellings have one group.
        return 1.0
    shared = counts > 0
    shares = counts[shared] / counts.sum()
    # Logarithms are added in this order because sums in another have other last bits than in results
    # that were published.
    log_clients = np.log(counts.sum())
    log_shares = np.log(counts[shared]) - log_clients
    log_by_chance = np.log(np.outer(of_first, of_second)[shared]) - log_clients - log_clients
    terms = shares * log_shares - shares * log_by_chance
    # What chance gives is zero, and rounding leaves less than this of it.
    terms[np.abs(terms) < np.finfo(np.float64).eps] = 0.0
    return max(float(terms.sum()), 0.0) / entropy


def _pairs(counts: IntArray) -> int:
    """How many pairs the members of groups of these sizes make within their groups."""
    return sum(count * (count - 1) // 2 for count in counts.ravel().tolist())


def _entropy(counts: IntArray) -> float:
    """The entropy of the shares that groups of these sizes have, in nats."""
    shares = counts / counts.sum()
    return float(-(shares * (np.log(counts) - np.log(counts.sum()))).sum())


def numbered_as_before(cluster: IntArray, before: IntArray, k: int) -> IntArray:
    """The clusters under the numbers of the groups that most of their clients had.

    Of all ways to give the clusters different numbers, it is the one in which most clients keep
    theirs.
    """
    # Imported late: it is slow to load, and every run loads this file.
    with starting_up():
        from scipy.optimize import linear_sum_assignment

    had = before >= 0
    kept = np.zeros((int(cluster.max()) + 1, k))
    np.add.at(kept, (cluster[had], before[had]), 1)
    _, number = linear_sum_assignment(-kept)
    return number.astype(np.int64)[cluster]
