"""FedEM: Marfoq et al., Federated Multi-Task Learning under a Mixture of Distributions (2021)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import Groups, Mixture, Plan, Train
from coterie.methods.first_models import FirstModels
from coterie.methods.method import Method
from coterie.rules.soft_groups import by_predictions, shares_of


@dataclass(frozen=True)
class TrainsComponents:
    """The assign rule of FedEM (Alg. 1): each client of the cohort trains all components.

    The client computes its responsibilities, its new shares, and its updates itself
    (``Train.mixture``).
    """

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        if groups.k == 1:
            # One component serves everybody, known or new.
            groups = replace(groups, member=np.zeros_like(groups.member))
        every_model = np.tile(np.arange(groups.k), (len(round.cohort), 1))
        shares = shares_of(groups, round.cohort)
        return groups, Plan(round.cohort, every_model, shares=shares)


@validated
def fedem(groups: Annotated[int, Field(ge=1)] = 3) -> Method:
    """FedEM: a client's data are a mixture of several models; it trains all and mixes their predictions.

    Client ``i`` has shares ``pi_i`` of the components. A sample ``s`` belongs to component ``m``
    with ``q_s(m) ~ pi_im exp(-loss_m(s))``; then ``pi_im`` is the mean of ``q_s(m)`` over its
    samples, and it trains component ``m`` on its samples weighted by ``q_s(m)``. The server
    averages each component, weighted by samples.

    Args:
        groups: number of components ``M``.

    Models: one per group; their number is set.

    Source: Marfoq et al., Federated Multi-Task Learning under a Mixture of Distributions (2021).

    Example:
        >>> fedem(groups=2).local.how
        Mixture(shares=None, budget=Epochs(number=None, spent=0))
    """
    return Method(
        TrainsComponents(),
        local=Train(how=Mixture()),
        serve=by_predictions,
        # Equal components would explain every sample alike and stay equal.
        first=FirstModels(groups, distinct=True),
        needs=("statistics",),
    )
