"""The default estimator of the number of groups: separate clumps in a subspace of their own."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from coterie.core import FloatArray, IntArray, Key
from coterie.math.clustering import kmeans, scatter
from coterie.math.similarity import Matrix, cosine, edc_embedding

# Thresholds, chosen on planted and natural federations, see `docs/groups-auto.md`.
CLEAR = 0.85
APART = 4.25
SURE = 5.5
NOISE = 1.25

# Clients that are needed to tell blurred groups from noise.
FEW = 20

# Clouds of noise that an estimate is compared with.
DRAWS = 4

# Variances under this share of the whole are rounding errors of zero.
_TINY = 1e-12


def separation(updates: Tensor, most: int, key: Key) -> int:
    """The number of groups that fill a subspace of their own with separate clumps; the default.

    ``k`` groups span ``k - 1`` directions around their mean. So for each ``k`` the unit updates are
    centred, their first ``k - 1`` principal coordinates scaled to one variance each, and cut by
    k-means into ``k``. With ``E_k`` the share of variance between the clusters and ``E0_k`` that of
    a cloud of Gaussian noise,

        r_k = (E_k - E0_k) / (1 - E0_k),        g_k = 1 - l_k / l_{k-1}

    where ``l_1 >= l_2 >= ...`` are the variances before scaling. The ``k`` with the largest ``r_k
    g_k`` is the answer if its ``r_k >= 0.85``.

    Groups that are blurred more than that are looked for if there are 20 clients or more. Then the
    answer is the largest ``k`` whose clusters are all apart: cut the EDC embedding of the unit
    updates by k-means, and let ``t_k`` be the least distance of two clusters' centres, in standard
    deviations inside the two along the line that joins them. They are apart if ``t_k >= 4.25`` and
    ``t_k >= 1.25`` times that of noise, and ``t_k >= 5.5`` or half the largest ``t``. A ``k`` with a
    cluster of very few clients does not count. Where nothing does, the answer is one.
    """
    # Single odd clients are far from all others, and are no group.
    least = max(2, len(updates) // (4 * most))
    clear = _clear_groups(updates, most, least, key)
    if clear > 1 or len(updates) < FEW:
        return clear
    return _blurred_groups(updates, most, least, key)


def _clear_groups(updates: Tensor, most: int, least: int, key: Key) -> int:
    """The first part of `separation`: 1 where no number of groups is clear."""
    values, points = _principal_coordinates(cosine(updates, updates))
    n = len(points)
    best = 0.0
    answer = 1
    explained = 0.0
    for k in range(2, most + 1):
        # No variance is left for another direction.
        if values[k - 2] <= _TINY * n:
            break
        coordinates = points[:, : k - 1]
        labels = kmeans(coordinates, k, key.of(f"kmeans{k}"))
        # 1 - E_k is what is left inside the clusters, of a variance of 1 in each coordinate.
        inside = scatter(coordinates, labels) / (n * (k - 1))
        r = 1 - inside / (1 - _noise(n, k)[0])
        g = 1 - values[k - 1] / values[k - 2]
        if np.bincount(labels).min() >= least and r * g > best:
            best = r * g
            answer = k
            explained = r
    if explained >= CLEAR:
        return answer
    return 1


def _principal_coordinates(kernel: Matrix) -> tuple[FloatArray, Matrix]:
    """Variances and whitened coordinates ``[n, n]`` of centred points, from their kernel."""
    n = len(kernel)
    middle = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(middle @ kernel @ middle)
    descending: FloatArray = np.maximum(values[::-1], 0)
    return descending, vectors[:, ::-1] * np.sqrt(n)


def _blurred_groups(updates: Tensor, most: int, least: int, key: Key) -> int:
    """The second part of `separation`: 1 where no clusters are all apart."""
    unit = normalize(updates.to(torch.float64))
    apart = {}
    for k in range(2, most + 1):
        embedding = edc_embedding(unit, k)
        labels = kmeans(embedding, k, key.of(f"edc{k}"))
        if np.bincount(labels).min() >= least:
            apart[k] = _closest_clusters(embedding, labels)
    enough = min(SURE, max(apart.values(), default=0.0) / 2)
    answers = [
        k for k, t in apart.items() if t >= max(enough, APART, NOISE * _noise(len(unit), k)[1])
    ]
    return max(answers, default=1)


def _closest_clusters(points: Matrix, labels: IntArray) -> float:
    """The least distance of two clusters' centres, in standard deviations inside the two along the
    line between their centres."""
    clusters = [points[labels == j] for j in range(labels.max() + 1)]
    found = []
    for a, b in combinations(clusters, 2):
        line = a.mean(axis=0) - b.mean(axis=0)
        along = np.concatenate([_centred(a @ line), _centred(b @ line)])
        spread = np.sqrt((along**2).sum() / max(1, len(a) + len(b) - 2))
        # Distances along the line are in units of its length, hence the square.
        found.append(float(line @ line) / max(float(spread), _TINY))
    return min(found)


def _centred(values: FloatArray) -> FloatArray:
    return values - values.mean()


@lru_cache(maxsize=256)
def _noise(n: int, k: int) -> tuple[float, float]:
    """The share of variance that k-means explains of ``n`` points of Gaussian noise in ``k - 1``
    dimensions, and ``t_k`` in ``k``. The keys depend on ``n`` and ``k`` alone, so it is cached."""
    shares = []
    gaps = []
    for draw in range(DRAWS):
        key = Key(draw, f"noise {n} {k}")
        cloud = key.generator().normal(size=(n, k))
        inside = cloud[:, : k - 1] - cloud[:, : k - 1].mean(axis=0)
        white = np.linalg.svd(inside, full_matrices=False)[0] * np.sqrt(n)
        shares.append(1 - scatter(white, kmeans(white, k, key)) / (n * (k - 1)))
        gaps.append(_closest_clusters(cloud, kmeans(cloud, k, key)))
    return float(np.mean(shares)), float(np.mean(gaps))
