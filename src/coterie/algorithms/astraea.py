"""Astraea: Duan et al., Astraea: Self-balancing Federated Learning (2019); its rescheduling, not
its augmentation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.config.arguments import validated
from coterie.core.work import Epsilon
from coterie.methods.method import Method
from coterie.rules.chains import Histograms, Mediated, Privacy


@validated
def astraea(
    gamma: Annotated[int, Field(ge=1)] = 5,
    privacy: Privacy = "none",
    epsilon: Epsilon = 1.0,
) -> Method:
    """Astraea: clients train one after another inside mediators whose labels are nearly uniform.

    A round's cohort is dealt greedily to mediators by ``argmin_i KL(P_m + h_i || uniform)``;
    mediators count by their samples: ``w <- sum_m n_m / n w_m``.

    Args:
        gamma: most clients per mediator.
        privacy: how a client makes its histogram private before it sends it.
        epsilon: privacy budget.

    Example:
        >>> astraea(gamma=3).assign.most
        3
    """
    return Method(Mediated(gamma, Histograms(privacy, epsilon)))
