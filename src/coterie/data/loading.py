"""From two tables of a configuration to a population."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.config import registry
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.lazy import is_drawn
from coterie.data.partitions import PARTITIONS, Partition
from coterie.data.population import Population
from coterie.data.samples import Samples
from coterie.errors import ConfigError, DataError


def load_population(
    source: Mapping[str, Any], partition: Mapping[str, Any], *, root: Path | None = None, key: Key
) -> Population:
    """Load samples and deal them to clients: ``populate(samples, make_partition(samples, partition,
    key))``.

    Args:
        source: ``kind`` (or ``name``) of a registered source, and its parameters.
        partition: ``kind`` (or ``name``) of a partition in `PARTITIONS`, and its parameters.
        root: the data folder; ``None``: the environment variable ``COTERIE_DATA``.
        key: the stream that deals.

    Raises:
        ConfigError: for an unknown kind or parameter, or a value out of range.
        DataError: if the data cannot be read or do not suffice.

    Example:
        >>> p = load_population({"kind": "digits"}, {"kind": "iid", "clients": 4}, key=Key(0))
        >>> p.clients, p.sizes("train").tolist(), p.shape
        (4, [405, 404, 404, 404], (1, 8, 8))
    """
    samples = load_samples(source, root=root)
    return populate(samples, make_partition(samples, partition, key))


def load_samples(source: Mapping[str, Any], *, root: Path | None = None) -> Samples:
    """The samples of a source.

    Raises:
        ConfigError: for an unknown source or parameter.
        DataError: if the data cannot be read.
    """
    return registry.build("source", source, root=root)


def make_partition(samples: Samples, partition: Mapping[str, Any], key: Key) -> Partition:
    """Who gets which samples.

    Raises:
        ConfigError: for an unknown partition or parameter.
        DataError: if the samples do not suffice.
    """
    kind = partition.get("kind") or partition.get("name")
    drawn = is_drawn(samples.y)
    # Labels are not known before they are drawn: only the source can say who holds which samples.
    if drawn and kind in PARTITIONS and not _takes_offsets(PARTITIONS[kind]):
        what = "the federation is drawn client by client and cannot be dealt otherwise"
        expected = "'given', or lazy = false in [data]"
        raise ConfigError(f"data.partition.kind: {what}, got {kind!r}; expected {expected}")
    return registry.build(
        "partition",
        partition,
        labels=np.empty(0, np.int64) if drawn else samples.y.numpy(),
        key=key,
        classes=samples.classes,
        train_rows=samples.train_rows,
        columns=samples.columns,
        offsets=samples.offsets,
    )


def _takes_offsets(partition: Callable[..., Partition]) -> bool:
    return "offsets" in inspect.signature(partition).parameters


def populate(samples: Samples, parts: Partition) -> Population:
    """Samples and parts as a population; a planted shift of labels or images is carried out here.

    Raises:
        DataError: if the parts do not fit the samples.
    """
    x = samples.x
    y = samples.y
    if parts.transform:
        if is_drawn(y):
            raise DataError(
                "partition: a planted shift of samples that are drawn client by client, got a transform"
            )
        group = _group_of_samples(parts, len(y))
        x, y = (
            (_rotated(x, group), y)
            if parts.transform == "rotate"
            else (x, _relabelled(y, group, parts, samples))
        )
    return Population(x, y, parts.train, parts.test, samples.classes, parts.names, parts.planted)


def _group_of_samples(parts: Partition, samples: int) -> IntArray:
    group = np.zeros(samples, np.int64)
    if parts.planted is None:
        raise DataError(f"partition: transform {parts.transform!r} without planted groups")
    for planted, *rows in zip(parts.planted, parts.train, parts.test, strict=True):
        every = np.concatenate(rows)
        if every.size and (every.min() < 0 or every.max() >= samples):
            raise DataError(f"partition: sample index out of range; expected 0 to {samples - 1}")
        group[every] = planted
    return group


def _rotated(x: Tensor, group: IntArray) -> Tensor:
    if x.ndim < 3 or x.shape[-1] != x.shape[-2]:
        raise DataError(
            f"data.partition.how: rotate needs square images, got shape {tuple(x.shape[1:])}"
        )
    x = x.clone()
    for turns in np.unique(group[group > 0]):
        rows = torch.from_numpy(np.flatnonzero(group == turns))
        x[rows] = torch.rot90(x[rows], int(turns), dims=(-2, -1))
    return x


def _relabelled(y: Tensor, group: IntArray, parts: Partition, samples: Samples) -> Tensor:
    table = parts.relabel
    groups = int(group.max()) + 1
    if table is None or len(table) < groups or table.shape[1] != samples.classes:
        raise DataError(
            f"partition: relabel does not fit {groups} groups of {samples.classes} classes"
        )
    return torch.from_numpy(table[group, y.numpy()])
