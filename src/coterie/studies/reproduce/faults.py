"""What reference code does differently from its paper.

These methods test whether a fault of the code explains a printed value. They stand apart from the
algorithms, which follow the papers. The numbers of the faults (C1, C5, C8) are those of the notes
in the papers' files.
"""

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


def first_client(groups: Groups, updates: Updates, round: Round) -> Matrix:
    """Weigh only the first participant of each group (C1).

    That is what the strategy "avg" of FlexCFL's code does since August 2021. Until every client was
    sampled once, that code takes the clients in the order of their numbers, so the first one has
    the lowest number. Later rounds take them in the random order in which they were drawn. It is a
    weighing rule, for instance ``dataclasses.replace(ifca(3), weigh=first_client)``.

    Returns:
        float64 ``[k, n]``, a single 1 in the row of each group that has participants.
    """
    order = np.arange(len(updates))
    cohort_size = len(round.cohort)
    everyone_was_sampled = round.number * cohort_size >= len(groups.member)
    if everyone_was_sampled:
        order = round.key.of("first_client").generator().permutation(order)
    weights = np.zeros((groups.k, len(updates)))
    # The position of the first update of each group in this order.
    rows, first = np.unique(updates.row[order], return_index=True)
    weights[rows, order[first]] = 1.0
    return weights


WEIGHS_OF_CODE: dict[Weighing, Weigh] = {"first_client": first_client, "by_size": by_size}


@validated
def ifca(groups: Annotated[int, Field(ge=1)] = 3, weigh: Weighing = "first_client") -> Method:
    """IFCA with the weights of reference code.

    In a configuration: ``algorithm.name = "coterie.studies.reproduce.faults:ifca"``.

    Args:
        groups: number of groups ``k``.
        weigh: ``first_client`` as in FlexCFL's code (C1), ``by_size`` as in FedGroup's (C8).
    """
    return replace(algorithms.ifca(groups=groups), weigh=WEIGHS_OF_CODE[weigh])


@validated
def fesem(
    groups: Annotated[int, Field(ge=1)] = 3,
    order: Order = "train_then_assign",
    weigh: Weighing = "first_client",
) -> Method:
    """FeSEM with the weights of reference code.

    In a configuration: ``algorithm.name = "coterie.studies.reproduce.faults:fesem"``.

    Args:
        groups: number of groups ``k``.
        order: ``flexcfl`` assigns newcomers as FlexCFL's code does (C5).
        weigh: ``first_client`` as in FlexCFL's code (C1), ``by_size`` as in FedGroup's (C8).
    """
    return replace(algorithms.fesem(groups=groups, order=order), weigh=WEIGHS_OF_CODE[weigh])
