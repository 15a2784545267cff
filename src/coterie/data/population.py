"""A population: pooled samples, and who holds which of them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.data.lazy import Ranges, is_drawn
from coterie.errors import DataError

Split = Literal["train", "test"]
_BLOCK = 1024  # clients of a drawn federation that are counted at once


@dataclass(frozen=True)
class Population:
    """Pooled samples and, per client and split, an index array into them. Nothing is copied.

    Args:
        x: ``[S, ...]`` inputs, float32 (or int64 tokens); or made client by client
            (``data.drawn``).
        y: int64 ``[S]`` labels in ``0..classes-1``, in the same way.
        train: ``N`` index arrays, or ``Ranges``: the training samples of each client.
        test: ``N`` index arrays, or ``Ranges``: the test samples of each client (may be empty).
        classes: number of classes ``c``.
        names: ``N`` client names; default their numbers.
        planted: int64 ``[N]``, the true group of each client where the federation was made with
            one.

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
            held = getattr(self, split)
            if not isinstance(held, Ranges):
                object.__setattr__(self, split, tuple(np.asarray(a, dtype=np.int64) for a in held))
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
            raise DataError(
                f"population: {len(self.x)} samples and {len(self.y)} labels; expected as many of each"
            )
        if not self.sizes("train").any():
            raise DataError("population: no client has a training sample")
        bounds = [_bounds(self.parts(split)) for split in ("train", "test")]
        if min(low for low, _ in bounds) < 0 or max(high for _, high in bounds) >= len(self.y):
            raise DataError(
                f"population: sample index out of range; expected 0 to {len(self.y) - 1}"
            )
        if not self.drawn and (int(self.y.min()) < 0 or int(self.y.max()) >= self.classes):
            raise DataError(
                f"population: labels from {int(self.y.min())} to {int(self.y.max())}; expected 0 to {self.classes - 1}"
            )

    @property
    def drawn(self) -> bool:
        """Whether samples are made client by client: then nothing can ask for all of them at
        once."""
        return is_drawn(self.y)

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
        if split == "train":
            return self.train
        return self.test

    def sizes(self, split: Split) -> IntArray:
        """Samples per client, int64 ``[N]``."""
        return self._sizes[split]

    @cached_property
    def _sizes(self) -> dict[str, IntArray]:
        counted = {s: _counted(self.parts(s)) for s in ("train", "test")}
        for sizes in counted.values():
            sizes.flags.writeable = False
        return counted

    def histograms(self, split: Split = "train") -> IntArray:
        """Label histograms, int64 ``[N, c]``, in one pass over the pooled labels."""
        return self._histograms[split].copy()

    def histograms_of(self, ids: IntArray) -> IntArray:
        """Label histograms of the training samples of some clients, int64 ``[n, c]``; each is
        counted once.

        Args:
            ids: int64 ``[n]``, the clients.
        """
        if not self.drawn:
            return self._histograms["train"][ids]
        found, known = self._seen
        new = np.unique(ids[~known[ids]])
        for at in range(0, len(new), _BLOCK):
            some = new[at : at + _BLOCK]
            found[some] = self._count(self.train, some)
            known[some] = True
        return found[ids]

    @cached_property
    def _seen(self) -> tuple[IntArray, NDArray[np.bool_]]:
        """The histograms of a drawn federation that were counted so far, and whose they are."""
        return np.zeros((self.clients, self.classes), np.int64), np.zeros(self.clients, bool)

    @cached_property
    def _histograms(self) -> dict[str, IntArray]:
        everyone = np.arange(self.clients)
        if self.drawn:
            blocks = np.split(everyone, range(_BLOCK, self.clients, _BLOCK))
            test = np.concatenate([self._count(self.test, block) for block in blocks])
            return {"train": self.histograms_of(everyone), "test": test}
        return {split: self._count(self.parts(split), everyone) for split in ("train", "test")}

    def _count(self, parts: Sequence[IntArray], ids: Sequence[int] | IntArray) -> IntArray:
        """Label histograms of some clients, in one pass."""
        held = [parts[i] for i in ids]
        owner = np.repeat(np.arange(len(held)), [len(rows) for rows in held])
        rows = np.concatenate([*held, np.empty(0, np.int64)])
        labels = self.y[torch.from_numpy(rows)].numpy() if self.drawn else self.labels[rows]
        flat = np.bincount(owner * self.classes + labels, minlength=len(held) * self.classes)
        return flat.reshape(len(held), self.classes)

    @cached_property
    def labels(self) -> IntArray:
        """The labels as NumPy, int64 ``[S]``."""
        return self.y.numpy()

    def with_parts(
        self,
        train: tuple[IntArray, ...],
        test: tuple[IntArray, ...],
        planted: IntArray | None = None,
    ) -> Population:
        """The same samples, dealt otherwise (after a distribution shift). Only what changed is
        counted anew.

        Args:
            train: per client.
            test: per client.
            planted: the true groups, where they changed, too.
        """
        dealt = replace(
            self, train=train, test=test, planted=self.planted if planted is None else planted
        )
        if "_histograms" in self.__dict__:
            counted = {}
            for split in ("train", "test"):
                before = self.parts(split)
                now = dealt.parts(split)
                changed = np.flatnonzero(
                    np.fromiter(map(operator.is_not, before, now), bool, len(now))
                )
                counted[split] = self._histograms[split].copy()
                counted[split][changed] = dealt._count(now, changed)
            dealt.__dict__["_histograms"] = counted
        return dealt


def _counted(parts: Sequence[IntArray]) -> IntArray:
    """Samples per client."""
    if isinstance(parts, Ranges):
        return parts.size.copy()
    return np.fromiter(map(len, parts), np.int64, len(parts))


def _bounds(parts: Sequence[IntArray]) -> tuple[int, int]:
    """The least and the largest index; 0 and -1 where there is none."""
    if isinstance(parts, Ranges):
        some = parts.size > 0
        return int(parts.start[some].min(initial=0)), int(
            (parts.start + parts.size)[some].max(initial=0)
        ) - 1
    every = np.concatenate([*parts, np.empty(0, np.int64)])
    return int(every.min(initial=0)), int(every.max(initial=-1))
