"""Astraea: Duan et al., Astraea: Self-balancing Federated Learning (2019); its rescheduling, not
its augmentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import Groups, Plan
from coterie.core.describe import Epsilon
from coterie.math.balanced import mediators
from coterie.methods.method import Method
from coterie.rules.chains import Histograms, Privacy, plan_of_chains


@dataclass(frozen=True)
class Mediated:
    """The assign rule of Astraea: the cohort is dealt to mediators whose labels are nearly uniform,
    again in every round.

    Args:
        most: clients per mediator, ``gamma``.
    """

    most: int
    histograms: Histograms

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        groups, newcomers = self.histograms.ask(groups, round)
        ids = round.cohort[groups.member[round.cohort] >= 0]
        order, mediator = mediators(Histograms.of(groups, ids), self.most)
        # Every mediator trains in every round.
        every = np.unique(mediator)
        return groups, plan_of_chains(ids[order], mediator, every, newcomers, len(every))


@validated
def astraea(
    gamma: Annotated[int, Field(ge=1)] = 5,
    privacy: Privacy = "none",
    epsilon: Epsilon = 1.0,
) -> Method:
    """Astraea: trains one model. In each round, chains of clients train in sequence; the labels of
    a chain are balanced.

    Clients train one after another inside mediators whose labels are nearly uniform.

    A round's cohort is assigned greedily to mediators by ``argmin_i KL(P_m + h_i || uniform)``;
    mediators are weighted by their samples: ``w <- sum_m n_m / n w_m``.

    Args:
        gamma: largest number of clients per mediator.
        privacy: how a client makes its histogram private before it sends it.
        epsilon: privacy budget.

    Models: one.

    Source: Duan et al., Astraea: Self-Balancing Federated Learning for Improving Classification
    Accuracy of Mobile Deep Learning Applications (2019).

    Example:
        >>> astraea(gamma=3).assign.most
        3
    """
    # Weighed by samples, which is the default; FedGSP, whose groups are equal, weighs evenly.
    rule = Mediated(gamma, Histograms(privacy, epsilon))
    return Method(rule, needs=("statistics", "chains", "class_labels"))
