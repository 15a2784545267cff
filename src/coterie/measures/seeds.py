"""Which samples the seeds of a comparison share, on which the interval of a mean over them depends."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import IntArray
from coterie.data import Partition
from coterie.data.lazy import Ranges


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The samples that a run trains on and those that it tests on, over all clients.

    Args:
        train, test: uint8, a bit for each sample of the source.
        ratio: of the number of test samples to that of training samples.
        division: a digest of the samples that each client holds, for training and testing.
    """

    train: NDArray[np.uint8]
    test: NDArray[np.uint8]
    ratio: float
    division: bytes


def split_of(parts: Partition, tables: Mapping[str, Any]) -> Split | None:
    """The split of a run with this resolved configuration; ``None`` where it is not known, as for
    real clients, or where samples are made client by client."""
    if isinstance(parts.train, Ranges) or isinstance(parts.test, Ranges):
        return None
    train = np.concatenate([*parts.train, np.empty(0, np.int64)])
    test = np.concatenate([*parts.test, np.empty(0, np.int64)])
    validation = tables.get("evaluate", {}).get("validation")
    if validation:
        # It is scored on these in place of test samples, and another seed draws other ones.
        return Split(_bits(train), _bits(train), validation / (1 - validation), _division(parts))
    if not len(train) or not len(test):
        return None
    return Split(_bits(train), _bits(test), len(test) / len(train), _division(parts))


def _bits(rows: IntArray) -> NDArray[np.uint8]:
    held = np.zeros(int(rows.max(initial=-1)) + 1, bool)
    held[rows] = True
    return np.packbits(held)


def _division(parts: Partition) -> bytes:
    found = hashlib.sha256()
    for train, test in zip(parts.train, parts.test, strict=True):
        held = np.sort(np.concatenate([train, test]))
        found.update(len(held).to_bytes(8, "little"))
        found.update(held.astype("<i8").tobytes())
    return found.digest()


@dataclass(frozen=True, slots=True)
class SeedOverlap:
    """What seeds share.

    Args:
        reuse: the ratio of test to training samples where runs test on samples on which those of
            other seeds train, else 0: ``r`` of `coterie.math.intervals.half_width`.
        fixed: whether all seeds have the same test samples.
        redrawn: whether seeds divide the samples differently, so that their clients differ.
    """

    reuse: float = 0.0
    fixed: bool = False
    redrawn: bool = False

    @property
    def note(self) -> str:
        """What an interval over the seeds covers; empty where nothing has to be said."""
        if self.reuse:
            return (
                "The interval allows for seeds that test on samples on which other seeds train "
                "(Nadeau and Bengio, 2003)."
            )
        if self.fixed and self.redrawn:
            return (
                "All seeds have the same test samples, but each divides them differently among clients. "
                "An interval over seeds covers the chance in this division and in training, and not "
                "other test samples."
            )
        if self.fixed:
            return (
                "All seeds have the same test samples, so an interval over seeds covers the chance "
                "in training, and not other test samples."
            )
        return ""


def overlap_of(splits: Iterable[Split | None]) -> SeedOverlap:
    """What runs with different seeds share; nothing where their samples are not known."""
    known = [split for split in splits if split is not None]
    pairs = list(pairwise(known))
    redrawn = any(one.division != other.division for one, other in pairs)
    if any(_overlap(one.test, other.train) for one, other in pairs):
        reuse = float(np.mean([split.ratio for split in known]))
        return SeedOverlap(reuse=reuse, redrawn=redrawn)
    same = all(np.array_equal(one.test, other.test) for one, other in pairs)
    return SeedOverlap(fixed=bool(pairs) and same, redrawn=redrawn)


def _overlap(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> bool:
    both = min(len(one), len(other))
    return bool((one[:both] & other[:both]).any())
