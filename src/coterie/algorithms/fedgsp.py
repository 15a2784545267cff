"""FedGSP: Zeng et al., Heterogeneous Federated Learning via Grouped Sequential-to-Parallel Training
(2022)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.config.arguments import validated
from coterie.core.work import Epsilon
from coterie.math.balanced import Growth, Init, Leftover
from coterie.math.transport import Exact
from coterie.methods.method import Method
from coterie.rules.chains import Growing, Histograms, Privacy
from coterie.rules.migration import Migration, drifting
from coterie.rules.weighing import evenly


@validated
def fedgsp(
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
    migration: Migration = "none",
    tau: Annotated[float, Field(ge=0)] = 0.2,
) -> Method:
    """FedGSP: sequential inside groups that look alike, parallel over groups, whose number grows
    (Alg. 1).

    ``w <- 1/s sum_m w_m`` over the ends ``w_m`` of ``s = kappa f(r)`` chains out of ``f(r)`` groups
    (erratum P12). The groups are new in every round, by inter-cluster grouping of the clients'
    label histograms (Alg. 2). The method draws its clients itself, ``clients_per_round`` does not
    matter; the paper trains one local epoch: ``local.epochs = 1``.

    Args:
        growth: ``log``, ``linear`` or ``exp``, see ``grouping.balanced.grow``.
        alpha: growth rate.
        beta: first number of groups and span of growth.
        kappa: share of the groups that train in a round.
        leftover: clients that ICG has no place for: ``idle`` this round, ``append`` to groups, or
            ``exact`` clusters.
        normalize: compare class shares instead of counts.
        iterations: of ICG, ``tau`` of the paper.
        init: where ICG's centroids start, ``random`` or ``k-means++``.
        solver: of ICG's assignment, all exact: ``transport``, ``matching`` (scipy), ``flow``
            (OR-Tools).
        privacy: how a client makes its histogram private before it sends it.
        epsilon: privacy budget.
        migration: with a detector, clients whose labels drifted are described anew.
        tau: threshold of the detector.

    Example:
        >>> fedgsp(kappa=0.5).samples
        True
    """
    rule = Growing(
        Histograms(privacy, epsilon),
        growth,
        alpha,
        beta,
        kappa,
        leftover,
        normalize,
        iterations,
        init,
        solver,
    )
    return Method(drifting(rule, migration, tau), weigh=evenly, samples=True)
