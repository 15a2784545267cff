"""A population: pooled samples, who holds which of them, and where they came from."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray
from coterie.data.lazy import Ranges, is_lazy
from coterie.data.partition import Partition
from coterie.data.tabular.inputs import TableInputs
from coterie.errors import DataError

Split = Literal["train", "test"]

# Clients of a lazy federation whose labels are counted at once.
_BLOCK = 1024


@dataclass(frozen=True, eq=False, slots=True)
class DataOrigin:
    """What `coterie.load` was called with, and what it made of it.

    Args:
        table: ``[data]`` of a configuration that names the same data.
    """

    table: Mapping[str, Any]
    seed: int
    parts: Partition
    label_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Population:
    """Pooled samples and, per client and split, an index array into them. Nothing is copied.

    Args:
        x: ``[S, ...]`` inputs, float32 (or int64 tokens); or made client by client
            (``coterie.data.lazy``).
        y: int64 ``[S]`` labels in ``0..classes-1``, in the same way; or the targets of another task
            (docs/tasks.md): float32 ``[S]`` or ``[S, t]``, int64 tokens or labels ``[S, l]``.
        train: ``N`` index arrays, or ``Ranges``: the training samples of each client.
        test: ``N`` index arrays, or ``Ranges``: the test samples of each client (may be empty).
        classes: number of classes ``c``; 0 where targets are no classes.
        names: ``N`` client names; default their numbers.
        planted: int64 ``[N]``, the true group of each client where the federation was made with
            one.
        concept: int64 ``[S]``, the true group of each sample where clients hold samples of several.
        copies: of each sample, one for each concept that it is seen by; sample ``c S / copies + r`` is
            copy ``c`` of sample ``r``.
        table: how inputs were made from columns of a table, if they were.
        naive: predictions without a model by name, each float32 ``[S]``.
        on_disk: whether ``x`` is read from a file when it is needed, so that nothing copies all of it.
        scaling: how inputs were scaled, in words for the model card; empty where it is not known.

    Raises:
        DataError: if indices or labels leave their range, or no client has a training sample.

    Example:
        >>> import torch
        >>> y = torch.tensor([0, 1, 0, 1])
        >>> p = Population(torch.zeros(4, 2), y, ([0, 1], [2]), ([3], []), classes=2)
        >>> p.clients, p.sizes("train").tolist(), p.histograms().tolist()
        (2, [2, 1], [[1, 1], [1, 0]])
        >>> numbers = Population(torch.zeros(2, 3), torch.tensor([0.5, -1.2]), ([0, 1],), ([],))
        >>> numbers.classes, numbers.y.dtype
        (0, torch.float32)
    """

    x: Tensor
    y: Tensor
    train: tuple[IntArray, ...]
    test: tuple[IntArray, ...]
    classes: int = 0
    names: tuple[str, ...] = ()
    planted: IntArray | None = field(default=None)
    table: TableInputs | None = field(default=None)
    naive: Mapping[str, Tensor] = field(default_factory=dict)
    concept: IntArray | None = field(default=None)
    copies: int = field(default=1)
    on_disk: bool = field(default=False)
    scaling: str = field(default="")
    # Of `coterie.load`. Not copied by `replace`: other data have another origin.
    origin: DataOrigin | None = field(default=None, init=False, compare=False, repr=False)

    # --- validation ---

    def __post_init__(self) -> None:
        # Frozen records set their own fields this way: lists of lists are taken, too.
        for split in ("train", "test"):
            held = getattr(self, split)
            if not isinstance(held, Ranges):
                object.__setattr__(self, split, tuple(np.asarray(a, dtype=np.int64) for a in held))
        if not self.names:
            object.__setattr__(self, "names", tuple(str(i) for i in range(len(self.train))))
        if not self.lazy and self.y.is_floating_point() and not self.classes:
            # Training and metrics are in float32 and float64; one kind of number is enough.
            object.__setattr__(self, "y", self.y.float())
        check_population(self)

    # --- sizes and shapes ---

    @property
    def lazy(self) -> bool:
        """Whether samples are made client by client: then nothing can have all of them at once."""
        return is_lazy(self.y)

    @property
    def clients(self) -> int:
        """Number of clients ``N``."""
        return len(self.train)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.x.shape[1:])

    def parts(self, split: Split) -> tuple[IntArray, ...]:
        """The index arrays of a split."""
        return self.train if split == "train" else self.test

    def sizes(self, split: Split) -> IntArray:
        """Samples per client, int64 ``[N]``."""
        return self._sizes[split]

    @cached_property
    def _sizes(self) -> dict[str, IntArray]:
        found = {}
        for split in ("train", "test"):
            sizes = _sizes_of(self.parts(split))
            # They are handed out without a copy, in every round.
            sizes.flags.writeable = False
            found[split] = sizes
        return found

    def planted_shares(self) -> FloatArray | None:
        """The share of each concept in the training samples of each client, float64 ``[N, g]``; rows
        of zeros for clients without a sample. ``None`` where samples have no known concepts.
        """
        if self.concept is None:
            return None
        count = int(self.concept.max()) + 1
        held = [np.bincount(self.concept[rows], minlength=count) for rows in self.train]
        sizes = np.maximum(self.sizes("train"), 1)
        shares: FloatArray = np.array(held) / sizes[:, None]
        return shares

    # --- labels ---

    @property
    def labels(self) -> IntArray:
        """The labels as NumPy, int64 ``[S]``; the targets of another task as they are."""
        # Never kept: when a process is spawned, torch moves the labels to shared memory, and an array
        # of before would point to memory that was freed.
        return self.y.numpy()

    def histograms(self, split: Split = "train") -> IntArray:
        """Label histograms, int64 ``[N, c]``, in one pass over the pooled labels; ``[N, 0]`` where
        targets are no classes."""
        return self._histograms[split].copy()

    def histograms_of(self, ids: IntArray) -> IntArray:
        """Label histograms of the training samples of some clients, int64 ``[n, c]``, counted once."""
        if not self.lazy:
            return self._histograms["train"][ids]
        histograms, is_known = self._counted_so_far
        new = np.unique(ids[~is_known[ids]])
        for at in range(0, len(new), _BLOCK):
            some = new[at : at + _BLOCK]
            histograms[some] = self._count_labels(self.train, some)
            is_known[some] = True
        return histograms[ids]

    @cached_property
    def _counted_so_far(self) -> tuple[IntArray, NDArray[np.bool_]]:
        """The histograms of a lazy federation that were counted so far, and of which clients."""
        return np.zeros((self.clients, self.classes), np.int64), np.zeros(self.clients, bool)

    @cached_property
    def _histograms(self) -> dict[str, IntArray]:
        ids = np.arange(self.clients)
        if not self.lazy:
            return {
                "train": self._count_labels(self.train, ids),
                "test": self._count_labels(self.test, ids),
            }
        # In blocks: the labels of all clients at once might not fit into memory.
        blocks = np.split(ids, range(_BLOCK, self.clients, _BLOCK))
        test = np.concatenate([self._count_labels(self.test, block) for block in blocks])
        return {"train": self.histograms_of(ids), "test": test}

    def _count_labels(self, parts: Sequence[IntArray], ids: IntArray) -> IntArray:
        """Label histograms of some clients, int64 ``[n, c]``, in one pass.

        A sample of client ``i`` with label ``j`` is counted as the number ``i c + j``.
        """
        # Numbers are no classes, so there is nothing to count.
        if not self.classes or len(self.y.shape) > 1:
            return np.zeros((len(ids), 0), np.int64)
        held = [parts[i] for i in ids]
        owner = np.repeat(np.arange(len(held)), [len(rows) for rows in held])
        rows = np.concatenate([*held, np.empty(0, np.int64)])
        if self.lazy:
            labels = self.y[torch.from_numpy(rows)].numpy()
        else:
            labels = self.labels[rows]
        flat = np.bincount(owner * self.classes + labels, minlength=len(held) * self.classes)
        return flat.reshape(len(held), self.classes)

    # --- after a shift ---

    def with_parts(
        self,
        train: tuple[IntArray, ...],
        test: tuple[IntArray, ...],
        planted: IntArray | None = None,
    ) -> Population:
        """The same samples, held by others (after a distribution shift).

        Only the labels of clients whose arrays changed are counted again, so a shift of a few
        clients costs little in a large federation.

        Args:
            train: per client; the identical array where nothing changed.
        """
        true_groups = self.planted if planted is None else planted
        moved = replace(self, train=train, test=test, planted=true_groups)
        # Histograms that were not needed so far are counted when they are.
        if "_histograms" in self.__dict__:
            moved.__dict__["_histograms"] = {
                split: self._recount(moved, split) for split in ("train", "test")
            }
        return moved

    def _recount(self, moved: Population, split: Split) -> IntArray:
        """The histograms of a population whose clients hold other samples of the same pool."""
        before = self.parts(split)
        now = moved.parts(split)
        is_changed = np.fromiter(map(operator.is_not, before, now), bool, len(now))
        changed = np.flatnonzero(is_changed)
        histograms = self._histograms[split].copy()
        histograms[changed] = moved._count_labels(now, changed)
        return histograms


def _sizes_of(parts: Sequence[IntArray]) -> IntArray:
    """Samples per client."""
    if isinstance(parts, Ranges):
        return parts.size.copy()
    return np.fromiter(map(len, parts), np.int64, len(parts))


def check_population(population: Population) -> None:
    """Refuse a population whose arrays do not fit each other."""
    _check_lengths(population)
    _check_ranges(population)


def _check_lengths(population: Population) -> None:
    if not len(population.train) == len(population.test) == len(population.names):
        raise DataError(
            f"population: {len(population.train)} train parts, {len(population.test)} test parts, "
            f"{len(population.names)} names; expected as many of each"
        )
    if len(population.x) != len(population.y):
        raise DataError(
            f"population: {len(population.x)} samples and {len(population.y)} labels; "
            "expected as many of each"
        )
    if not population.sizes("train").any():
        raise DataError("population: no client has a training sample")


def _check_ranges(population: Population) -> None:
    bounds = [_index_bounds(population.parts(split)) for split in ("train", "test")]
    if min(low for low, _ in bounds) < 0 or max(high for _, high in bounds) >= len(population.y):
        raise DataError(
            f"population: sample index out of range; expected 0 to {len(population.y) - 1}"
        )
    # Labels that are made client by client are not made only to be checked.
    if not population.lazy:
        _check_targets(population)


def _check_targets(population: Population) -> None:
    """Targets are finite numbers, or whole numbers that the number of classes allows."""
    if population.y.is_floating_point():
        if population.classes:
            raise DataError(
                f"population: numbers as labels, got {population.y.dtype} with "
                f"{population.classes} classes; expected int64 labels, or no classes"
            )
        if not torch.isfinite(population.y).all():
            raise DataError("population: targets, got NaN or infinity; expected finite numbers")
        return
    # Tokens and several labels a sample are checked by their task, which knows what they mean.
    if population.y.ndim > 1:
        return
    lowest = int(population.y.min())
    highest = int(population.y.max())
    if population.classes == 0:
        raise DataError(
            f"population: whole-number labels from {lowest} to {highest} and no classes; "
            "expected the number of classes, or float labels for a regression"
        )
    if lowest < 0 or highest >= population.classes:
        raise DataError(
            f"population: labels from {lowest} to {highest}; expected 0 to {population.classes - 1}"
        )


def _index_bounds(parts: Sequence[IntArray]) -> tuple[int, int]:
    """The least and the largest index; 0 and -1 where there is none."""
    if isinstance(parts, Ranges):
        some = parts.size > 0
        first = parts.start[some]
        last = first + parts.size[some] - 1
        return int(first.min(initial=0)), int(last.max(initial=-1))
    rows = np.concatenate([*parts, np.empty(0, np.int64)])
    return int(rows.min(initial=0)), int(rows.max(initial=-1))
