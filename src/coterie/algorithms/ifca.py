"""IFCA: Ghosh et al., An Efficient Framework for Clustered Federated Learning (2020)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.config.arguments import validated
from coterie.math.group_count import Most, Number
from coterie.methods.method import Method
from coterie.rules.group_count import counted
from coterie.rules.loss import least_loss
from coterie.rules.migration import Migration, drifting
from coterie.rules.weighing import evenly


@validated
def ifca(
    groups: Number = 3,
    migration: Migration = "none",
    tau: Annotated[float, Field(ge=0)] = 0.2,
    max_groups: Most = 8,
) -> Method:
    """IFCA: each client joins the model with the least training loss; models are plain means of
    their participants.

    ``j* = argmin_j F_i(w_j)``, then ``w_j <- w_j + mean of delta_i``. The models start from
    different initialisations.

    Args:
        groups: number of models ``m``, or ``auto``: as many as the clients of a cold start show.
        migration: with a detector this is IFCA-MIG: warm clients that drifted choose anew before
            each round.
        tau: threshold of the detector, as a share of a client's data.
        max_groups: the most that ``auto`` finds.

    Example:
        >>> ifca(groups=4).groups
        4
    """
    rule, start = counted(least_loss, groups, max_groups)
    return Method(
        drifting(rule, migration, tau),
        weigh=evenly,
        groups=start,
        apart=True,
        counted=groups == "auto",
    )
