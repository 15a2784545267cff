"""What a partition changes of the samples themselves: labels, images, and noise in inputs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.images.styles import moves_pixels_alone, restyle
from coterie.data.lazy import is_lazy
from coterie.data.partitions import Partition
from coterie.data.samples import Samples
from coterie.errors import DataError


def transform_samples(samples: Samples, parts: Partition) -> tuple[Tensor, Tensor]:
    """The inputs and labels after each planted group's samples were transformed.

    Returns:
        Inputs and labels; what no transform changes is the identical tensor.
    """
    if is_lazy(samples.y):
        raise DataError(
            "partition: a planted shift of samples that are made client by client, got a transform"
        )
    x, y = samples.x, samples.y
    if parts.copies > 1:
        x = x.repeat(parts.copies, *[1] * (x.ndim - 1))
        y = y.repeat(parts.copies, *[1] * (y.ndim - 1))
    if parts.transform:
        group = _group_of_samples(parts, len(y))
        if parts.transform == "relabel":
            y = _relabelled(y, group, parts.relabel, samples.classes)
        elif parts.transform == "rotate":
            x = _restyled(x, group, tuple(f"rotate {90 * g}" for g in range(group.max() + 1)))
        else:
            x = _restyled(x, group, parts.styles)
    if parts.turns is not None:
        y = _turned_labels(y, parts.turns, samples.classes)
    return x, y


def _group_of_samples(parts: Partition, samples: int) -> IntArray:
    """The planted group of each sample, int64 ``[S]``; 0 for one that no client holds."""
    if parts.concept is not None:
        if len(parts.concept) != samples:
            raise DataError(
                f"partition: concepts of {len(parts.concept)} samples, expected {samples}"
            )
        return parts.concept
    if parts.planted is None:
        raise DataError(f"partition: transform {parts.transform!r} without planted groups")
    group = np.zeros(samples, np.int64)
    for planted, train, test in zip(parts.planted, parts.train, parts.test, strict=True):
        rows = np.concatenate([train, test])
        # Checked here: a negative index would quietly mark another client's sample.
        if rows.size and (rows.min() < 0 or rows.max() >= samples):
            raise DataError(f"partition: sample index out of range; expected 0 to {samples - 1}")
        group[rows] = planted
    return group


def _restyled(x: Tensor, group: IntArray, styles: tuple[str, ...]) -> Tensor:
    """Images as each group sees them."""
    if x.ndim < 3:
        raise DataError(f"data.partition.how: needs images, got shape {tuple(x.shape[1:])}")
    if int(group.max()) >= len(styles):
        raise DataError(f"partition: {len(styles)} styles for {int(group.max()) + 1} groups")
    low, high = float(x.min()), float(x.max())
    if low < 0 and not all(map(moves_pixels_alone, styles)):
        raise DataError(
            f"data.partition.styles: needs pixels of one scale, got values from {low:.3g} to "
            f"{high:.3g}; expected pixels = 'unit' in [data]"
        )
    # A copy: the source may hand the same tensor to another partition.
    restyled = x.clone()
    for g in np.unique(group):
        if styles[g] != "plain":
            rows = torch.from_numpy(np.flatnonzero(group == g))
            restyled[rows] = restyle(restyled[rows], styles[g], low, high)
    return restyled


def _relabelled(y: Tensor, group: IntArray, relabel: IntArray | None, classes: int) -> Tensor:
    """Labels as each group's permutation has them."""
    groups = int(group.max()) + 1
    if relabel is None or len(relabel) < groups or relabel.shape[1] != classes:
        raise DataError(f"partition: relabel does not fit {groups} groups of {classes} classes")
    return torch.from_numpy(relabel[group, y.numpy()])


def _turned_labels(y: Tensor, turns: IntArray, classes: int) -> Tensor:
    """Labels with the wrong ones of a partition."""
    if y.ndim != 1 or len(turns) != len(y):
        raise DataError(f"partition: turns of {len(turns)} labels, expected {len(y)}")
    return (y + torch.from_numpy(turns)) % classes


def with_noise(x: Tensor, parts: Partition) -> Tensor:
    """Inputs with each client's noise."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise DataError(
            "data.partition.kind: 'feature_noise' adds to numbers, got inputs that are tokens or "
            "made client by client; expected images or a table"
        )
    assert parts.noise is not None
    # A copy: the source may hand the same tensor to another partition.
    noisy = x.clone()
    key = Key(parts.noise_seed).of("feature noise")
    for client, deviation in enumerate(parts.noise.tolist()):
        rows = np.concatenate([parts.train[client], parts.test[client]])
        if deviation:
            drawn = key.client(client).generator().standard_normal((len(rows), *x.shape[1:]))
            noisy[torch.from_numpy(rows)] += torch.from_numpy(deviation * drawn).to(x.dtype)
    return noisy
