"""From two tables of a configuration to a population."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.config import registry
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.images.pixels import moves_pixels_alone, restyle
from coterie.data.lazy import is_lazy
from coterie.data.partitions import KEEP_CLIENTS, PARTITIONS, READS_NO_LABELS, Partition
from coterie.data.population import Population
from coterie.data.samples import Samples, Targets
from coterie.data.sources.saved import partition_of_population
from coterie.data.tabular.inputs import encode_inputs
from coterie.errors import ConfigError, DataError


def load_population(
    source: Mapping[str, Any], partition: Mapping[str, Any], *, root: Path | None = None, key: Key
) -> Population:
    """Load samples and split them over clients.

    That is ``populate(samples, make_partition(samples, partition, key))``.

    Args:
        source: ``source``, the name of a registered one, and its parameters.
        partition: ``kind``, the name of one in `PARTITIONS`, and its parameters.
        root: the data folder; ``None``: the environment variable ``COTERIE_DATA``.
        key: the stream that the partition draws from.

    Example:
        >>> p = load_population({"source": "digits"}, {"kind": "iid", "clients": 4}, key=Key(0))
        >>> p.clients, p.sizes("train").tolist(), p.shape
        (4, [405, 404, 404, 404], (1, 8, 8))
    """
    # Two steps, which a caller with many partitions takes by itself, to load only once.
    samples = load_samples(source, root=root)
    return populate(samples, make_partition(samples, partition, key))


def load_samples(
    source: Mapping[str, Any],
    *,
    root: Path | None = None,
    targets: Targets = "classes",
    frame: Any = None,
) -> Samples:
    """The samples of a source; those of the source ``file`` may be in a frame."""
    made = registry.build("source", source, root=root, targets=targets, frame=frame)
    if isinstance(made, Samples):
        return made
    if isinstance(made, Population):
        holders = partition_of_population(made)
        return Samples(
            made.x, made.y, made.classes, len(made.y), holders=holders, scaling=made.scaling
        )
    made_of = f"{source['source']!r} made a {type(made).__name__}"
    expected = "a coterie.Population or coterie.data.Samples"
    raise ConfigError("wrong-type", "data.source", made_of, allowed=expected)


def make_partition(samples: Samples, partition: Mapping[str, Any], key: Key) -> Partition:
    """Who gets which samples; their inputs are not read."""
    kind = str(partition.get("kind"))
    # Labels of a lazy source are unknown: only the source can say who holds which samples.
    if is_lazy(samples.y) and kind in PARTITIONS and kind not in KEEP_CLIENTS:
        what = "a lazy federation already has its clients"
        raise _other_kind(what, kind, "'given', or lazy = false in [data]")
    if not samples.classes and kind in PARTITIONS and kind not in READS_NO_LABELS:
        what = "splits by classes, but these targets are not classes"
        raise _other_kind(what, kind, f"one of {', '.join(READS_NO_LABELS)}")
    is_series = samples.table is not None and samples.table.past is not None
    # Split otherwise than by time, inputs that overlap would be in both splits.
    if is_series and (kind != "natural" or partition.get("split") == "random"):
        what = "series can only be split by client and by time"
        raise _other_kind(what, kind, "'natural' without split = 'random'")
    return registry.build("partition", partition, samples=samples, key=key)


def _other_kind(what: str, kind: str, expected: str) -> ConfigError:
    return ConfigError("does-not-fit", "data.partition.kind", what, got=kind, allowed=expected)


def _does_not_fit(option: str, found: str, expected: str) -> DataError:
    return DataError("does-not-fit", f"data.partition.{option}", found=found, allowed=expected)


def populate(samples: Samples, parts: Partition, key: Key | None = None) -> Population:
    """Samples and a partition as a population.

    A planted shift of labels or images, which the partition only describes, is carried out here.
    Inputs of a table are made here, by what the clients report of their training rows.

    Args:
        key: random key for noise in reports; default: a secret of the operating system.
    """
    if samples.table is not None and parts.transform in ("rotate", "restyle"):
        raise _does_not_fit("transform", "a table", "images, or another transform")
    if samples.table is not None and parts.copies > 1:
        raise _does_not_fit("copies", "a table", "images, or copies = false")
    x = samples.x
    y = samples.y
    if parts.changes_samples:
        x, y = transform_samples(samples, parts)
    table = None
    if samples.table is not None:
        # After the partition, since statistics are of training rows alone.
        x, table = encode_inputs(samples.table, samples.x.numpy(), parts.train, key)
    if parts.noise is not None:
        x = with_noise(x, parts)
    return Population(
        x,
        y,
        parts.train,
        parts.test,
        samples.classes,
        parts.names,
        parts.planted,
        table,
        samples.naive,
        parts.concept,
        parts.copies,
        samples.on_disk,
        samples.scaling,
    )


# --- what a partition changes of the samples: labels, images, and noise in inputs -----------------


def transform_samples(samples: Samples, parts: Partition) -> tuple[Tensor, Tensor]:
    """The inputs and labels after each planted group's samples were transformed.

    Returns:
        Inputs and labels; what no transform changes is the identical tensor.
    """
    if is_lazy(samples.y):
        raise _does_not_fit("transform", "a lazy federation", "lazy = false in [data]")
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
        if y.ndim != 1 or len(parts.turns) != len(y):
            found = f"turns of {len(parts.turns)} labels"
            raise DataError(
                "wrong-shape", "data.partition", found=found, allowed=f"{len(y)}, one for each"
            )
        y = (y + torch.from_numpy(parts.turns)) % samples.classes
    return x, y


def _group_of_samples(parts: Partition, samples: int) -> IntArray:
    """The planted group of each sample, int64 ``[S]``; 0 for one that no client holds."""
    if parts.concept is not None:
        if len(parts.concept) != samples:
            found = f"concepts of {len(parts.concept)} samples"
            raise DataError("wrong-shape", "data.partition", found=found, allowed=samples)
        return parts.concept
    if parts.planted is None:
        what = f"transform {parts.transform!r} without planted groups"
        raise DataError("does-not-fit", "data.partition", what)
    group = np.zeros(samples, np.int64)
    for planted, train, test in zip(parts.planted, parts.train, parts.test, strict=True):
        rows = np.concatenate([train, test])
        # Checked here: a negative index would quietly mark another client's sample.
        if rows.size and (rows.min() < 0 or rows.max() >= samples):
            what = "rows out of range"
            raise DataError("out-of-range", "data.partition", what, allowed=f"0 to {samples - 1}")
        group[rows] = planted
    return group


def _restyled(x: Tensor, group: IntArray, styles: tuple[str, ...]) -> Tensor:
    """Images as each group sees them."""
    if x.ndim < 3:
        raise _does_not_fit("how", f"shape {tuple(x.shape[1:])}", "images")
    if int(group.max()) >= len(styles):
        found = f"{len(styles)} for {int(group.max()) + 1} groups"
        raise DataError("wrong-shape", "data.partition.styles", found=found)
    low, high = float(x.min()), float(x.max())
    if low < 0 and not all(map(moves_pixels_alone, styles)):
        values = f"pixels from {low:.3g} to {high:.3g}, without a common scale"
        raise _does_not_fit("styles", values, "pixels = 'unit' in [data]")
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
        what = f"relabel does not fit {groups} groups of {classes} classes"
        raise DataError("does-not-fit", "data.partition", what)
    return torch.from_numpy(relabel[group, y.numpy()])


def with_noise(x: Tensor, parts: Partition) -> Tensor:
    """Inputs with each client's noise."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        found = "'feature_noise' with tokens or a lazy federation"
        raise _does_not_fit("kind", found, "inputs that are numbers: images or a table")
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
