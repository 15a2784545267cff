"""The first and the last slot of a method: who trains from which model and after whom, and what
serves whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from coterie.clients.round import Round
from coterie.core import Groups, Key, Plan, Served
from coterie.core.traits import Trait

Assign = Callable[[Groups, Round], tuple[Groups, Plan]]
Serve = Callable[[Groups], Served]


class PlacesClients:
    """Marks an assign rule that gives a group to every client of a cohort that has none.

    Newcomers have none, nor have drifted clients, so migration needs a rule with this mark.
    """


def everyone(groups: Groups, round: Round) -> tuple[Groups, Plan]:
    """Assign rule of FedAvg: all clients, known or new, belong to group 0."""
    # All clients and not only the cohort: the one model serves, and is scored on, everybody.
    if groups.k > 1 or groups.assigned < len(groups.member):
        groups = replace(groups, member=np.zeros_like(groups.member))
    return groups, Plan(round.cohort, np.zeros(len(round.cohort), np.int64))


def by_group(groups: Groups) -> Served:
    """Each client is served by the model of its group, or without a group by the auxiliary model.

    The auxiliary model is the mean of the groups that have members, as in FlexCFL's code. It is the
    last row of the models, ``[k + 1, d]``.

    Example:
        >>> groups = Groups(torch.tensor([[1.0], [3.0]]), np.array([1, -1, 0]))
        >>> [by_group(groups).vector(client).item() for client in range(3)]
        [3.0, 2.0, 1.0]
    """
    row = groups.member
    if groups.assigned < len(row):
        row = np.where(groups.has_group, row, groups.k)
    models = torch.cat([groups.models, groups.auxiliary(filled=True)[None]])
    return Served(models, row)


@runtime_checkable
class StartsPrivately(Protocol):
    """An assign rule whose first groups can be made of noised sums."""

    def start_size(self) -> int:
        """Clients of the cold start, on average."""
        ...

    def start_traits(self) -> frozenset[Trait]:
        """What the cold start, as it is now, needs single updates for."""
        ...

    def with_private_start(
        self, noise: float, rate: float, clients: int, secret: Key | None
    ) -> Assign:
        """The rule with such groups, formed of ``clients`` with this noise multiplier of all sums
        together. ``secret``: the stream of noise and sample, by default the run's own."""
        ...
