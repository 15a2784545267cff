"""FeSEM: Xie et al., Multi-Center Federated Learning (2020)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.config.arguments import validated
from coterie.math.group_count import Most, Number
from coterie.methods.method import Method
from coterie.rules.centre import ByCentre, Order
from coterie.rules.group_count import counted
from coterie.rules.migration import Migration, drifting
from coterie.rules.weighing import evenly


@validated
def fesem(
    groups: Number = 3,
    order: Order = "train_then_assign",
    migration: Migration = "none",
    tau: Annotated[float, Field(ge=0)] = 0.2,
    max_groups: Most = 8,
) -> Method:
    """FeSEM: each client joins the centre nearest to its local solution; centres are plain means of
    their members.

    E-step ``r(i) = argmin_j |w_i - c_j|_2``, M-step ``c_j = mean of w_i`` over this round's
    participants. The centres start from different initialisations.

    Args:
        groups: number of centres ``m``, or ``auto``: as many as the clients of a cold start show.
        order: ``train_then_assign``, or ``flexcfl`` for the E-step before training that the
            reference code has.
        migration: with a detector this is FeSEM-MIG (the distance test needs no data, so nothing
            changes).
        tau: threshold of the detector.
        max_groups: the most that ``auto`` finds.

    Example:
        >>> fesem(groups=4).groups
        4
    """
    rule = ByCentre(order)
    assign, start = counted(rule.assign, groups, max_groups)
    return Method(
        drifting(assign, migration, tau),
        recluster=rule.recluster,
        weigh=evenly,
        groups=start,
        apart=True,
        counted=groups == "auto",
    )
