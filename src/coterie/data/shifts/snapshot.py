"""The federation in one round: who holds what, and who is present."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.data.population import Population

Mask = NDArray[np.bool_]
Event = dict[str, Any]


@dataclass(frozen=True)
class FederationSnapshot:
    """The federation in one round.

    Args:
        present: bool ``[N]``, who can take part and is scored.
        changed: int64, the clients whose data changed in this round, ascending.
    """

    population: Population
    present: Mask
    events: tuple[Event, ...] = ()
    changed: IntArray = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def start(cls, population: Population) -> FederationSnapshot:
        """The federation before any shift: all clients are present."""
        return cls(population, np.ones(population.clients, bool))

    @cached_property
    def trainable(self) -> Mask:
        """bool ``[N]``, who is present and holds training samples."""
        return (self.population.sizes("train") > 0) & self.present

    @cached_property
    def testable(self) -> Mask:
        """bool ``[N]``, who is present and holds test samples."""
        return (self.population.sizes("test") > 0) & self.present

    # --- for checkpoints ---

    def tensors(self, initial: Population) -> dict[str, Tensor]:
        """What a checkpoint keeps of the federation, as named tensors: not the inputs of the
        initial population, for no shift changes them, and its labels only where they changed."""
        # Tensors of NumPy arrays share their memory, so what could change later is copied.
        named = {"present": torch.from_numpy(self.present.copy())}
        if self.population.planted is not None:
            named["planted"] = torch.from_numpy(self.population.planted.copy())
        for split in ("train", "test"):
            # One array and its lengths: a checkpoint holds tensors, not tuples of them.
            named[split] = torch.from_numpy(np.concatenate(getattr(self.population, split)))
            named[f"{split}_sizes"] = torch.from_numpy(self.population.sizes(split).copy())
        # A shift that leaves labels alone hands on the identical tensor.
        if self.population.y is not initial.y:
            named["y"] = self.population.y.clone()
        return named

    @classmethod
    def restore(cls, initial: Population, tensors: Mapping[str, Tensor]) -> FederationSnapshot:
        """The snapshot that `tensors` were taken of, without its events."""

        def index_arrays(split: str) -> tuple[IntArray, ...]:
            ends = np.cumsum(tensors[f"{split}_sizes"].numpy())
            return tuple(np.split(tensors[split].numpy(), ends[:-1]))

        planted = None
        if "planted" in tensors:
            planted = tensors["planted"].numpy()
        population = replace(
            initial,
            y=tensors.get("y", initial.y),
            train=index_arrays("train"),
            test=index_arrays("test"),
            planted=planted,
        )
        return cls(population, tensors["present"].numpy())

    # --- the next round ---

    def with_population(
        self, population: Population, changed: Iterable[int], event: Event
    ) -> FederationSnapshot:
        """The same clients present with other data, and one event."""
        ids = np.unique(np.fromiter(changed, np.int64))
        return FederationSnapshot(population, self.present, (event,), ids)

    def with_present(self, present: Mask, event: Event) -> FederationSnapshot:
        """The same data with other clients present, and one event."""
        return FederationSnapshot(self.population, present, (event,))

    def without_events(self) -> FederationSnapshot:
        """The same federation, in a round in which nothing happens."""
        if self.events or len(self.changed):
            return FederationSnapshot(self.population, self.present)
        return self
