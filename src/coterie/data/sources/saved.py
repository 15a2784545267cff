"""A population of Python's that was saved with its run, ``population.npz`` of the run's folder."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.data.partition import Partition, partition_arrays, partition_of, read_npz
from coterie.data.population import Population
from coterie.data.samples import Samples
from coterie.errors import DataError
from coterie.files import POPULATION


def saved(root: Path | None, *, digest: str) -> Samples:
    """The population that a run from Python saved in its folder, see ``coterie.run``.

    Args:
        root: the folder of the run.
    """
    if root is None:
        raise DataError("missing", "data.root", allowed="the folder of a run from Python")
    path = root / POPULATION
    arrays = read_npz(path)
    if _digest(arrays) != digest:
        what = "belongs to another run"
        raise DataError("differs", path, what, found="other arrays", allowed=f"those of {digest}")
    try:
        x = torch.from_numpy(arrays["x"])
        y = torch.from_numpy(arrays["y"])
        classes = int(arrays["classes"])
        holders = partition_of(arrays)
        labels = tuple(map(str, arrays.get("label_names", ())))
    except (KeyError, ValueError, TypeError) as error:
        what = f"not a population ({error})"
        expected = "a file written by coterie.run"
        raise DataError("cannot-be-read", path, what, allowed=expected) from None
    scaling = "not at all, they are as the program that ran it made them."
    return Samples(x, y, classes, len(y), label_names=labels, holders=holders, scaling=scaling)


def population_bytes(population: Population) -> bytes:
    """A population as the bytes of ``population.npz``."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **_arrays(population))
    return file.getvalue()


def population_digest(population: Population) -> str:
    """SHA-256 of all arrays of a population, in hexadecimal; the same whenever it is saved."""
    origin = population.origin
    from_frame = origin is not None and origin.from_frame
    if population.lazy or (population.table is not None and not from_frame):
        got = "a lazy population" if population.lazy else "inputs made from a table"
        what = "cannot be saved with the run"
        expected = "an unchanged population from coterie.load, with the same seed as the run"
        raise DataError("cannot-be-written", "data", what, found=got, allowed=expected)
    return _digest(_arrays(population))


def partition_of_population(population: Population) -> Partition:
    """Who holds which samples of a population."""
    return Partition(
        population.train,
        population.test,
        population.names,
        population.planted,
        concept=population.concept,
    )


def _arrays(population: Population) -> dict[str, NDArray[Any]]:
    origin = population.origin
    names = origin.label_names if origin is not None and origin.from_frame else ()
    return {
        **partition_arrays(partition_of_population(population)),
        **({"label_names": np.array(names, np.str_)} if names else {}),
        "x": population.x.numpy(),
        "y": population.y.numpy(),
        "classes": np.array(population.classes, np.int64),
    }


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Not of the file, in which the time of writing stands."""
    total = hashlib.sha256()
    # In an order of its own: that of a file is that in which it was written.
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(array.tobytes())
    return total.hexdigest()
