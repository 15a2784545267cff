"""What the server knows: the models, and which client belongs to which of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import BoolArray, IntArray, empty_mapping
from coterie.core.memory import Memory, Record

NO_GROUP = -1


@dataclass(frozen=True, slots=True)
class Groups:
    """What the server knows: the models, who belongs to which, and what the rules remember.

    Args:
        models: float32 ``[k, d]``, one flat parameter vector per group.
        member: int64 ``[N]``, the group of each client, ``-1`` for a client without a group.
        optimiser: rows of the server optimiser, each ``[k, ...]``.
        memory: one typed record for each rule (directions, signatures, ...).
        start: float32 ``[d]``, the first model ``w_0`` of the run.
        trained: bool ``[k]``, the models that some reply of the last round counted for.

    Everything in it is an array or a number, so all of it round-trips through a checkpoint.
    """

    models: Tensor
    member: IntArray
    optimiser: Mapping[str, Tensor] = field(default_factory=empty_mapping)
    memory: Memory = field(default_factory=Memory)
    start: Tensor | None = None
    trained: BoolArray | None = None

    @property
    def k(self) -> int:
        """Number of models."""
        return len(self.models)

    @property
    def first_model(self) -> Tensor:
        """The first model ``w_0 [d]`` of the run."""
        assert self.start is not None, "a run's groups know the first model"
        return self.start

    def sizes(self) -> IntArray:
        """Members per group, int64 ``[k]``."""
        return np.bincount(self.member[self.member >= 0], minlength=self.k)

    def auxiliary(self, *, filled: bool) -> Tensor:
        """The auxiliary global model ``[d]``: the mean of all models (FedGroup Alg. 2 l. 11).

        Args:
            filled: average only the models that have members, as FlexCFL's code does.
        """
        chosen = self.models
        has_members = torch.from_numpy(self.sizes() > 0)
        if filled and bool(has_members.any()):
            chosen = self.models[has_members]
        # In float64, so that the mean of equal models is that model to the bit.
        return chosen.to(torch.float64).mean(dim=0).to(torch.float32)

    def select(self, rows: Sequence[int] | IntArray) -> Groups:
        """Models and server-optimiser rows of the given rows, in that order; members and memory
        stay.

        A row named twice is a group that splits, a row left out is one that goes.

        Example:
            >>> groups = Groups(torch.tensor([[1.0], [2.0]]), np.zeros(3, np.int64))
            >>> groups.select([0, 0, 1]).models.ravel().tolist()
            [1.0, 1.0, 2.0]
        """
        chosen = torch.as_tensor(rows, dtype=torch.int64)
        # Moments go with their model: a group that splits has been moving as its parent did.
        optimiser = {name: row[chosen] for name, row in self.optimiser.items()}
        return replace(self, models=self.models[chosen], optimiser=MappingProxyType(optimiser))

    def merged(self) -> Groups:
        """One group of all clients that have one, served by the auxiliary model.

        It is what the federation would be without grouping, for measures that compare the two.
        """
        return Groups(self.auxiliary(filled=True)[None], np.where(self.member >= 0, 0, NO_GROUP))

    def with_members(self, ids: IntArray, group: IntArray | int) -> Groups:
        """The same groups after some clients moved.

        Args:
            ids: int64 ``[n]``, the clients.
            group: int64 ``[n]``, the new group of each, or one for all of them.
        """
        # A copy: the state before a round is still compared with the one after it.
        member = self.member.copy()
        member[ids] = group
        return replace(self, member=member)

    def remember(self, record: Record) -> Groups:
        """The same groups with this record in place of the one of its type."""
        return replace(self, memory=self.memory.with_record(record))
