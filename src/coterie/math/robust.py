"""Averages that a few wrong points cannot move far.

Every function takes ``points [n, d]`` in float64 and gives ``[d]``. ``f`` is the number of wrong
points that it shall bear; where there are too few points for it, it is the most that they can bear.
"""

from __future__ import annotations

import numpy as np

from coterie.core import FloatArray, IntArray, Key
from coterie.core.startup import starting_up

# RFA stops the denominator of Weiszfeld's weights here, as a share of the typical distance.
_SMALL = 1e-6


def bearable(f: int, n: int) -> int:
    """The wrong points that ``n`` points can bear, ``f`` at most: fewer than half.

    Example:
        >>> [bearable(2, n) for n in (1, 2, 3, 5)]
        [0, 0, 1, 2]
    """
    return min(f, (n - 1) // 2)


def median_per_coordinate(points: FloatArray) -> FloatArray:
    """The median of each coordinate.

    Source: Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates
    (2018), Def. 1.

    Example:
        >>> median_per_coordinate(np.array([[1.0, 5.0], [2.0, 4.0], [1e9, -1e9]])).tolist()
        [2.0, 4.0]
    """
    return np.median(points, axis=0)


def trimmed_mean_per_coordinate(points: FloatArray, f: int) -> FloatArray:
    """The mean of each coordinate without its ``f`` largest and its ``f`` smallest values.

    Source: Yin et al. (2018), Def. 2.

    Example:
        >>> trimmed_mean_per_coordinate(np.array([[1.0], [2.0], [3.0], [4.0], [1e9]]), 1).tolist()
        [3.0]
    """
    f = bearable(f, len(points))
    kept = np.sort(points, axis=0)[f : len(points) - f]
    return kept.mean(axis=0)


def krum_selection(points: FloatArray, f: int, keep: int | None = None) -> IntArray:
    """The points nearest to their neighbours, int64 ``[keep]``, ascending.

    The score of a point is the mean squared distance to its ``n - f - 1`` nearest neighbours. The
    points with the lowest scores are kept: one is Krum, several are multi-Krum.

    Args:
        keep: how many; ``None``: ``n - f``.

    Source: Blanchard et al., Machine Learning with Adversaries (2017), sec. 4, where the neighbours
    are ``n - f - 2``; one more, as ``byzfl`` has it, is defined for three points, too.

    Example:
        >>> krum_selection(np.array([[0.0], [0.1], [0.2], [9.0]]), 1).tolist()
        [0, 1, 2]
    """
    n = len(points)
    f = bearable(f, n)
    if n == 1:
        return np.zeros(1, np.int64)
    square = _squared_distances(points)
    # The first of each sorted row is the point itself.
    score = np.sort(square, axis=1)[:, 1 : n - f].mean(axis=1)
    keep = n - f if keep is None else min(keep, n)
    return np.sort(np.argsort(score, kind="stable")[:keep])


def _squared_distances(points: FloatArray) -> FloatArray:
    with starting_up():
        from scipy.spatial.distance import cdist

    return cdist(points, points, "sqeuclidean")


def smoothed_weiszfeld(
    points: FloatArray, weights: FloatArray, steps: int = 8, nu: float | None = None
) -> FloatArray:
    """The geometric median, by the smoothed Weiszfeld algorithm: the point with the least weighted
    sum of distances.

    From ``z = 0``, ``b_i = w_i / max(nu, |x_i - z|)`` and ``z = sum_i b_i x_i / sum_i b_i``, step by
    step.

    Args:
        nu: smoothing; ``None``: a millionth of the median length of the points, which is a matter
            of rounding alone.

    Source: Pillutla et al., Robust Aggregation for Federated Learning (2022), Alg. 2; the paper
    takes 3 or 4 steps; some more are needed against points that are far away.

    Example:
        >>> points = np.array([[1.0, 0.0], [1.0, 0.1], [0.9, 0.0], [1e6, 1e6]])
        >>> smoothed_weiszfeld(points, np.ones(4)).round(1).tolist()
        [1.0, 0.1]
    """
    if nu is None:
        nu = _SMALL * float(np.median(_lengths(points)))
    # Zero only where most points are zero, and then the answer is, too.
    nu = max(nu, float(np.finfo(np.float64).tiny))
    found: FloatArray = np.zeros(points.shape[1])
    for _ in range(steps):
        share = weights / np.maximum(_lengths(points - found), nu)
        # Divided by the largest first, since one point on the spot may have an endless weight.
        share = share / share.max()
        # A product, since weighted copies of all points would cost most of a round's aggregation.
        found = share @ points / share.sum()
    return found


def _lengths(points: FloatArray) -> FloatArray:
    # As `numpy.linalg.norm` has them, but without a copy of the points for their squares.
    return np.sqrt(np.einsum("nd,nd->n", points, points))


def clipped_mean(
    points: FloatArray, weights: FloatArray, steps: int = 5, tau: float | None = None
) -> FloatArray:
    """Centred clipping: the mean of the points, each moved towards the centre until it is ``tau``
    away from it.

    From ``v = 0``, ``v <- v + sum_i w_i (x_i - v) min(1, tau / |x_i - v|)``, step by step.

    Args:
        weights: float64 ``[n]``, which sum to 1.
        tau: the radius; ``None``: in each step the median of ``|x_i - v|``.

    Source: Karimireddy et al., Learning from History for Byzantine Robust Optimization (2021), Alg.
    2. The paper keeps ``v`` from round to round; here it starts from the group's model, so that
    nothing has to be remembered.

    Example:
        >>> points = np.array([[1.0], [1.1], [0.9], [1e9]])
        >>> float(clipped_mean(points, np.full(4, 0.25), steps=9)[0].round(2))
        1.05
    """
    centre: FloatArray = np.zeros(points.shape[1])
    for _ in range(steps):
        apart = points - centre
        distance = np.linalg.norm(apart, axis=1)
        radius = float(np.median(distance)) if tau is None else tau
        # A large radius divided by a distance near 0 would overflow.
        furthest = np.maximum(np.maximum(distance, radius), np.finfo(float).tiny)
        share = weights * (radius / furthest)
        centre = centre + (share[:, None] * apart).sum(axis=0)
    return centre


def bucket_means(
    points: FloatArray, weights: FloatArray, size: int, key: Key
) -> tuple[FloatArray, FloatArray]:
    """Random buckets of ``size`` points: the weighted mean of each, and its weight.

    Means differ less than points do, so that a robust average behind them is nearer to the mean
    where honest points differ much. Each wrong point spoils a bucket.

    Args:
        size: points of a bucket; the last may have fewer.

    Returns:
        float64 ``[m, d]`` and ``[m]`` with ``m = ceil(n / size)``.

    Source: Karimireddy et al., Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing
    (2022), Alg. 1.

    Example:
        >>> means, weights = bucket_means(np.arange(5.0)[:, None], np.ones(5), 2, Key(0))
        >>> len(means), weights.tolist(), float((weights * means[:, 0]).sum())
        (3, [2.0, 2.0, 1.0], 10.0)
    """
    order = key.generator().permutation(len(points))
    begins = np.arange(0, len(points), size)
    total = np.add.reduceat(weights[order], begins)
    sums = np.add.reduceat(weights[order, None] * points[order], begins, axis=0)
    return sums / total[:, None], total
