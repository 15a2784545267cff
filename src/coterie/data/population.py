"""A population: pooled samples, and who holds which of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from torch import Tensor

from coterie.types import DataError, IntArray

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Population:
    """Pooled samples and, per client and split, an index array into them. Nothing is copied.

    Args:
        x: ``[S, ...]`` inputs, float32 (or int64 tokens).
        y: int64 ``[S]`` labels in ``0..classes-1``.
        train: ``N`` index arrays, the training samples of each client.
        test: ``N`` index arrays, the test samples of each client (may be empty).
        classes: number of classes ``c``.
        names: ``N`` client names; default their numbers.
        planted: int64 ``[N]``, the true group of each client where the federation was made with one.

    Raises:
        DataError: if indices or labels leave their range, or no client has a training sample.

    Example:
        >>> import torch
        >>> p = Population(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]), ([0, 1], [2]), ([3], []), classes=2)
        >>> p.clients, p.sizes("train").tolist(), p.histograms().tolist()
        (2, [2, 1], [[1, 1], [1, 0]])
    """

    x: Tensor
    y: Tensor
    train: tuple[IntArray, ...]
    test: tuple[IntArray, ...]
    classes: int
    names: tuple[str, ...] = ()
    planted: IntArray | None = field(default=None)

    def __post_init__(self) -> None:
        for split in ("train", "test"):
            arrays = tuple(np.asarray(a, dtype=np.int64) for a in getattr(self, split))
            object.__setattr__(self, split, arrays)
        if not self.names:
            object.__setattr__(self, "names", tuple(str(i) for i in range(len(self.train))))
        self._check()

    def _check(self) -> None:
        if not len(self.train) == len(self.test) == len(self.names):
            raise DataError(
                f"population: {len(self.train)} train parts, {len(self.test)} test parts, {len(self.names)} names; "
                "expected as many of each"
            )
        if len(self.x) != len(self.y):
            raise DataError(f"population: {len(self.x)} samples and {len(self.y)} labels; expected as many of each")
        every = np.concatenate([*self.train, *self.test]) if self.train else np.empty(0, np.int64)
        if not sum(len(a) for a in self.train):
            raise DataError("population: no client has a training sample")
        if every.min() < 0 or every.max() >= len(self.y):
            raise DataError(f"population: sample index out of range; expected 0 to {len(self.y) - 1}")
        if int(self.y.min()) < 0 or int(self.y.max()) >= self.classes:
            raise DataError(
                f"population: labels from {int(self.y.min())} to {int(self.y.max())}; expected 0 to {self.classes - 1}"
            )

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
        counted = {s: np.array([len(a) for a in getattr(self, s)], np.int64) for s in ("train", "test")}
        for sizes in counted.values():
            sizes.flags.writeable = False
        return counted

    def histograms(self, split: Split = "train") -> IntArray:
        """Label histograms, int64 ``[N, c]``, in one pass over the pooled labels."""
        return self._histograms[split].copy()

    @cached_property
    def _histograms(self) -> dict[str, IntArray]:
        everyone = range(self.clients)
        return {split: self._count(self.parts(split), everyone) for split in ("train", "test")}

    def _count(self, parts: tuple[IntArray, ...], ids: Sequence[int]) -> IntArray:
        """Label histograms of some clients, in one pass."""
        held = [parts[i] for i in ids]
        owner = np.repeat(np.arange(len(held)), [len(rows) for rows in held])
        labels = self.labels[np.concatenate([*held, np.empty(0, np.int64)])]
        flat = np.bincount(owner * self.classes + labels, minlength=len(held) * self.classes)
        return flat.reshape(len(held), self.classes)

    @cached_property
    def labels(self) -> IntArray:
        """The labels as NumPy, int64 ``[S]``."""
        return self.y.numpy()

    def with_parts(
        self, train: tuple[IntArray, ...], test: tuple[IntArray, ...], planted: IntArray | None = None
    ) -> Population:
        """The same samples, dealt otherwise (after a distribution shift). Only what changed is counted anew.

        Args:
            train: per client.
            test: per client.
            planted: the true groups, where they changed, too.
        """
        dealt = replace(self, train=train, test=test, planted=self.planted if planted is None else planted)
        if "_histograms" in self.__dict__:
            counted = {}
            for split in ("train", "test"):
                before, now = self.parts(split), dealt.parts(split)
                changed = [i for i, (a, b) in enumerate(zip(before, now, strict=True)) if a is not b]
                counted[split] = self._histograms[split].copy()
                counted[split][changed] = dealt._count(now, changed)
            dealt.__dict__["_histograms"] = counted
        return dealt
