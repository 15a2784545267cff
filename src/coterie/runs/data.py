"""The samples of a configuration, who holds which of them, and those of clients that joined the
run."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.config.choice_tables import DataTable
from coterie.core.keys import Key
from coterie.data import (
    Partition,
    Population,
    Samples,
    load_partition,
    load_samples,
    make_partition,
    populate,
)
from coterie.data.partition import read_npz
from coterie.data.samples import Targets
from coterie.data.sources.files import FileRows, read_file
from coterie.data.tabular.encoder import Encoder
from coterie.errors import CheckpointError, DataError
from coterie.experiment import Experiment, check
from coterie.experiment.experiment import fit_to_clients
from coterie.experiment.objects import make_choice
from coterie.files import MALFORMED, read_json
from coterie.runs.folder.digests import COLUMNS, NEWCOMERS
from coterie.runs.noise_key import noise_key


def load_data(
    config: Experiment,
    saved: Path | None = None,
    samples: Samples | None = None,
    noise: Key | None = None,
) -> tuple[Samples, Partition, Population]:
    """The samples, who holds them (read from ``saved`` where that is there), and both as a
    population.

    Args:
        samples: those of the configuration, where they have been read.
        noise: the key of a private run's noise; default that of its folder, or a new one.
    """
    # By the seed where no noise is secret, also where there is none.
    key = noise or noise_key(config, saved) or Key(config.seed)
    if saved is not None and saved.exists():
        record = read_record(saved.parent)
        samples = read_samples(config, record)
        # A resumed run has the saved one, whatever a later version of a partition would draw.
        partition = load_partition(saved)
        population = _with_joined(samples, partition, saved.parent, key, record)
    else:
        samples = read_samples(config) if samples is None else samples
        partition = split_samples(config, samples)
        population = populate(samples, partition, key)
    # For its errors alone: too few clients are better named before a network is built.
    fit_to_clients(config, population.clients)
    return samples, partition, population


def _with_joined(
    samples: Samples, partition: Partition, folder: Path, key: Key, record: Mapping[str, Any] | None
) -> Population:
    """The population of a run folder, with the clients that joined the run."""
    joined = read_newcomers(folder)
    # After a kill their samples may be there, and no client that holds them.
    if joined is not None and partition.clients <= joined.first_client:
        joined = None
    first = partition if joined is None else clients_before(partition, joined.first_client)
    # Without those that joined: inputs of a table are made by what the first clients reported.
    before = populate(samples, first, key)
    digest = "" if record is None else record["training"]["digest"]
    if digest and rows_digest(before) != digest:
        what = "the training files have changed since the run began"
        raise DataError("differs", "data.path", what, do="restore them, or start a new run")
    return before if joined is None else with_joined_clients(before, joined, partition)


def rows_digest(population: Population) -> str:
    """SHA-256 of the rows of a table as they were read, and of the labels."""
    total = hashlib.sha256()
    if population.table is not None:
        raw = population.table.raw
        columns = [[one.name, one.kind, *one.categories] for one in raw.columns]
        total.update(json.dumps(columns).encode())
        # Not the inputs: means and deviations differ in their last digits between processors.
        total.update(np.ascontiguousarray(raw.values).data)
    total.update(np.ascontiguousarray(population.y.numpy()).data)
    return total.hexdigest()


def read_record(folder: Path) -> dict[str, Any] | None:
    """What the folder of a run says of its table, see `coterie.runs.stored`; ``None`` for none."""
    path = folder / COLUMNS
    if not path.is_file():
        return None
    try:
        record: dict[str, Any] = read_json(path)
        Encoder.read(record["rules"] or ())
    except MALFORMED:
        raise CheckpointError("damaged", path, "damaged: it has no columns") from None
    return record


def read_samples(config: Experiment, record: Mapping[str, Any] | None = None) -> Samples:
    """The samples of a configuration; those of a run that began by the kinds of its record."""
    root, targets = _root_and_targets(config)
    source = {"source": config.name("source"), **config.options("source")}
    if record is not None and "columns" in source:
        roles = (*record["labels"], record["client"])
        kinds = {
            name: kind for name, kind in record["training"]["kinds"].items() if name not in roles
        }
        source["columns"] = {**kinds, **(source["columns"] or {})}
    return load_samples(source, root=root, targets=targets)


def read_file_rows(config: Experiment) -> FileRows | None:
    """The rows of the source ``file``; ``None`` for another source."""
    if config.name("source") != "file":
        return None
    root, targets = _root_and_targets(config)
    return read_file(root, config.options("source"), targets)


def _root_and_targets(config: Experiment) -> tuple[Path | None, Targets]:
    """The folder of the data, and how labels are read."""
    root = None
    if isinstance(config.data, DataTable) and config.data.root:
        root = Path(config.data.root)
    # Not fitted: the samples are not there yet, and only the kind of its targets matters here.
    task = make_choice(config, "task")
    if task is None:
        return root, "auto"
    return root, "classes" if task.class_labels else "numbers"


def split_samples(config: Experiment, samples: Samples) -> Partition:
    """Who holds which of the samples, as the partition and the seed of a configuration say."""
    partition = {"kind": config.name("partition"), **config.options("partition")}
    return make_partition(samples, partition, Key(config.seed).of("data"))


def read_inputs(resolved: dict[str, Any], noise: Key | None = None) -> Tensor:
    """The inputs of a resolved configuration's samples, as this machine has them."""
    # Every node of a cluster may have the datasets in another folder.
    if "COTERIE_DATA" in os.environ:
        data = {name: value for name, value in resolved["data"].items() if name != "root"}
        resolved = {**resolved, "data": data}
    _, _, population = load_data(check(resolved), noise=noise)
    return population.x


@dataclass(frozen=True, eq=False, slots=True)
class Newcomers:
    """The samples of clients that joined, as in `coterie.runs.resume.JoiningClients`, and the number
    of the first one."""

    x: Tensor
    y: Tensor
    first_client: int


def newcomers_bytes(x: Tensor, y: Tensor, first: int) -> bytes:
    """The bytes of ``newcomers.npz``; the arguments are the fields of `Newcomers`."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, x=x.numpy(), y=y.numpy(), first_client=np.array(first))
    return file.getvalue()


def read_newcomers(folder: Path) -> Newcomers | None:
    """The samples of clients that joined a run; ``None`` where none did."""
    path = folder / NEWCOMERS
    if not path.is_file():
        return None
    arrays = read_npz(path)
    try:
        x = torch.from_numpy(arrays["x"])
        y = torch.from_numpy(arrays["y"])
        return Newcomers(x, y, int(arrays["first_client"]))
    except (KeyError, TypeError, ValueError) as error:
        what = f"no samples of new clients ({error})"
        raise DataError("not-found", path, what, allowed="a file written by coterie") from None


def with_joined_clients(
    population: Population, newcomers: Newcomers, parts: Partition
) -> Population:
    table = population.table
    if table is not None:
        # They had no part in the description of the columns, which stays as it was.
        nothing = np.zeros(parts.clients - population.clients, np.int64)
        table = replace(table, reported=np.append(table.reported, nothing))
    return replace(
        population,
        x=torch.cat([population.x, newcomers.x]),
        y=torch.cat([population.y, newcomers.y]),
        train=parts.train,
        test=parts.test,
        names=parts.names,
        table=table,
    )


def clients_before(parts: Partition, count: int) -> Partition:
    """The partition of the first clients alone, those before others joined."""
    return replace(
        parts, train=parts.train[:count], test=parts.test[:count], names=parts.names[:count]
    )
