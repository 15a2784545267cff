"""The tree of CFL's splits: the latest update of each client, and those that divided each cluster.

A newcomer goes down the tree from the first split to a group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import BoolArray, IntArray
from coterie.math.bipartition import Halving
from coterie.math.clustering import linkage_distance
from coterie.math.similarity import cosine

NEVER = -1


@dataclass(frozen=True, slots=True)
class SplitMemory:
    """What CFL remembers: the clients' latest updates, and the tree of splits.

    Args:
        last_update: float32 ``[N, d]``, the latest update of each client.
        updated_in_round: int64 ``[N]``, the round of that update, -1 for none.
        present: bool ``[N]``, the clients that could train in the last round.
        split_model: float32 ``[s, d]``, the parent's model at each split.
        split_child: int64 ``[s, 2]``, the children of each split: a group, or ``-1 - t`` for split
            ``t``.
        split_delta: float32 ``[m, d]``, the members' updates that made the splits.
        split_of: int64 ``[m]``, the split that each of these updates made.
        split_half: bool ``[m]``, the half of it that each update is in.
    """

    record_name: ClassVar[str] = "splits"
    last_update: Tensor
    updated_in_round: IntArray
    present: BoolArray
    split_model: Tensor
    split_child: Tensor
    split_delta: Tensor
    split_of: Tensor
    split_half: Tensor

    @property
    def splits(self) -> int:
        """Number of splits so far."""
        return len(self.split_model)

    @classmethod
    def empty(cls, clients: int, d: int) -> SplitMemory:
        """One cluster, and no update yet.

        Args:
            clients: their number ``N``.
            d: parameters of the model.
        """
        return cls(
            last_update=torch.zeros(clients, d),
            updated_in_round=np.full(clients, NEVER),
            present=np.zeros(clients, bool),
            split_model=torch.zeros(0, d),
            split_child=torch.zeros(0, 2, dtype=torch.int64),
            split_delta=torch.zeros(0, d),
            split_of=torch.zeros(0, dtype=torch.int64),
            split_half=torch.zeros(0, dtype=torch.bool),
        )

    def with_present(self, ids: IntArray) -> SplitMemory:
        """These clients, and no others, can train in this round."""
        present = np.zeros(len(self.present), bool)
        present[ids] = True
        return replace(self, present=present)

    def without_updates(self, ids: IntArray) -> SplitMemory:
        """The updates of these clients no longer count."""
        updated_in_round = self.updated_in_round.copy()
        updated_in_round[ids] = NEVER
        return replace(self, updated_in_round=updated_in_round)

    def with_updates(self, ids: IntArray, delta: Tensor, number: int) -> SplitMemory:
        """The latest updates of these clients.

        Args:
            ids: int64 ``[n]``.
            delta: ``[n, d]``.
            number: of the round.
        """
        last_update = self.last_update.clone()
        last_update[torch.from_numpy(ids)] = delta.to(torch.float32)
        updated_in_round = self.updated_in_round.copy()
        updated_in_round[ids] = number
        return replace(self, last_update=last_update, updated_in_round=updated_in_round)

    def with_split(
        self, row: int, child: int, model: Tensor, delta: Tensor, half: BoolArray
    ) -> SplitMemory:
        """One more split.

        Args:
            row: the group that is divided; one half keeps its number.
            child: the group of the other half.
            model: ``[d]``, its model.
            delta: float32 ``[m, d]``, the updates of its members.
            half: bool ``[m]``, which of them are in the new group.
        """
        split_child = self.split_child.clone()
        # Where the tree had this group at its end, it now has the split.
        split_child[split_child == row] = -1 - self.splits
        return replace(
            self,
            split_model=torch.cat([self.split_model, model[None]]),
            split_child=torch.cat([split_child, torch.tensor([[row, child]])]),
            # Kept: a newcomer trains the parent's model and is compared with the updates that split
            # it.
            split_delta=torch.cat([self.split_delta, delta]),
            split_of=torch.cat([self.split_of, torch.full((len(delta),), self.splits)]),
            split_half=torch.cat([self.split_half, torch.from_numpy(half)]),
        )

    def halves(self, split: IntArray, delta: Tensor, linkage: Halving) -> IntArray:
        """The half of its split that each newcomer is more similar to, int64 ``[n]``.

        Args:
            split: int64 ``[n]``, where each newcomer stands.
            delta: ``[n, d]``, its update of the model of that split.
            linkage: of the bipartition.
        """
        half = np.zeros(len(split), np.int64)
        for number in np.unique(split):
            newcomers = np.flatnonzero(split == number)
            members = self.split_of == number
            distance = 1 - cosine(delta[torch.from_numpy(newcomers)], self.split_delta[members])
            side = self.split_half[members].numpy().astype(np.int64)
            to_halves = linkage_distance(distance, np.empty((0, 0)), side, 2, linkage)
            half[newcomers] = to_halves.argmin(axis=1)
        return half
