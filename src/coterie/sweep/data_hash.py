"""Hashes of data: of the samples, and of which client holds which.

A run of a sweep is identified by its configuration and its data. So a changed file makes new runs,
though the configuration names the same path.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.core.availability import read_spans_text
from coterie.data import Samples
from coterie.data.lazy import Ranges, is_lazy
from coterie.data.partitions import Partition
from coterie.errors import ConfigError, Problem
from coterie.experiment import Experiment
from coterie.experiment.experiment import fit_to_clients
from coterie.files import read_json
from coterie.runs.data import read_samples, split_samples


def data_key(config: Experiment) -> str:
    """What the data of a configuration depend on: source, partition and seed."""
    source = {
        "root": getattr(config.data, "root", None),
        **config.options("source"),
        "source": config.name("source"),
    }
    partition = config.resolved()["data"]["partition"]
    # Sorted keys: two files that differ only in their order have the same data.
    return json.dumps([source, partition, config.seed], sort_keys=True, default=str)


@dataclass(frozen=True, slots=True)
class DataHash:
    """What is known of the data of a configuration."""

    digest: str
    clients: int
    numbers: bool = False


def hash_data(configs: Iterable[Experiment]) -> dict[str, DataHash]:
    """Hash the data of configurations by `data_key`, and check each configuration against its data."""
    by_key: dict[str, list[Experiment]] = {}
    for config in configs:
        by_key.setdefault(data_key(config), []).append(config)
    found = {}
    errors: list[Problem] = []
    source = None
    samples: Samples | None = None
    source_hash = ""
    # A key begins with its source. In sorted order each source is read once, and only one at a
    # time is in memory.
    for key in sorted(by_key):
        config = by_key[key][0]
        if samples is None or read_json(key)[0] != source:
            source = read_json(key)[0]
            samples = read_samples(config)
            source_hash = hash_samples(samples)
        partition = split_samples(config, samples)
        found[key] = DataHash(
            source_hash + hash_partition(partition), partition.clients, not samples.classes
        )
        for one in by_key[key]:
            # All are checked before any is refused: the user mends them at once.
            errors += _errors_against(one, partition.clients)
    if errors:
        raise ConfigError.of(errors)
    return found


def _errors_against(config: Experiment, clients: int) -> tuple[Problem, ...]:
    """What a configuration asks for that so many clients do not allow."""
    try:
        fit_to_clients(config, clients)
    except ConfigError as error:
        return error.problems
    return ()


def hash_samples(samples: Samples) -> str:
    """SHA-256 of inputs and labels."""
    counts = np.array([samples.classes, samples.train_rows])
    if is_lazy(samples.x):
        # Lazy samples follow from the options of their source, which are in the configuration's
        # hash. To hash them here would make them all.
        assert samples.offsets is not None
        return _hash([counts, samples.offsets])
    x = samples.x.contiguous().numpy()
    y = samples.y.contiguous().numpy()
    if samples.table is None:
        return _hash([counts, x, y])
    # The options of a table are in the configuration's hash; here are its values.
    kinds = json.dumps([[c.name, c.kind, c.categories] for c in samples.table.columns])
    words = np.frombuffer(kinds.encode(), np.uint8)
    return _hash([counts, x, y, words, samples.table.values])


def hash_partition(partition: Partition) -> str:
    """SHA-256 of which client holds which samples."""
    # Names and the transform (rotations, for example) change what clients see.
    words = json.dumps([partition.transform, list(partition.names)]).encode()
    arrays: list[np.ndarray] = [np.frombuffer(words, np.uint8)]
    arrays += _rows_of(partition.train)
    arrays += _rows_of(partition.test)
    for optional in (partition.planted, partition.relabel):
        # An absent array leaves an empty one, so that its neighbours keep their places.
        if optional is None:
            arrays.append(np.empty(0))
        else:
            arrays.append(optional)
    # Only where there are any, so that other federations keep their hash.
    if partition.concept is not None:
        arrays.append(partition.concept)
    if partition.styles or partition.copies > 1:
        styles = json.dumps([list(partition.styles), partition.copies])
        arrays.append(np.frombuffer(styles.encode(), np.uint8))
    if partition.turns is not None:
        arrays.append(partition.turns)
    if partition.noise is not None:
        arrays += [partition.noise, np.array(partition.noise_seed)]
    return _hash(arrays)


def availability_digest(config: Experiment) -> str:
    """SHA-256 of the file that ``[availability]`` names; empty without one."""
    table = config.availability
    if table is None or table.file is None:
        return ""
    return hashlib.sha256(read_spans_text(Path(table.file)).encode()).hexdigest()


def _rows_of(split: Sequence[np.ndarray]) -> list[np.ndarray]:
    # Of a lazy federation two arrays say it all; a list per client would hold millions.
    if isinstance(split, Ranges):
        return [split.start, split.size]
    return [np.asarray(rows, np.int64) for rows in split]


def _hash(arrays: Iterable[np.ndarray]) -> str:
    """SHA-256 of arrays with their types and shapes: bytes alone do not say where one ends."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype.str}{array.shape}".encode())
        # The bytes as they are in memory: a copy of a large dataset would double it.
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return total.hexdigest()
