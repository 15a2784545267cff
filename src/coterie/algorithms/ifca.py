"""IFCA: Ghosh et al., An Efficient Framework for Clustered Federated Learning (2020)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.checked import checked
from coterie.grouping.drift import Migration, drifting
from coterie.grouping.loss import least_loss
from coterie.rounds import Method
from coterie.weighing import evenly


@checked
def ifca(
    groups: Annotated[int, Field(ge=1)] = 3,
    migration: Migration = "none",
    tau: Annotated[float, Field(ge=0)] = 0.2,
) -> Method:
    """IFCA: each client joins the model with the least training loss; models are plain means of their participants.

    ``j* = argmin_j F_i(w_j)``, then ``w_j <- w_j + mean of delta_i``. The models start from different initialisations.

    Args:
        groups: number of models ``m``.
        migration: with a detector this is IFCA-MIG: warm clients that drifted choose anew before each round.
        tau: threshold of the detector, as a share of a client's data.

    Example:
        >>> ifca(groups=4).groups
        4
    """
    return Method(drifting(least_loss, migration, tau), weigh=evenly, groups=groups, apart=True)
