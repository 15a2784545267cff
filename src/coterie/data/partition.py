"""A partition: who holds which samples, and its file, ``partition.npz`` of a run folder."""

from __future__ import annotations

import io
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray, IntArray
from coterie.data.arguments import parts_of
from coterie.data.images.pixels import is_style
from coterie.data.lazy import Ranges, ranges
from coterie.errors import DataError, first_line

Transform = Literal["", "relabel", "rotate", "restyle"]

Arrays = dict[str, NDArray[Any]]

# The arrays of a partition's file but those of its rows: their types, and how many dimensions.
_FORMS = {
    "transform": ("U", 0),
    "names": ("U", 1),
    "styles": ("U", 1),
    "copies": ("int64", 0),
    "planted": ("int64", 1),
    "relabel": ("int64", 2),
    "concept": ("int64", 1),
    "turns": ("int64", 1),
    "noise": ("float64", 1),
    "noise_seed": ("int64", 0),
}


@dataclass(frozen=True)
class Partition:
    """A partition: per client the indices of its training and of its test samples.

    Args:
        train: ``N`` index arrays int64, or ``Ranges``.
        test: ``N`` index arrays int64, or ``Ranges``; no client has a sample in both.
        names: ``N`` client names, or none: their numbers.
        planted: int64 ``[N]``, the true group of each client, where there is one.
        transform: what is done to the samples of a planted group, besides who holds what:
            ``relabel``, ``rotate`` (by 90 degrees times the group), or ``restyle``.
        relabel: int64 ``[groups, c]``, the label that each group gives to each class.
        concept: int64 ``[S]``, the group that each sample is transformed with, where clients hold
            samples of several; ``None``: that of its client.
        styles: how each group sees images, see `images.pixels.restyle`.
        copies: how often each of the ``S`` samples of the source is there. Index ``S c + r`` is copy
            ``c`` of sample ``r``, so that several groups can have the same images.
        turns: int64 ``[copies * S]``, what is added to each label, modulo the number of classes;
            ``None``: nothing. So wrong labels are made.
        noise: float64 ``[N]``, the standard deviation of Gaussian noise in each client's inputs;
            ``None``: nothing.
        noise_seed: the seed of the stream from which the noise is drawn.

    Example:
        >>> import numpy as np
        >>> train = (np.array([0, 1]), np.array([2]))
        >>> test = (np.array([3]), np.array([], dtype=np.int64))
        >>> parts = Partition(train, test)
        >>> parts.clients, parts.samples
        (2, 4)
    """

    train: tuple[IntArray, ...]
    test: tuple[IntArray, ...]
    names: tuple[str, ...] = ()
    planted: IntArray | None = None
    transform: Transform = ""
    relabel: IntArray | None = None
    concept: IntArray | None = None
    styles: tuple[str, ...] = ()
    copies: int = 1
    turns: IntArray | None = None
    noise: FloatArray | None = None
    noise_seed: int = 0

    def __post_init__(self) -> None:
        for split in ("train", "test"):
            object.__setattr__(self, split, parts_of(getattr(self, split), f"partition.{split}"))

    @property
    def changes_samples(self) -> bool:
        """Whether clients hold samples that differ from those of the source."""
        return bool(self.transform) or self.copies > 1 or self.turns is not None

    @property
    def clients(self) -> int:
        """Number of clients ``N``."""
        return len(self.train)

    @property
    def samples(self) -> int:
        """Training and test samples over all clients; a shared one counts for each of them."""
        return _count_rows(self.train) + _count_rows(self.test)


def _count_rows(held: tuple[IntArray, ...]) -> int:
    # Ranges know their sizes; to make a million index arrays only to measure them takes seconds.
    if isinstance(held, Ranges):
        return int(held.size.sum())
    return sum(map(len, held))


# --- writing --------------------------------------------------------------------------------------


def partition_bytes(parts: Partition) -> bytes:
    """A partition as the bytes of an npz file."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **partition_arrays(parts))
    return file.getvalue()


def partition_arrays(parts: Partition) -> Arrays:
    """A partition as flat arrays by name, see `partition_of`."""
    arrays: Arrays = {"transform": np.array(parts.transform, dtype=np.str_)}
    for split, rows in (("train", parts.train), ("test", parts.test)):
        if isinstance(rows, Ranges):
            arrays[f"{split}_start"] = rows.start
            arrays[f"{split}_size"] = rows.size
            continue
        arrays[split] = np.concatenate([*rows, np.empty(0, np.int64)])
        arrays[f"{split}_offsets"] = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    arrays["names"] = np.array(parts.names, dtype=np.str_)
    for name in ("planted", "relabel", "concept", "turns"):
        values = getattr(parts, name)
        if values is not None:
            arrays[name] = values
    # Only where there are any, so that files of other partitions stay as they are.
    if parts.styles:
        arrays["styles"] = np.array(parts.styles, dtype=np.str_)
    if parts.copies > 1:
        arrays["copies"] = np.array(parts.copies, dtype=np.int64)
    if parts.noise is not None:
        arrays["noise"] = parts.noise
        arrays["noise_seed"] = np.array(parts.noise_seed, dtype=np.int64)
    return arrays


# --- reading --------------------------------------------------------------------------------------
# The file may come from anywhere, so nothing in it is believed before it is checked: an index out
# of range or a label table that is no permutation would otherwise show up rounds later.


def load_partition(path: Path) -> Partition:
    """Read what `partition_bytes` made."""
    try:
        return partition_of(read_npz(path))
    except (ValueError, KeyError) as error:
        what = f"not a partition ({error})"
        raise DataError("cannot-be-read", path, what, allowed="a file written by coterie") from None


def partition_of(arrays: Arrays) -> Partition:
    """A partition from flat arrays by name, see `partition_arrays`.

    Raises:
        ValueError, KeyError: if they are those of no partition.
    """
    found = {name: _checked(arrays[name], name) for name in _FORMS if name in arrays}
    parts = Partition(
        _index_arrays(arrays, "train"),
        _index_arrays(arrays, "test"),
        tuple(found.pop("names").tolist()),
        transform=str(found.pop("transform")),  # type: ignore[arg-type]  # checked below
        styles=tuple(found.pop("styles", np.empty(0)).tolist()),
        copies=int(found.pop("copies", 1)),
        noise_seed=int(found.pop("noise_seed", 0)),
        **found,
    )
    _check_values(parts)
    return parts


def _check_values(parts: Partition) -> None:
    """Refuse what no partition has."""
    clients = parts.clients
    if len(parts.test) != clients or len(parts.names) not in (0, clients):
        raise ValueError(f"{clients} train parts, {len(parts.test)} test parts and as many names")
    if parts.transform not in get_args(Transform) or not all(map(is_style, parts.styles)):
        raise ValueError("unknown transform or styles of images")
    if parts.copies < 1:
        raise ValueError(f"{parts.copies} copies")
    for name in ("planted", "noise"):
        values = getattr(parts, name)
        if values is not None and values.shape != (clients,):
            raise ValueError(f"{name} of shape {values.shape} for {clients} clients")
    for name in ("planted", "concept", "noise", "noise_seed"):
        values = getattr(parts, name)
        # Not `values < 0`: NaN is in no range.
        if values is not None and not np.all((values >= 0) & (values < np.inf)):
            raise ValueError(f"{name} out of range")
    table = parts.relabel
    if table is not None and (np.sort(table) != np.arange(table.shape[1])).any():
        raise ValueError("relabel is not a permutation of the classes")


def _index_arrays(arrays: Arrays, split: str) -> tuple[IntArray, ...]:
    """The index arrays of a split: ranges, or one after another with their offsets."""
    if f"{split}_start" in arrays:
        start = _checked(arrays[f"{split}_start"], split)
        size = _checked(arrays[f"{split}_size"], split)
        if len(start) != len(size) or start.min(initial=0) < 0 or size.min(initial=0) < 0:
            raise ValueError(f"{split} ranges out of range")
        return ranges(start, size)
    rows = _checked(arrays[split], split)
    offsets = _checked(arrays[f"{split}_offsets"], split)
    sound = (
        len(offsets) > 0
        and offsets[0] == 0
        and offsets[-1] == len(rows)
        and (np.diff(offsets) >= 0).all()
    )
    if not sound or rows.min(initial=0) < 0:
        raise ValueError(f"{split} offsets or indices out of range")
    if len(offsets) == 1:
        return ()
    return tuple(np.split(rows, offsets[1:-1]))


def _checked(array: NDArray[Any], name: str) -> NDArray[Any]:
    """An array of the type and the dimensions that its name has; else rows, or numbers of them."""
    kind, dimensions = _FORMS.get(name, ("int64", 1))
    if kind not in (array.dtype.kind, array.dtype.name) or array.ndim != dimensions:
        raise ValueError(f"{name} is {array.dtype} of {array.ndim} dimensions")
    return array


# --- archives of others ---------------------------------------------------------------------------


# What NumPy and zipfile raise for damaged archives; neither has a common base of its own.
UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    AttributeError,
    MemoryError,
    TypeError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an npz file by name.

    Python objects in it are refused: to load them would run code of the file.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: np.asarray(archive[name]) for name in archive.files}
    except UNREADABLE as error:
        line = first_line(error)
        if "pickle" in line or "Object arrays" in line:
            line = "it holds Python objects, which are never loaded, or no arrays"
        raise DataError("cannot-be-read", path, f"cannot be read as npz ({line})") from None
