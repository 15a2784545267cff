"""From two tables of a configuration to a population."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.config import registry
from coterie.core.keys import Key
from coterie.data.lazy import is_lazy
from coterie.data.partitions import KEEP_CLIENTS, PARTITIONS, READS_NO_LABELS, Partition
from coterie.data.population import Population
from coterie.data.samples import Samples, Targets
from coterie.data.sources.saved import partition_of_population
from coterie.data.tabular.inputs import encode_inputs
from coterie.data.transforms import transform_samples, with_noise
from coterie.errors import ConfigError, DataError


def load_population(
    source: Mapping[str, Any], partition: Mapping[str, Any], *, root: Path | None = None, key: Key
) -> Population:
    """Load samples and split them over clients.

    That is ``populate(samples, make_partition(samples, partition, key), key)``.

    Args:
        source: ``kind`` (or ``name``) of a registered source, and its parameters.
        partition: ``kind`` (or ``name``) of a partition in `PARTITIONS`, and its parameters.
        root: the data folder; ``None``: the environment variable ``COTERIE_DATA``.
        key: the stream that the partition draws from.

    Example:
        >>> p = load_population({"kind": "digits"}, {"kind": "iid", "clients": 4}, key=Key(0))
        >>> p.clients, p.sizes("train").tolist(), p.shape
        (4, [405, 404, 404, 404], (1, 8, 8))
    """
    # Two steps, which a caller with many partitions takes by itself, to load only once.
    samples = load_samples(source, root=root)
    return populate(samples, make_partition(samples, partition, key), key)


def load_samples(
    source: Mapping[str, Any], *, root: Path | None = None, targets: Targets = "classes"
) -> Samples:
    """The samples of a source."""
    made = registry.build("source", source, root=root, targets=targets)
    return _as_samples(made, source)


def _as_samples(made: Any, source: Mapping[str, Any]) -> Samples:
    """What a factory of a source made, as samples."""
    if isinstance(made, Samples):
        return made
    if isinstance(made, Population):
        holders = partition_of_population(made)
        return Samples(
            made.x, made.y, made.classes, len(made.y), holders=holders, scaling=made.scaling
        )
    name = source.get("source") or source.get("kind") or source.get("name")
    raise ConfigError(
        f"data.source: {name!r} made a {type(made).__name__}; expected a coterie.Population or "
        "coterie.data.Samples"
    )


def make_partition(samples: Samples, partition: Mapping[str, Any], key: Key) -> Partition:
    """Who gets which samples; their inputs are not read."""
    kind = str(partition.get("kind") or partition.get("name"))
    # Labels of a lazy source are unknown: only the source can say who holds which samples.
    if is_lazy(samples.y) and kind in PARTITIONS and kind not in KEEP_CLIENTS:
        raise ConfigError(
            "data.partition.kind: the federation is made client by client and cannot be split "
            f"otherwise, got {kind!r}; expected 'given', or lazy = false in [data]"
        )
    if not samples.classes and kind in PARTITIONS and kind not in READS_NO_LABELS:
        raise ConfigError(
            f"data.partition.kind: splits by classes, got {kind!r} for targets that are none; "
            f"expected one of {', '.join(READS_NO_LABELS)}"
        )
    if samples.table is not None and samples.table.past is not None:
        _refuse_mixed_times(partition, kind)
    return registry.build("partition", partition, samples=samples, key=key)


def _refuse_mixed_times(partition: Mapping[str, Any], kind: str) -> None:
    """Refuse to split series otherwise than by time: inputs that overlap would be in both splits."""
    if kind != "natural" or partition.get("split") == "random":
        raise ConfigError(
            f"data.partition.kind: series are split by client and by time, got {kind!r}; "
            "expected 'natural' without split = 'random'"
        )


def populate(samples: Samples, parts: Partition, key: Key | None = None) -> Population:
    """Samples and a partition as a population.

    A planted shift of labels or images, which the partition only describes, is carried out here.
    Inputs of a table are made here, by what the clients report of their training rows.

    Args:
        key: for the noise of reports that have some.
    """
    if samples.table is not None:
        _refuse_images(parts)
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


def _refuse_images(parts: Partition) -> None:
    """Refuse a partition of a table that changes images."""
    if parts.transform in ("rotate", "restyle"):
        raise DataError(
            "data.partition.transform: changes images, got a table; expected another transform"
        )
    if parts.copies > 1:
        raise DataError("data.partition.copies: got a table; expected images, or copies = false")
