"""How well groups agree with planted ones, and how alike they are by their label histograms.

Source of the second: Zeng et al., FedGSP (2022), eq. 4 and 14.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.startup import starting_up
from coterie.math.labellings import adjusted_rand_index, normalised_mutual_information
from coterie.math.similarity import Matrix

# --- agreement with planted groups ----------------------------------------------------------------


def agreement(member: IntArray, planted: IntArray) -> dict[str, float] | None:
    """How well groups agree with the planted ones, over the clients that have a group: adjusted
    Rand index ``ari`` and normalised mutual information ``nmi``. 1 is full agreement; 0 is chance
    for ``ari``."""
    has_group = member >= 0
    if not has_group.any():
        return None
    labels = [one[has_group].astype(np.int64).tobytes() for one in (planted, member)]
    ari, nmi = _agreement(*labels)
    return {"ari": ari, "nmi": nmi}


# Most rounds end with the groups that they began with, and the two scores take longer than the
# training of a small client.
@lru_cache(maxsize=2)
def _agreement(true: bytes, found: bytes) -> tuple[float, float]:
    """The adjusted Rand index and the mutual information of two labellings, int64 as bytes."""
    labels = [np.frombuffer(one, np.int64) for one in (true, found)]
    return adjusted_rand_index(*labels), normalised_mutual_information(*labels)


def share_error(found: FloatArray, planted: FloatArray) -> float | None:
    """Mean absolute error of shares over clients and groups, ``mean_ij |s_ij - p_i,match(j)|``.
    Clients without a group, rows of zeros in ``found``, are left out.

    Groups have no order, so each is matched with the concept that makes the sum of all errors
    least. Where there are fewer groups than concepts, or more, the ones left over count as shares
    of 0.
    """
    # Imported late: it is slow to load, and most federations have no planted shares.
    with starting_up():
        from scipy.optimize import linear_sum_assignment

    has_group = found.any(axis=1)
    if not has_group.any():
        return None
    found = found[has_group]
    planted = planted[has_group]
    width = max(found.shape[1], planted.shape[1])
    found = np.pad(found, ((0, 0), (0, width - found.shape[1])))
    planted = np.pad(planted, ((0, 0), (0, width - planted.shape[1])))
    # [k, g], the summed error of each group with each concept.
    error = np.abs(found[:, :, None] - planted[:, None, :]).sum(axis=0)
    groups, concepts = linear_sum_assignment(error)
    return float(error[groups, concepts].sum() / found.size)


# --- likeness -------------------------------------------------------------------------------------


def totals(histograms: Matrix, group: IntArray) -> Matrix:
    """Label counts of each group, ``[M, c]`` (FedGSP eq. 8); clients with group -1 count nowhere."""
    has_group = group >= 0
    numbers, row = np.unique(group[has_group], return_inverse=True)
    found = np.zeros((len(numbers), histograms.shape[1]))
    # `found[row] += ...` would count only the last of several clients of a group.
    np.add.at(found, row, histograms[has_group])
    return found


def divergence(total: Matrix) -> float:
    """``z = sum_{m1 < m2} |V_m1 - V_m2|^2``, what grouping minimises (FedGSP eq. 4)."""
    return float(_squared_distances(total).sum())


def cpd_label(histograms: Matrix, gamma: float = 0.5) -> FloatArray:
    """Class probability distance of every pair of the histograms ``[n, c]``, where a sample is a
    class, one-hot (FedGSP eq. 14).

    The paper does not say what the samples of its MMD are; this reading is the default here.
    ``MMD^2 = (1 - e^(-2 gamma)) |P - Q|^2`` with the Gaussian kernel ``exp(-gamma |a - b|^2)``,
    which is 1 for equal and ``e^(-2 gamma)`` for different classes. Ratios do not depend on
    ``gamma``; 0.5 is a width of 1.

    Returns:
        float64 ``[n (n-1) / 2]``, in the order of ``scipy.spatial.distance.pdist``.
    """
    return -np.expm1(-2 * gamma) * _squared_distances(_class_shares(histograms))


def cpd_vector(histograms: Matrix, gamma: float = 0.5) -> FloatArray:
    """Class probability distance of every pair, where each distribution is one sample.

    ``2 (1 - e^(-gamma |P - Q|^2))``, which saturates at 2. ``gamma = 1 / (2 sigma^2)`` must be the
    same for all that are compared, see ``common_gamma``.
    """
    # expm1 keeps the digits that 1 - exp(-x) loses where distributions are nearly equal.
    return -2 * np.expm1(-gamma * _squared_distances(_class_shares(histograms)))


def cpd_share(histograms: Matrix, gamma: float) -> FloatArray:
    """Class probability distance of every pair, where each class share is one sample, a number.

    ``MMD^2`` of the ``c`` shares of one distribution and the ``c`` shares of the other, with the
    kernel ``exp(-gamma (a - b)^2)``. It does not see which class a share belongs to. See
    ``gamma_of_shares``.
    """
    shares = _class_shares(histograms)
    within = np.array([_mean_kernel(row[None], row, gamma)[0] for row in shares])
    found = [np.empty(0)]
    # Row by row: the kernels of all pairs at once would not fit into memory.
    for i, row in enumerate(shares):
        rest = slice(i + 1, None)
        found.append(within[i] + within[rest] - 2 * _mean_kernel(shares[rest], row, gamma))
    return np.concatenate(found)


def gamma_of_shares(histograms: Matrix) -> float:
    """``1 / (2 sigma^2)`` with ``sigma`` the standard deviation of all class shares of these
    clients."""
    variance = float(_class_shares(histograms).var())
    # Clients that hold every class alike have no width of their own: the width is 1 then.
    if variance > 0:
        return 0.5 / variance
    return 0.5


def common_gamma(histograms: Matrix) -> float:
    """``1 / (2 sigma^2)`` with ``sigma`` the median distance of the class shares of these
    clients."""
    middle = float(np.median(_squared_distances(_class_shares(histograms))))
    # Clients that are all alike have no width of their own: the width is 1 then.
    if middle > 0:
        return 0.5 / middle
    return 0.5


def median(distances: FloatArray) -> float | None:
    """Their median, ``None`` for fewer than two groups."""
    if len(distances):
        return float(np.median(distances))
    return None


def _mean_kernel(rows: Matrix, row: FloatArray, gamma: float) -> FloatArray:
    gaps = rows[:, :, None] - row[None, None, :]
    found: FloatArray = np.exp(-gamma * gaps**2).mean(axis=(1, 2))
    return found


def _class_shares(histograms: Matrix) -> Matrix:
    counts = np.asarray(histograms, np.float64)
    # A client without samples has zero shares, not NaN.
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-12)


def _squared_distances(rows: Matrix) -> FloatArray:
    """``|a - b|^2`` of all pairs, float64 ``[n (n-1) / 2]``."""
    with starting_up():
        from scipy.spatial.distance import pdist

    if len(rows) < 2:
        return np.empty(0)
    found: FloatArray = pdist(rows, "sqeuclidean")
    return found
