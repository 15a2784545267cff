"""What a shift of data changed, as it is sent to runners in other processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from coterie.core.arrays import IntArray
from coterie.data.population import Population


@dataclass(frozen=True)
class Moves:
    """What changed hands since a population was last taken over.

    Args:
        train: client -> its training samples now.
        test: client -> its test samples now.
        rows: int64, pooled samples with another label.
        labels: int64, their labels now.
    """

    train: Mapping[int, IntArray]
    test: Mapping[int, IntArray]
    rows: IntArray
    labels: IntArray

    @classmethod
    def between(cls, before: Population, after: Population) -> Moves:
        """What is different in a population."""
        # Labels are compared one by one only where a shift made new ones.
        rows = np.empty(0, np.int64)
        if before.y is not after.y:
            rows = np.flatnonzero(before.labels != after.labels)
        return cls(
            _changed(before.train, after.train),
            _changed(before.test, after.test),
            rows,
            after.labels[rows],
        )

    def applied_to(self, population: Population) -> Population:
        """The population after what changed."""
        if len(self.rows):
            # A copy: where workers were spawned, all of them have the same labels in shared memory.
            y = population.y.clone()
            y[torch.from_numpy(self.rows)] = torch.from_numpy(self.labels)
            population = replace(population, y=y)
        if self.train or self.test:
            train = tuple(self.train.get(i, held) for i, held in enumerate(population.train))
            test = tuple(self.test.get(i, held) for i, held in enumerate(population.test))
            population = population.with_parts(train, test)
        return population


def _changed(before: Sequence[IntArray], after: Sequence[IntArray]) -> dict[int, IntArray]:
    """The indices of clients that have other ones now. Arrays are never changed in place, so
    comparing identity is enough, and fast with a million clients."""
    return {
        i: new for i, (old, new) in enumerate(zip(before, after, strict=True)) if old is not new
    }
