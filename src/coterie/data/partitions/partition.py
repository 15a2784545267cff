"""The record of a partition: who holds which samples, as index arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coterie.core.arrays import FloatArray, IntArray
from coterie.data.lazy import Ranges

Transform = Literal["", "relabel", "rotate", "restyle"]


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
        styles: how each group sees images, see `image_styles.restyle`.
        copies: how often each of the ``S`` samples of the source is there. Index ``S c + r`` is copy
            ``c`` of sample ``r``, so that several groups can have the same images.
        turns: int64 ``[copies * S]``, what is added to each label, modulo the number of classes;
            ``None``: nothing. So wrong labels are made.
        noise: float64 ``[N]``, the standard deviation of Gaussian noise in each client's inputs;
            ``None``: nothing.
        noise_seed: of the stream that the noise is drawn from.

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
