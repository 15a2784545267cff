"""From updates to the number of groups, for ``groups = "auto"``. Every estimator can answer one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import combinations
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.math.clustering import kmeans
from coterie.math.similarity import Matrix, cosine, edc_embedding

# Thresholds of the estimators. Those of `separation` were chosen on planted and natural
# federations, see `docs/groups-auto.md`.
SILHOUETTE = 0.7
CLEAR = 0.85
APART = 4.25
SURE = 5.5
NOISE = 1.25

# Clients that `separation` needs to tell blurred groups from noise.
FEW = 20

# Draws of noise that an estimate is compared with.
DRAWS = 4

_TINY = 1e-12

# Types of options: what `groups` and `max_groups` may be.
Auto = Literal["auto"]
Most = Annotated[int, Field(ge=1)]
Number = Most | Auto

# Updates [n, d], the largest answer, a random stream -> the number of groups.
Estimator = Callable[[Tensor, int, Key], int]


def estimate_groups(updates: Tensor, most: int, key: Key, how: str = "separation") -> int:
    """How many groups the clients of a cold start form, 1 to ``most``.

    Args:
        updates: ``[n, d]``, the updates of clients that all started from the same model; zero rows
            are left out.
        most: the largest answer; there are at least two clients to a group.
        key: random stream.
        how: a name of ``ESTIMATORS``.

    Example:
        >>> import torch
        >>> near = torch.randn(40, 50, generator=torch.Generator().manual_seed(0))
        >>> far = torch.eye(50)[:2].repeat_interleave(20, dim=0) * 20
        >>> estimate_groups(near, 8, Key(0)), estimate_groups(near + far, 8, Key(0))
        (1, 2)
    """
    # A zero update has no direction, so it says nothing about groups.
    usable = updates[(updates != 0).any(dim=1)]
    most = min(most, len(usable) // 2)
    if most <= 1:
        return 1
    return ESTIMATORS[how](usable, most, key)


def estimate_notes(m: int) -> dict[str, Any]:
    """What the notes of a round say of the number that was found.

    Example:
        >>> estimate_notes(3), estimate_notes(1)["grouping"]
        ({'groups_found': 3}, 'one group found: grouping will not help')
    """
    notes: dict[str, Any] = {"groups_found": m}
    if m == 1:
        notes["grouping"] = "one group found: grouping will not help"
    return notes


# TO BE REMOVED with their last callers.
count = estimate_groups
told = estimate_notes


# --- estimators from the literature ---------------------------------------------------------------


def eigengap(updates: Tensor, most: int, key: Key) -> int:
    """The largest gap in the spectrum of the normalised cosine kernel.

    With ``A = max(S, 0)`` and ``D`` its row sums, ``m = argmax_{j <= most} (l_j - l_{j+1})`` over
    the eigenvalues ``l_1 = 1 >= l_2 >= ...`` of ``D^-1/2 A D^-1/2``; one group leaves all of the
    spectrum but ``l_1`` small.

    Source: von Luxburg, A Tutorial on Spectral Clustering (2007), section 8.3.
    """
    # A graph's weights are not negative; opposite updates count as unconnected.
    kernel = np.maximum(cosine(updates, updates), 0)
    scale = 1 / np.sqrt(np.maximum(kernel.sum(axis=1), _TINY))
    values = np.linalg.eigvalsh(kernel * np.outer(scale, scale))[::-1]
    values = np.append(values, 0.0)[: most + 1]
    return int(np.argmax(values[:-1] - values[1:])) + 1


def silhouette(updates: Tensor, most: int, key: Key) -> int:
    """The number of k-means clusters of the EDC embedding with the widest silhouette.

    It is one where that silhouette is under 0.7.

    Source: Rousseeuw, Silhouettes (1987); clusters wider than 0.7 are there called strong.
    """
    from sklearn.metrics import silhouette_score

    # A silhouette is not defined for one cluster; the threshold stands in for it.
    width = {1: SILHOUETTE}
    for k in range(2, most + 1):
        embedding = edc_embedding(updates, k)
        labels = kmeans(embedding, k, key.of(str(k)))
        width[k] = float(silhouette_score(embedding, labels))
    return max(width, key=lambda k: width[k])


def gap(updates: Tensor, most: int, key: Key) -> int:
    """The gap statistic of the EDC embedding.

    It is compared with uniform draws in the box of its principal axes. ``Gap(k) = E log W*_k - log
    W_k``, and the answer is the least ``k`` with ``Gap(k) >= Gap(k+1) - s_{k+1}``.

    Source: Tibshirani, Walther, Hastie, Estimating the number of clusters in a data set via the gap
    statistic (2001).
    """
    embedding = edc_embedding(updates, most)
    embedding = embedding - embedding.mean(axis=0)
    # The box of the principal axes, and not of the coordinates, makes the answer the same for a
    # turned embedding.
    axes = embedding @ np.linalg.svd(embedding, full_matrices=False)[2].T
    rng = key.of("reference").generator()
    low = axes.min(axis=0)
    high = axes.max(axis=0)
    references = [rng.uniform(low, high, axes.shape) for _ in range(DRAWS)]
    gaps = []
    errors = []
    for k in range(1, min(most + 1, len(axes) - 1) + 1):
        scatter = np.log(_gap_scatter(axes, k, key))
        null = np.log([_gap_scatter(points, k, key) for points in references])
        gaps.append(null.mean() - scatter)
        errors.append(null.std() * np.sqrt(1 + 1 / DRAWS))
    for k in range(1, len(gaps)):
        if gaps[k - 1] >= gaps[k] - errors[k]:
            return k
    return most


def _gap_scatter(points: Matrix, k: int, key: Key) -> float:
    """``W_k``: the scatter of points in ``k`` clusters, never zero."""
    labels = np.zeros(len(points), np.int64)
    if k > 1:
        labels = kmeans(points, k, key.of(f"kmeans{k}"))
    return _scatter(points, labels) + _TINY


# --- the default ----------------------------------------------------------------------------------


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

    Args:
        updates: ``[n, d]``.
        most: the largest answer.
        key: random stream.
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
        inside = _scatter(coordinates, labels) / (n * (k - 1))
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


def _scatter(points: Matrix, labels: IntArray) -> float:
    """Sum of squares inside clusters."""
    centre = np.stack([points[labels == j].mean(axis=0) for j in range(labels.max() + 1)])
    return float(((points - centre[labels]) ** 2).sum())


def _closest_clusters(points: Matrix, labels: IntArray) -> float:
    """``t``: the least distance of two clusters' centres.

    It is in standard deviations inside the two, along the line between their centres.
    """
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
    """What k-means makes of ``n`` points of Gaussian noise.

    Its keys depend on ``n`` and ``k`` alone, so the answer is kept for all rounds and runs.

    Returns:
        The share of variance explained in ``k - 1`` dimensions, and ``t_k`` in ``k``.
    """
    shares = []
    gaps = []
    for draw in range(DRAWS):
        key = Key(draw, f"noise {n} {k}")
        cloud = key.generator().normal(size=(n, k))
        inside = cloud[:, : k - 1] - cloud[:, : k - 1].mean(axis=0)
        white = np.linalg.svd(inside, full_matrices=False)[0] * np.sqrt(n)
        shares.append(1 - _scatter(white, kmeans(white, k, key)) / (n * (k - 1)))
        gaps.append(_closest_clusters(cloud, kmeans(cloud, k, key)))
    return float(np.mean(shares)), float(np.mean(gaps))


ESTIMATORS: Mapping[str, Estimator] = MappingProxyType(
    {"eigengap": eigengap, "silhouette": silhouette, "gap": gap, "separation": separation}
)
