"""FedSoft: Ruan & Joe-Wong, FedSoft: Soft Clustered Federated Learning with Proximal Local Updating
(2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import FloatArray, Groups, IntArray, Plan, Score, Train
from coterie.core.traits import Need
from coterie.methods.first_models import FirstModels
from coterie.methods.method import Method
from coterie.objectives import proximal
from coterie.rules.assigning import PlacesClients, everyone
from coterie.rules.soft_groups import by_mixture, by_share, plan_from_mixtures, with_shares


def importance(wins: FloatArray, size: FloatArray, sigma: float) -> FloatArray:
    """``u_ij = max(n_ij / n_i, sigma)``, divided by their sum over the groups.

    Args:
        wins: ``[n, k]``, on how many of its samples each client finds each model the best.
        size: ``[n]``, its samples.

    Returns:
        float64 ``[n, k]``, rows that sum to 1.

    Example:
        >>> importance(np.array([[3.0, 1.0], [4.0, 0.0]]), np.array([4.0, 4.0]), 0.25).tolist()
        [[0.75, 0.25], [0.8, 0.2]]
    """
    smoothed = np.maximum(wins / size[:, None], sigma)
    return smoothed / smoothed.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class EstimatesImportance(PlacesClients):
    """The assign rule of FedSoft (Alg. 1); its fields are the arguments of `fedsoft`.

    Every ``interval`` rounds all clients count which model is the best for how many of their samples.
    In the other rounds only clients of the cohort do of which nothing is known yet. Those of the
    round then start from their mixture ``sum_j u_ij c_j`` of the centres.
    """

    interval: int
    sigma: float

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        if groups.k == 1:
            # Every importance is 1, so no client needs to be asked.
            return everyone(groups, round)
        newcomers = round.cohort[groups.member[round.cohort] < 0]
        asked = newcomers
        if round.number % self.interval == 0:
            asked = round.trainable(len(groups.member))
        groups = self._estimate(groups, asked, round)
        return groups, plan_from_mixtures(groups, round.cohort, {"newcomers": len(newcomers)})

    def _estimate(self, groups: Groups, ids: IntArray, round: Round) -> Groups:
        """The groups with the importance of some clients as they count it now."""
        if not len(ids):
            return groups
        work = Score("train", per="sample_winner")
        key = round.key.of("importance")
        reply = round.clients.run(work, ids, groups.models, key=key)
        shares = importance(reply.fields["wins"], reply.size, self.sigma)
        # Of a client that does not answer, the last estimate holds.
        return with_shares(groups, reply.ids, shares)


@validated
def fedsoft(
    groups: Annotated[int, Field(ge=1)] = 3,
    mu: Annotated[float, Field(ge=0)] = 0.1,
    interval: Annotated[int, Field(ge=1)] = 2,
    sigma: Annotated[float, Field(ge=0, lt=1)] = 1e-4,
) -> Method:
    """FedSoft: a client has a share of several groups; it trains and is served their weighted mean.

    The importance of group ``j`` for client ``i`` is the share of its samples on which the centre
    ``c_j`` has the lowest loss. Clients minimise ``F_i(w) + mu/2 sum_j u_ij ||w - c_j||^2``, and
    the centres become means of their solutions, ``c_j = sum_i u_ij n_i w_i / sum_i u_ij n_i``.

    Args:
        groups: number of centres.
        mu: weight of the proximal term, ``lambda`` in the paper.
        interval: number of rounds between two estimates of the importance, ``tau``.
        sigma: minimum importance of a group.

    Models: one per group; their number is set.

    Source: Ruan & Joe-Wong, FedSoft: Soft Clustered Federated Learning with Proximal Local Updating
    (2022).

    Example:
        >>> fedsoft(groups=2).local.objective.mu
        0.1
    """
    needs: tuple[Need, ...] = ("statistics",)
    if groups == 1:
        needs = ()
    return Method(
        EstimatesImportance(interval, sigma),
        # The gradient of the proximal term is mu (w - sum_j u_ij c_j), since the shares sum to 1,
        # and clients start from this mixture. So it is FedProx's term on the model received.
        local=Train(proximal(mu)),
        weigh=by_share,
        serve=by_mixture,
        # Equal centres would have equal losses, and all samples would go to the first.
        first=FirstModels(groups, distinct=True),
        needs=needs,
    )
