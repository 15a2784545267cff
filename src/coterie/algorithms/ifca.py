"""IFCA: Ghosh et al., An Efficient Framework for Clustered Federated Learning (2020)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.config.tables import Detector
from coterie.core.groups import Groups
from coterie.core.plan import Plan
from coterie.core.work import Evaluate, Train
from coterie.math.group_count import GroupCount, Most
from coterie.methods.method import Method
from coterie.objectives import plain
from coterie.rules.assigning import PlacesClients
from coterie.rules.group_count import count_if_auto
from coterie.rules.migration import Migration, Tau, migrating, previous_group
from coterie.rules.weighing import evenly


@dataclass(frozen=True)
class LeastLoss(PlacesClients):
    """The assign rule of IFCA (Alg. 1 l. 5-6): all models go to each client of the cohort.

    A client computes ``argmin_j F_i(w_j)`` over its whole training set, without regulariser, of
    equals the lowest, and trains that model in the same exchange (``Train.choose``). A client that
    does not answer stays where it was.
    """

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        groups = _place_drifted(groups, round)
        # All k models travel down, so a round costs k downloads for each client (the ledger
        # counts them).
        every_model = np.tile(np.arange(groups.k), (len(round.cohort), 1))
        return groups, Plan(round.cohort, every_model)


def _place_drifted(groups: Groups, round: Round) -> Groups:
    """Clients whose data drifted choose before the round, since not all of them train in it."""
    ids = np.flatnonzero(previous_group(groups) >= 0)
    if not len(ids):
        return groups
    every_model = np.tile(np.arange(groups.k), (len(ids), 1))
    key = round.key.of("choose")
    reply = round.clients.run(Evaluate("train"), ids, groups.models, every_model, key=key)
    # Training loss. PACFL's copy of IFCA takes test accuracy, which leaks the test data.
    return groups.with_members(reply.ids, reply.fields["loss"].argmin(axis=1))


@validated
def ifca(
    groups: GroupCount = 3,
    migration: Detector = "none",
    tau: Tau = 0.2,
    max_groups: Most = 8,
) -> Method:
    """IFCA: each client joins the model with the lowest loss on its data.

    ``j* = argmin_j F_i(w_j)``, then ``w_j <- w_j + mean of delta_i``. The models start from
    different initialisations.

    Args:
        groups: number of models ``m``, or ``auto``: as many as the clients of a cold start show.
        migration: with a detector this is IFCA-MIG: clients that have a group and drifted choose
            anew before each round.
        tau: threshold of the detector, as a share of a client's data.
        max_groups: the most that ``auto`` finds.

    Models: one per group, their number set or estimated.

    Source: Ghosh et al., An Efficient Framework for Clustered Federated Learning (2020).

    Example:
        >>> ifca(groups=4).groups
        4
    """
    rule, first_models = count_if_auto(LeastLoss(), groups, max_groups)
    return Method(
        migrating(rule, Migration(migration, tau)),
        local=Train(plain, choose="least_loss"),
        # "We still use simply averaging", FlexCFL sec. 5.1.
        weigh=evenly,
        groups=first_models,
        # From equal models every client would choose model 0, and the others would never train.
        distinct_init=True,
        at_most_clients=groups == "auto",
    )
