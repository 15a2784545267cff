"""What the server knows: the models, and which client belongs to which of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import IntArray, empty_mapping

NO_GROUP = -1


@dataclass(frozen=True, slots=True)
class Groups:
    """What the server knows: the models, who belongs to which, and what the rules remember.

    Args:
        models: float32 ``[k, d]``, one flat parameter vector per group.
        member: int64 ``[N]``, the group of each client, ``-1`` for a client without a group.
        optimiser: rows of the server optimiser, each ``[k, ...]``.
        memory: the grouping rule's own named tensors (directions, signatures, ...).

    Everything in it is an array, so all of it round-trips through a checkpoint.
    """

    models: Tensor
    member: IntArray
    optimiser: Mapping[str, Tensor] = field(default_factory=empty_mapping)
    memory: Mapping[str, Tensor] = field(default_factory=empty_mapping)

    @property
    def k(self) -> int:
        """Number of models."""
        return len(self.models)

    def sizes(self) -> IntArray:
        """Members per group, int64 ``[k]``."""
        return np.bincount(self.member[self.member >= 0], minlength=self.k)

    def auxiliary(self, *, filled: bool) -> Tensor:
        """The auxiliary global model ``[d]``: the mean of all groups (FedGroup Alg. 2 l. 11), or of
        the filled ones."""
        some = torch.from_numpy(self.sizes() > 0)
        chosen = self.models[some] if filled and bool(some.any()) else self.models
        return chosen.to(torch.float64).mean(dim=0).to(torch.float32)

    def taking(self, rows: Sequence[int] | IntArray) -> Groups:
        """Models and server-optimiser rows taken from the given rows, in that order; members and
        memory stay.

        A row named twice is a group that splits, a row left out is one that goes.

        Example:
            >>> Groups(torch.tensor([[1.0], [2.0]]), np.zeros(3, np.int64)).taking([0, 0, 1]).models.ravel().tolist()
            [1.0, 1.0, 2.0]
        """
        chosen = torch.as_tensor(rows, dtype=torch.int64)
        optimiser = {name: row[chosen] for name, row in self.optimiser.items()}
        return replace(self, models=self.models[chosen], optimiser=MappingProxyType(optimiser))

    def together(self) -> Groups:
        """Everybody who has a group in one, served by the auxiliary model: what there would be
        without grouping."""
        return Groups(self.auxiliary(filled=True)[None], np.where(self.member >= 0, 0, NO_GROUP))

    def remember(self, **named: Tensor) -> Groups:
        """The same groups with some named tensors added to the memory, or replaced."""
        return replace(self, memory=MappingProxyType({**self.memory, **named}))
