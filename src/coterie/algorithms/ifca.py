"""IFCA: Ghosh et al., An Efficient Framework for Clustered Federated Learning (2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import Groups, Plan, Score, Train
from coterie.core.traits import Need
from coterie.errors import ConfigError
from coterie.math.group_count import GroupCount, Most
from coterie.methods.first_models import FirstModels
from coterie.methods.method import Method
from coterie.rules.assigning import Assign, PlacesClients
from coterie.rules.cold_start import GroupColdStart, Outliers
from coterie.rules.migration import Detector, DriftMemory, Migration, migrating, previous_group
from coterie.rules.starts import BestOfStarts, StartsFromClusters, count_if_auto
from coterie.rules.weighing import evenly

Init = Literal["random", "cold_start", "robust_cold_start"]


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
    if groups.memory.get(DriftMemory) is None:
        return groups
    ids = np.flatnonzero(previous_group(groups) >= 0)
    if not len(ids):
        return groups
    key = round.key.of("choose")
    reply = round.clients.run(Score("train"), ids, groups.models, key=key)
    # Training loss. PACFL's copy of IFCA takes test accuracy, which leaks the test data.
    return groups.with_members(reply.ids, reply.loss.argmin(axis=1))


@validated
def ifca(
    groups: GroupCount = 3,
    migration: Detector | Migration = "none",
    max_groups: Most = 8,
    init: Init = "random",
    restarts: Annotated[int, Field(ge=1)] = 1,
    alpha: Annotated[int, Field(ge=1)] = 20,
) -> Method:
    """IFCA: each client joins the model with the lowest loss on its data.

    ``j* = argmin_j F_i(w_j)``, then ``w_j <- w_j + mean of delta_i``. The models start from
    different initialisations. From random models, groups can be lost: all clients train a model
    that is slightly better for all of them at the start. ``init`` and ``restarts`` are two
    remedies.

    Args:
        groups: number of models ``m``, or ``auto``: estimated in a cold start.
        migration: with a detector this is IFCA-MIG: clients that have a group and drifted choose
            again before each round.
        max_groups: largest number that ``auto`` finds.
        init: ``random`` models as in the paper, or those of FedGroup's ``cold_start``;
            ``robust_cold_start`` excludes directions that are far from all others, or opposite to
            them.
        restarts: number of draws of random models that are tried before the first round; the one
            with the lowest mean loss is kept.
        alpha: ``alpha * m`` clients take part in the cold start, or try every draw.

    Raises:
        ConfigError: for ``restarts`` together with a cold start, or with ``groups = "auto"``.

    Models: one per group; their number is set or estimated.

    Source: Ghosh et al., An Efficient Framework for Clustered Federated Learning (2020).

    Example:
        >>> ifca(groups=4).groups
        4
    """
    if restarts > 1 and (init != "random" or groups == "auto"):
        raise ConfigError(
            "does-not-fit",
            "algorithm.restarts",
            "restarts need random initial models and a fixed number of groups",
            found=restarts,
            allowed="1, or a number of groups with init = 'random'",
        )
    rule: Assign
    if init != "random":
        outliers: Outliers = "leave_out" if init == "robust_cold_start" else "keep"
        cold_start = GroupColdStart(groups, alpha, max_groups=max_groups, outliers=outliers)
        rule = StartsFromClusters(LeastLoss(), cold_start)
        first_models = cold_start.first_models
    elif restarts > 1 and groups != "auto":
        rule = BestOfStarts(LeastLoss(), groups, restarts, alpha)
        first_models = groups * restarts
    else:
        rule, first_models = count_if_auto(LeastLoss(), groups, max_groups)
    # Random first models need nothing, others are made of what clients send before the first round.
    needs: tuple[Need, ...] = ()
    if restarts > 1:
        # Each draw is trained for some rounds, so what is read is a round's; the losses choose.
        needs = ("statistics",)
    elif init != "random" or groups == "auto":
        needs = ("start",)
    return Method(
        migrating(rule, migration),
        local=Train(choose="least_loss"),
        # "We still use simply averaging", FlexCFL sec. 5.1.
        weigh=evenly,
        # From equal models every client would choose model 0, and the others would never train.
        first=FirstModels(first_models, init == "random", groups == "auto" and init == "random"),
        needs=needs,
    )
