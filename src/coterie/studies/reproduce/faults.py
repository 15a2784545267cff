"""What reference code does otherwise than its paper, kept apart from the methods, to test what it
explains."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from coterie import algorithms
from coterie.algorithms.fesem import Order
from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core.groups import Groups
from coterie.core.updates import Updates
from coterie.math.similarity import Matrix
from coterie.methods.method import Method
from coterie.rules.weighing import Weigh, by_size

Weighing = Literal["first_client", "by_size"]


def first_client(groups: Groups, updates: Updates, round: Round | None = None) -> Matrix:
    """Only the first participant of a group counts: the 'avg' strategy of FlexCFL's code since
    August 2021 (C1).

    A weighing rule, for instance ``dataclasses.replace(ifca(3), weigh=first_client)``.

    Example:
        >>> import torch
        >>> groups = Groups(torch.zeros(2, 1), np.zeros(3, np.int64))
        >>> updates = Updates(np.arange(3), np.array([0, 1, 0]), torch.zeros(3, 1), np.ones(3), np.zeros(3))
        >>> first_client(groups, updates).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    weights = np.zeros((groups.k, len(updates)))
    rows, first = np.unique(updates.row, return_index=True)
    weights[rows, first] = 1.0
    return weights


WEIGHS: dict[Weighing, Weigh] = {
    "first_client": first_client,
    "by_size": by_size,
}


@validated
def ifca(groups: Annotated[int, Field(ge=1)] = 3, weigh: Weighing = "first_client") -> Method:
    """IFCA as reference code weighs it: ``first_client`` in FlexCFL's (C1), ``by_size`` in
    FedGroup's (C8).

    In a configuration ``algorithm.name = "coterie.studies.reproduce.faults:ifca"``.

    Example:
        >>> ifca(groups=2).weigh is first_client
        True
    """
    return replace(algorithms.ifca(groups=groups), weigh=WEIGHS[weigh])


@validated
def fesem(
    groups: Annotated[int, Field(ge=1)] = 3,
    order: Order = "train_then_assign",
    weigh: Weighing = "first_client",
) -> Method:
    """FeSEM as reference code weighs it, and with ``order = "flexcfl"`` as FlexCFL's code assigns
    newcomers (C5).

    Example:
        >>> fesem(groups=4, weigh="by_size").groups
        4
    """
    return replace(algorithms.fesem(groups=groups, order=order), weigh=WEIGHS[weigh])
