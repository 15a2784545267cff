"""Groups that are known beforehand: FedAvg inside each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.config.schema import Count
from coterie.core import Groups, IntArray, Plan
from coterie.methods.first_models import FirstModels
from coterie.methods.method import Method

Group = Annotated[int, Field(ge=0)]
Row = Annotated[tuple[Group, ...], Field(min_length=1)]


@dataclass(frozen=True)
class KnownGroups:
    """The assign rule: each client is of the group that a table gives it; the fields are the
    arguments of `known_groups`."""

    members: tuple[Row, ...]
    every: int

    def at(self, number: int, clients: int) -> IntArray:
        """The groups of all clients in a round, int64 ``[N]``.

        Example:
            >>> KnownGroups(((0, 1), (1, 1)), every=10).at(number=3, clients=4).tolist()
            [0, 1, 0, 1]
        """
        step = min(number // self.every, len(self.members) - 1)
        return np.resize(np.array(self.members[step], np.int64), clients)

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        member = self.at(round.number, len(groups.member))
        newcomers = int((groups.member[round.cohort] < 0).sum())
        notes = {"newcomers": newcomers}
        plan = Plan(round.cohort, member[round.cohort], notes=notes)
        return replace(groups, member=member), plan


@validated
def known_groups(
    members: Annotated[tuple[Row, ...], Field(min_length=1)] = ((0, 1),), every: Count = 10
) -> Method:
    """Known groups: FedAvg inside each group of clients; the groups are given and not learned.

    If groups follow from something that is known, such as the maker of a device, try this method
    before one that finds groups. On federations with planted groups it is the oracle: no method
    that has to find the groups should be better, except by chance.

    Client ``i`` belongs to group ``members[t][i mod n]`` in time step ``t``, whose row has ``n``
    entries. All groups start from ``w_0``.

    Args:
        members: a row for each time step, with the groups of the clients from client 0 on. A row
            with fewer entries than clients is repeated. The last row is used until the end.
        every: number of rounds in a time step.

    Models: one per group; their number is set.

    Source: Ghosh et al., An Efficient Framework for Clustered Federated Learning (2020), whose
    analysis compares with an oracle that knows the groups.

    Example:
        >>> known_groups(members=[[0, 1, 2]]).groups
        3
    """
    groups = 1 + max(max(row) for row in members)
    return Method(KnownGroups(members, every), first=FirstModels(groups), needs=())
