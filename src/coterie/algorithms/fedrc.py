"""FedRC: Guo et al., FedRC: Tackling Diverse Distribution Shifts Challenge in Federated Learning by
Robust Clustering (2024)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from coterie.algorithms.fedem import TrainsComponents
from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import Groups, Mixture, Plan, Train
from coterie.methods.first_models import FirstModels
from coterie.methods.method import Method
from coterie.rules.assigning import Assign
from coterie.rules.soft_groups import by_predictions, label_prior_of


@dataclass(frozen=True)
class CorrectsLabels:
    """The assign rule of FedRC: that of FedEM, and clients are told how often each component's
    samples have each class."""

    assign: Assign = TrainsComponents()

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        groups, plan = self.assign(groups, round)
        return groups, replace(plan, label_prior=label_prior_of(groups, round.clients.classes))


@validated
def fedrc(groups: Annotated[int, Field(ge=1)] = 3) -> Method:
    """FedRC: FedEM in which a model counts less for a class that it saw often.

    A sample ``s`` of class ``y`` belongs to component ``m`` with
    ``q_s(m) ~ w_im exp(-loss_m(s)) / C_m(y)``, where ``C_m(y)`` is the share of class ``y`` in the
    samples of component ``m`` over all clients. So clients that label inputs in the same way, but
    hold different classes or inputs, share a component. Everything else is as in FedEM.

    Args:
        groups: number of components ``K``.

    Models: one per group; their number is set.

    Source: Guo et al., FedRC: Tackling Diverse Distribution Shifts Challenge in Federated Learning by
    Robust Clustering (2024).

    Example:
        >>> fedrc(groups=2).local.how
        Mixture(shares=None, budget=Epochs(number=None, spent=0))
    """
    return Method(
        CorrectsLabels(),
        local=Train(how=Mixture()),
        serve=by_predictions,
        # Equal components would explain every sample alike and stay equal.
        first=FirstModels(groups, distinct=True),
        needs=("statistics",),
    )
