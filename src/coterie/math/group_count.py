"""Estimators of the number of groups from updates, for ``groups = "auto"``. Each of them can return
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from coterie.core.arrays import BoolArray, IntArray
from coterie.core.keys import Key
from coterie.core.startup import starting_up
from coterie.math.clustering import kmeans, scatter
from coterie.math.separation import separation
from coterie.math.similarity import Matrix, cosine, edc_embedding

# Clusters wider than that are called strong by Rousseeuw.
SILHOUETTE = 0.7

# With fewer, an interval over clients is so wide that a gain of groups hardly ever shows, and one
# group is no sign that grouping will not help.
MANY_CLIENTS = 10

# Draws of uniform noise that `gap` compares with.
REFERENCES = 4

# A scatter or a row sum of zero, before a logarithm or a division.
_TINY = 1e-12

# Types of options: what `groups` and `max_groups` may be.
Auto = Literal["auto"]
Most = Annotated[int, Field(ge=1)]
GroupCount = Most | Auto

# Updates [n, d], the largest answer, a random stream -> the number of groups.
Estimator = Callable[[Tensor, int, Key], int]


def estimate_groups(updates: Tensor, most: int, key: Key, how: str = "separation") -> int:
    """The number of groups that the clients of a cold start form, 1 to ``most``.

    Args:
        updates: ``[n, d]``, the updates of clients that all started from the same model; zero rows
            are left out.
        most: the largest answer; a group has at least two clients.
        key: random stream.
        how: a name from ``ESTIMATORS``.

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


def enough_samples(sizes: IntArray) -> BoolArray:
    """Which clients have enough samples to be counted: half of the mean, or the median if it is less.

    The updates of much smaller clients are mostly noise, which looks like groups of its own. At least
    half of the clients are counted.

    Example:
        >>> enough_samples(np.array([40, 40, 50])).tolist(), enough_samples(np.array([2, 90, 90])).tolist()
        ([True, True, True], [False, True, True])
        >>> enough_samples(np.array([50, 60, 9000])).tolist()
        [False, True, True]
    """
    least = min(float(sizes.mean()) / 2, float(np.median(sizes)))
    return np.asarray(sizes >= least)


def estimate_notes(m: int, clients: int) -> dict[str, Any]:
    """What the notes of a round say about the number that was found.

    Args:
        m: number of groups.
        clients: number of clients of the federation.

    Example:
        >>> estimate_notes(3, 40), estimate_notes(1, 40)["grouping"]
        ({'groups_found': 3}, 'one group found: all clients share one model')
        >>> estimate_notes(1, 4)["grouping"]
        'one group found, but this says little with 4 clients: compare with a fixed number'
    """
    notes: dict[str, Any] = {"groups_found": m}
    if m != 1:
        return notes
    notes["grouping"] = "one group found: all clients share one model"
    if clients < MANY_CLIENTS:
        found = f"one group found, but this says little with {clients} clients"
        notes["grouping"] = f"{found}: compare with a fixed number"
    return notes


# --- estimators from the literature ---------------------------------------------------------------


def eigengap(updates: Tensor, most: int, key: Key) -> int:
    """The largest gap in the spectrum of the normalised cosine kernel.

    With ``A = max(S, 0)`` and ``D`` its row sums, ``m = argmax_{j <= most} (l_j - l_{j+1})`` over
    the eigenvalues ``l_1 = 1 >= l_2 >= ...`` of ``D^-1/2 A D^-1/2``; with one group, the whole
    spectrum except ``l_1`` is small.

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

    It is one if that silhouette is under 0.7.

    Source: Rousseeuw, Silhouettes (1987); there, clusters wider than 0.7 are called strong.
    """
    with starting_up():
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

    It is compared with uniform draws in the box of its principal axes.
    ``Gap(k) = E log W*_k - log W_k``, and the answer is the smallest ``k`` with
    ``Gap(k) >= Gap(k+1) - s_{k+1}``.

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
    references = [rng.uniform(low, high, axes.shape) for _ in range(REFERENCES)]
    gaps = []
    errors = []
    for k in range(1, min(most + 1, len(axes) - 1) + 1):
        scatter = np.log(_gap_scatter(axes, k, key))
        null = np.log([_gap_scatter(points, k, key) for points in references])
        gaps.append(null.mean() - scatter)
        errors.append(null.std() * np.sqrt(1 + 1 / REFERENCES))
    for k in range(1, len(gaps)):
        if gaps[k - 1] >= gaps[k] - errors[k]:
            return k
    return most


def _gap_scatter(points: Matrix, k: int, key: Key) -> float:
    """``W_k``: the scatter of points in ``k`` clusters, never zero."""
    labels = np.zeros(len(points), np.int64)
    if k > 1:
        labels = kmeans(points, k, key.of(f"kmeans{k}"))
    return scatter(points, labels) + _TINY


ESTIMATORS: Mapping[str, Estimator] = MappingProxyType(
    {"eigengap": eigengap, "silhouette": silhouette, "gap": gap, "separation": separation}
)
