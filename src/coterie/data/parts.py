"""Who holds which samples, as index arrays, and their file."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import IntArray
from coterie.data.lazy import Ranges, ranges
from coterie.errors import DataError

Transform = Literal["", "relabel", "rotate"]
UNREADABLE = (  # what NumPy and zipfile raise for damaged archives
    *(OSError, ValueError, EOFError, KeyError, AttributeError, MemoryError, TypeError),
    *(NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True)
class Partition:
    """A partition: per client the indices of its training and of its test samples.

    Args:
        train: ``N`` index arrays, or ``Ranges``.
        test: ``N`` index arrays, or ``Ranges``; no client has a sample in both.
        names: ``N`` client names, or none: their numbers.
        planted: int64 ``[N]``, the true group of each client, where there is one.
        transform: what sets the planted groups apart besides who holds what: ``relabel`` or
            ``rotate`` (by 90 degrees times the group).
        relabel: int64 ``[groups, c]``, the label that each group gives to each class.

    Example:
        >>> parts = Partition(train=(np.array([0, 1]), np.array([2])), test=(np.array([3]), np.array([], dtype=np.int64)))
        >>> parts.clients, parts.samples
        (2, 4)
    """

    train: tuple[IntArray, ...]
    test: tuple[IntArray, ...]
    names: tuple[str, ...] = ()
    planted: IntArray | None = None
    transform: Transform = ""
    relabel: IntArray | None = None

    @property
    def clients(self) -> int:
        """Number of clients ``N``."""
        return len(self.train)

    @property
    def samples(self) -> int:
        """Training and test samples over all clients."""
        return sum(
            int(p.size.sum()) if isinstance(p, Ranges) else sum(map(len, p))
            for p in (self.train, self.test)
        )


def save_partition(path: Path, parts: Partition) -> None:
    """Write a partition as npz, in one step: a killed writer leaves the old file or none.

    Args:
        path: the file, ``partition.npz`` of a run folder.
        parts: the partition.

    Example:
        >>> import tempfile
        >>> parts = Partition(train=(np.array([1, 2]),), test=(np.array([0]),), names=("ann",))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_partition(Path(folder) / "partition.npz", parts)
        ...     load_partition(Path(folder) / "partition.npz").names
        ('ann',)
    """
    arrays: dict[str, NDArray[Any]] = {"transform": np.array(parts.transform, dtype=np.str_)}
    for split, rows in (("train", parts.train), ("test", parts.test)):
        if isinstance(rows, Ranges):
            arrays |= {f"{split}_start": rows.start, f"{split}_size": rows.size}
            continue
        arrays[split] = np.concatenate([*rows, np.empty(0, np.int64)])
        arrays[f"{split}_offsets"] = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    arrays["names"] = np.array(parts.names, dtype=np.str_)
    for name, array in (("planted", parts.planted), ("relabel", parts.relabel)):
        if array is not None:
            arrays[name] = array
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def load_partition(path: Path) -> Partition:
    """Read what `save_partition` wrote.

    Raises:
        DataError: if the file is missing, damaged, or not a partition.
    """
    try:
        return _checked(read_npz(path))
    except (ValueError, KeyError) as error:
        raise DataError(
            f"{path}: not a partition ({error}); expected a file written by coterie"
        ) from None


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an npz file; Python objects in it are refused.

    Raises:
        DataError: if the file is missing or damaged.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: np.asarray(archive[name]) for name in archive.files}
    except UNREADABLE as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        if "pickle" in line or "Object arrays" in line:
            line = "it holds Python objects, which are never loaded, or no arrays"
        raise DataError(f"{path}: cannot be read as npz ({line})") from None


def _checked(arrays: dict[str, NDArray[Any]]) -> Partition:
    train, test = (_split(arrays, split) for split in ("train", "test"))
    if len(train) != len(test):
        raise ValueError(f"{len(train)} train parts, {len(test)} test parts")
    names = arrays["names"]
    if names.ndim != 1 or names.dtype.kind != "U" or len(names) not in (0, len(train)):
        raise ValueError(f"{names.shape} names for {len(train)} clients")
    planted = arrays.get("planted")
    relabel = arrays.get("relabel")
    if planted is not None and (
        _integers(planted, "planted", 1).shape != (len(train),) or planted.min(initial=0) < 0
    ):
        raise ValueError("planted groups out of range")
    if (
        relabel is not None
        and (np.sort(_integers(relabel, "relabel", 2)) != np.arange(relabel.shape[1])).any()
    ):
        raise ValueError("relabel is not a permutation of the classes")
    transform = str(arrays["transform"])
    if transform not in ("", "relabel", "rotate"):
        raise ValueError(f"unknown transform {transform!r}")
    return Partition(train, test, tuple(map(str, names)), planted, transform, relabel)  # type: ignore[arg-type]


def _split(arrays: dict[str, NDArray[Any]], name: str) -> tuple[IntArray, ...]:
    if f"{name}_start" in arrays:
        return _ranges(
            _integers(arrays[f"{name}_start"], name, 1),
            _integers(arrays[f"{name}_size"], name, 1),
            name,
        )
    rows = _integers(arrays[name], name, 1)
    offsets = _integers(arrays[f"{name}_offsets"], name, 1)
    sound = (
        len(offsets)
        and offsets[0] == 0
        and offsets[-1] == len(rows)
        and (np.diff(offsets) >= 0).all()
    )
    if not sound or rows.min(initial=0) < 0:
        raise ValueError(f"{name} offsets or indices out of range")
    if len(offsets) > 1:
        return tuple(np.split(rows, offsets[1:-1]))
    return ()


def _ranges(start: IntArray, size: IntArray, name: str) -> tuple[IntArray, ...]:
    if len(start) != len(size) or start.min(initial=0) < 0 or size.min(initial=0) < 0:
        raise ValueError(f"{name} ranges out of range")
    return ranges(start, size)


def _integers(array: NDArray[Any], name: str, ndim: int) -> IntArray:
    if array.dtype != np.int64 or array.ndim != ndim:
        raise ValueError(f"{name} is {array.dtype} of {array.ndim} dimensions")
    return array
