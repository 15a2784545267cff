"""Updates to the number of groups: what ``groups = "auto"`` asks. Every estimator can answer
one."""

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

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.math.clustering import kmeans
from coterie.math.similarity import Matrix, cosine, edc_embedding

SILHOUETTE = 0.7
CLEAR = 0.85
APART = 4.25
SURE = 5.5
NOISE = 1.25
FEW = 20
DRAWS = 4
_TINY = 1e-12

Auto = Literal["auto"]
Most = Annotated[int, Field(ge=1)]
Number = Most | Auto
Estimator = Callable[[Tensor, int, Key], int]


def eigengap(updates: Tensor, most: int, key: Key) -> int:
    """The largest gap in the spectrum of the normalised cosine kernel.

    With ``A = max(S, 0)`` and ``D`` its row sums, ``m = argmax_{j <= most} (l_j - l_{j+1})`` over
    the eigenvalues ``l_1 = 1 >= l_2 >= ...`` of ``D^-1/2 A D^-1/2``; one group leaves all of the
    spectrum but ``l_1`` small.

    Source: von Luxburg, A Tutorial on Spectral Clustering (2007), section 8.3.
    """
    kernel = np.maximum(cosine(updates, updates), 0)
    scale = 1 / np.sqrt(np.maximum(kernel.sum(axis=1), _TINY))
    values = np.linalg.eigvalsh(kernel * np.outer(scale, scale))[::-1]
    values = np.append(values, 0.0)[: most + 1]
    return int(np.argmax(values[:-1] - values[1:])) + 1


def silhouette(updates: Tensor, most: int, key: Key) -> int:
    """The number of k-means clusters of the EDC embedding with the widest silhouette; one where
    that is under 0.7.

    Source: Rousseeuw, Silhouettes (1987); clusters wider than 0.7 are there called strong.
    """
    from sklearn.metrics import silhouette_score

    width = {1: SILHOUETTE}
    for k in range(2, most + 1):
        embedding = edc_embedding(updates, k)
        labels = kmeans(embedding, k, key.of(str(k)))
        width[k] = float(silhouette_score(embedding, labels))
    return max(width, key=lambda k: width[k])


def gap(updates: Tensor, most: int, key: Key) -> int:
    """The gap statistic of the EDC embedding, against uniform draws in the box of its principal
    axes.

    ``Gap(k) = E log W*_k - log W_k``, and the answer is the least ``k`` with ``Gap(k) >= Gap(k+1) -
    s_{k+1}``.

    Source: Tibshirani, Walther, Hastie, Estimating the number of clusters in a data set via the gap
    statistic (2001).
    """
    embedding = edc_embedding(updates, most)
    embedding = embedding - embedding.mean(axis=0)
    axes = embedding @ np.linalg.svd(embedding, full_matrices=False)[2].T
    rng = key.of("reference").generator()
    drawn = [rng.uniform(axes.min(axis=0), axes.max(axis=0), axes.shape) for _ in range(DRAWS)]
    found = []
    error = []
    for k in range(1, min(most + 1, len(axes) - 1) + 1):
        inside = [_scatter(points, _cut(points, k, key)) + _TINY for points in (axes, *drawn)]
        own = np.log(inside[0])
        null = np.log(inside[1:])
        found.append(null.mean() - own)
        error.append(null.std() * np.sqrt(1 + 1 / DRAWS))
    for k in range(1, len(found)):
        if found[k - 1] >= found[k] - error[k]:
            return k
    return most


def separation(updates: Tensor, most: int, key: Key) -> int:
    """The number of groups that fill a subspace of their own with separate clumps; the default.

    ``k`` groups span ``k - 1`` directions around their mean. So for each ``k`` the unit updates are
    centred, their first ``k - 1`` principal coordinates scaled to one variance each, and cut by
    k-means into ``k``: with ``E_k`` the share of variance between the clusters and ``E0_k`` that of
    a cloud of Gaussian noise,

        r_k = (E_k - E0_k) / (1 - E0_k),        g_k = 1 - l_k / l_{k-1}

    where ``l_1 >= l_2 >= ...`` are the variances before scaling. The ``k`` with the largest ``r_k
    g_k`` is the answer if its ``r_k >= 0.85``. Where groups are blurred more than that, and 20
    clients are there to tell, it is the largest ``k`` whose clusters are all apart: cut the EDC
    embedding of the unit updates by k-means, and let ``t_k`` be the least distance of two clusters'
    centres, in standard deviations inside the two along the line that joins them. They are apart if
    ``t_k >= 4.25`` and ``t_k >= 1.25`` times that of noise, and ``t_k >= 5.5`` or half the largest
    ``t``. A ``k`` with a cluster of very few clients does not count. Where nothing does, the answer
    is one.

    Args:
        updates: ``[n, d]``.
        most: the largest answer.
        key: random stream.
    """
    least = max(2, len(updates) // (4 * most))
    clear = _clear(updates, most, least, key)
    if clear > 1 or len(updates) < FEW:
        return clear
    return _apart(updates, most, least, key)


def _clear(updates: Tensor, most: int, least: int, key: Key) -> int:
    unit = cosine(updates, updates)
    n = len(unit)
    middle = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(middle @ unit @ middle)
    values = np.maximum(values[::-1], 0)
    points = vectors[:, ::-1] * np.sqrt(n)
    best = 0.0
    answer = 1
    sure = 0.0
    for k in range(2, most + 1):
        if values[k - 2] <= _TINY * n:
            break
        labels = kmeans(points[:, : k - 1], k, key.of(f"kmeans{k}"))
        rise = 1 - _scatter(points[:, : k - 1], labels) / (n * (k - 1)) / (1 - _noise(n, k)[0])
        fall = 1 - values[k - 1] / values[k - 2]
        if np.bincount(labels).min() >= least and rise * fall > best:
            best = rise * fall
            answer = k
            sure = rise
    if sure >= CLEAR:
        return answer
    return 1


def _apart(updates: Tensor, most: int, least: int, key: Key) -> int:
    unit = normalize(updates.to(torch.float64))
    apart = {}
    for k in range(2, most + 1):
        embedding = edc_embedding(unit, k)
        labels = kmeans(embedding, k, key.of(f"edc{k}"))
        if np.bincount(labels).min() >= least:
            apart[k] = _closest(embedding, labels)
    enough = min(SURE, max(apart.values(), default=0.0) / 2)
    return max(
        (k for k, t in apart.items() if t >= max(enough, APART, NOISE * _noise(len(unit), k)[1])),
        default=1,
    )


ESTIMATORS: Mapping[str, Estimator] = MappingProxyType(
    {"eigengap": eigengap, "silhouette": silhouette, "gap": gap, "separation": separation}
)


def count(updates: Tensor, most: int, key: Key, how: str = "separation") -> int:
    """How many groups the clients of a cold start form, 1 to ``most``.

    Args:
        updates: ``[n, d]``, the updates of clients that all started from the same model.
        most: the largest answer; there are at least two clients to a group.
        key: random stream.
        how: a name of ``ESTIMATORS``.

    Example:
        >>> import torch
        >>> near = torch.randn(40, 50, generator=torch.Generator().manual_seed(0))
        >>> far = torch.eye(50)[:2].repeat_interleave(20, dim=0) * 20
        >>> count(near, 8, Key(0)), count(near + far, 8, Key(0))
        (1, 2)
    """
    usable = updates[(updates != 0).any(dim=1)]
    most = min(most, len(usable) // 2)
    if most > 1:
        return ESTIMATORS[how](usable, most, key)
    return 1


def told(m: int) -> dict[str, Any]:
    """What a run says of the number it found, for the notes of the round.

    Example:
        >>> told(3), told(1)["grouping"]
        ({'groups_found': 3}, 'one group found: grouping will not help')
    """
    return {
        "groups_found": m,
        **({"grouping": "one group found: grouping will not help"} if m == 1 else {}),
    }


def _cut(points: Matrix, k: int, key: Key) -> IntArray:
    if k > 1:
        return kmeans(points, k, key.of(f"kmeans{k}"))
    return np.zeros(len(points), np.int64)


def _scatter(points: Matrix, labels: IntArray) -> float:
    """Sum of squares inside clusters."""
    centre = np.stack([points[labels == j].mean(axis=0) for j in range(labels.max() + 1)])
    return float(((points - centre[labels]) ** 2).sum())


def _closest(points: Matrix, labels: IntArray) -> float:
    """The least distance of two clusters' centres, in standard deviations inside them along the
    line between."""
    clusters = [points[labels == j] for j in range(labels.max() + 1)]
    found = []
    for a, b in combinations(clusters, 2):
        line = a.mean(axis=0) - b.mean(axis=0)
        along = [c @ line - (c @ line).mean() for c in (a, b)]
        spread = np.sqrt((np.concatenate(along) ** 2).sum() / max(1, len(a) + len(b) - 2))
        found.append(float(line @ line) / max(float(spread), _TINY))
    return min(found)


@lru_cache(maxsize=256)
def _noise(n: int, k: int) -> tuple[float, float]:
    """What k-means makes of ``n`` points of noise: the variance explained in ``k - 1`` dimensions,
    ``t_k`` in ``k``."""
    shares = []
    gaps = []
    for draw in range(DRAWS):
        key = Key(draw, f"noise {n} {k}")
        cloud = key.generator().normal(size=(n, k))
        inside = cloud[:, : k - 1] - cloud[:, : k - 1].mean(axis=0)
        white = np.linalg.svd(inside, full_matrices=False)[0] * np.sqrt(n)
        shares.append(1 - _scatter(white, kmeans(white, k, key)) / (n * (k - 1)))
        gaps.append(_closest(cloud, kmeans(cloud, k, key)))
    return float(np.mean(shares)), float(np.mean(gaps))
