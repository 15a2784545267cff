"""NaiveGSP, FedGSP's ablation: Zeng et al., FedGSP (2022), sec. 4.1."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.config.arguments import validated
from coterie.core.work import Epsilon
from coterie.methods.method import Method
from coterie.rules.chains import Fixed, Histograms, Privacy
from coterie.rules.weighing import evenly


@validated
def naive_gsp(
    groups: Annotated[int, Field(ge=1)] = 10,
    kappa: Annotated[float, Field(gt=0, le=1)] = 0.3,
    icg: bool = False,
    privacy: Privacy = "none",
    epsilon: Epsilon = 1.0,
) -> Method:
    """NaiveGSP: a fixed number of equal groups made once, sequential inside in a fixed order,
    parallel over groups.

    With ``icg`` this is NaiveGSP+ICG, whose groups are made by inter-cluster grouping. The method
    draws its clients itself; the paper trains one local epoch: ``local.epochs = 1``.

    Args:
        groups: number of groups ``M``.
        kappa: share of the groups that train in a round.
        icg: inter-cluster grouping of label histograms instead of random groups.
        privacy: with ``icg``, how a client makes its histogram private before it sends it.
        epsilon: privacy budget.

    Example:
        >>> naive_gsp(icg=True).assign.icg
        True
    """
    return Method(
        Fixed(groups, kappa, icg, Histograms(privacy, epsilon)), weigh=evenly, samples=True
    )
