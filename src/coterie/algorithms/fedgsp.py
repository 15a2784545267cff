"""FedGSP: Zeng et al., Heterogeneous Federated Learning via Grouped Sequential-to-Parallel Training
(2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import Groups, Plan
from coterie.core.describe import Epsilon
from coterie.math.balanced import (
    EqualKMeans,
    Growth,
    Init,
    Leftover,
    groups_sampled,
    grow,
    inter_cluster,
)
from coterie.math.transport import Exact
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients
from coterie.rules.chains import Histograms, Privacy, empty_plan, plan_of_chains
from coterie.rules.migration import Detector, Migration, migrating
from coterie.rules.weighing import evenly


@dataclass(frozen=True)
class Growing(PlacesClients):
    """The assign rule of FedGSP (Alg. 1): every round ``f(r)`` new groups by ICG, of which the share
    ``kappa`` is sampled, each a chain in shuffled order.

    Its fields are the arguments of `fedgsp`; ``clusters`` is how ICG finds clusters of equal size.
    """

    histograms: Histograms
    growth: Growth = "log"
    alpha: float = 2.0
    beta: int = 10
    kappa: float = 0.3
    leftover: Leftover = "idle"
    normalize: bool = False
    clusters: EqualKMeans = EqualKMeans()

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        groups, newcomers = self.histograms.ask(groups, round)
        ids = round.cohort[groups.member[round.cohort] >= 0]
        if not len(ids):
            return groups, empty_plan(ids)
        # Alg. 1 l. 3: the number of groups grows; rounds count from 1 in the paper.
        count = grow(self.growth, round.number + 1, self.alpha, self.beta, len(ids))
        # Alg. 1 l. 4: inter-cluster grouping (Alg. 2) makes groups that look alike.
        group = inter_cluster(
            Histograms.of(groups, ids),
            count,
            round.key.of("icg"),
            self.leftover,
            self.normalize,
            self.clusters,
        )
        # Alg. 1 l. 5: some of the groups train, each in a random order of its clients.
        sample = round.key.of("draw").generator()
        sampled = sample.choice(count, groups_sampled(self.kappa, count), replace=False)
        # A new order in each round, so that no model learns the order of clients (sec. 3.2).
        order = round.key.of("order").generator().permutation(len(ids))
        return groups, plan_of_chains(ids[order], group[order], sampled, newcomers, count)


@validated
def fedgsp(
    # These four are the paper's, for 368 clients.
    growth: Growth = "log",
    alpha: Annotated[float, Field(gt=0)] = 2.0,
    beta: Annotated[int, Field(ge=1)] = 10,
    kappa: Annotated[float, Field(gt=0, le=1)] = 0.3,
    leftover: Leftover = "idle",
    normalize: bool = False,
    iterations: Annotated[int, Field(ge=1)] = 10,
    init: Init = "random",
    solver: Exact = "transport",
    privacy: Privacy = "none",
    epsilon: Epsilon = 1.0,
    migration: Detector | Migration = "none",
) -> Method:
    """FedGSP: trains one model. Clients of a group train in sequence, and all groups have similar
    label distributions.

    Groups train in parallel, and their number grows over the rounds (Alg. 1).

    ``w <- 1/s sum_m w_m`` over the ends ``w_m`` of ``s = kappa f(r)`` chains out of ``f(r)`` groups
    (erratum P12). The groups are new in every round, by inter-cluster grouping of the clients'
    label histograms (Alg. 2). The method samples its clients itself, so ``clients_per_round`` has
    no effect; the paper trains one local epoch: ``local.epochs = 1``.

    Args:
        growth: ``log``, ``linear`` or ``exp``, see ``coterie.math.balanced.grow``.
        alpha: growth rate.
        beta: initial number of groups, and span of growth.
        kappa: share of the groups that train in a round.
        leftover: clients that ICG has no place for: ``idle`` this round, ``append`` to groups, or
            ``exact`` clusters.
        normalize: compare class shares instead of counts.
        iterations: number of iterations of ICG, ``tau`` in the paper.
        init: where ICG's centroids start, ``random`` or ``k-means++``.
        solver: solver of ICG's assignment problem, all of them exact: ``transport``, ``matching``
            (scipy), ``flow`` (OR-Tools).
        privacy: how a client makes its histogram private before it sends it.
        epsilon: privacy budget.
        migration: with a detector, clients whose labels drifted send their histogram again.

    Models: one.

    Source: Zeng et al., Heterogeneous Federated Learning via Grouped Sequential-to-Parallel
    Training (2022).

    Example:
        >>> fedgsp(kappa=0.5).needs
        ('statistics', 'chains', 'class_labels', 'all_clients')
    """
    rule = Growing(
        Histograms(privacy, epsilon),
        growth,
        alpha,
        beta,
        kappa,
        leftover,
        normalize,
        EqualKMeans(iterations, init, solver),
    )
    # Evenly over the groups that trained. Alg. 1 l. 14 divides by f(r), of which only the share
    # kappa trained: the model would shrink by kappa in every round (erratum P12).
    return Method(
        migrating(rule, migration),
        weigh=evenly,
        needs=("statistics", "chains", "class_labels", "all_clients"),
    )
