"""A federated method as a record of rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.updates import Updates
from coterie.core.work import Train
from coterie.math.similarity import Matrix
from coterie.objectives import plain
from coterie.rules import inter_group as between
from coterie.rules.server import Server, sgd
from coterie.rules.weighing import by_size

Assign = Callable[[Groups, IntArray, Clients, Key], tuple[Groups, Plan]]


Recluster = Callable[[Groups, Updates], tuple[Groups, Updates]]


Weigh = Callable[[Groups, Updates], Matrix]


Starts = Callable[[int], Tensor]


def unchanged(groups: Groups, updates: Updates) -> tuple[Groups, Updates]:
    """The replies do not change the groups."""
    return groups, updates


@dataclass(frozen=True, slots=True)
class Method:
    """A federated method as six answers, and the number of models it keeps.

    Args:
        assign: who trains from which model, and after whom?
        local: what does a client do?
        recluster: do the replies change the groups?
        weigh: how much does each reply count for each model? One ``[k, n]`` matrix.
        server: how does a model move on the weighted update?
        inter_group: do the models pull on each other?
        groups: number of models at the start.
        apart: the models start from different initialisations, not all from ``w_0``.
        samples: the rule draws its clients itself; its cohort is everybody who is there.
        counted: the rule counts its groups: with fewer clients than ``groups`` it starts with as
            many models.

    Example:
        >>> from coterie.rules.single_group import everyone
        >>> fedavg = Method(assign=everyone)
    """

    assign: Assign
    local: Train = Train(plain)
    recluster: Recluster = unchanged
    weigh: Weigh = by_size
    server: Server = sgd(1.0)
    inter_group: between.InterGroup = between.none
    groups: int = 1
    apart: bool = False
    samples: bool = False
    counted: bool = False
