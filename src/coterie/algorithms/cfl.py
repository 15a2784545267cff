"""CFL: Sattler et al., Clustered Federated Learning: Model-Agnostic Distributed Multi-Task
Optimization (2020)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.config.arguments import validated
from coterie.methods.method import Method
from coterie.objectives import plain
from coterie.rules.bipartition import Bipartition, Halving
from coterie.rules.migration import Migration, drifting


@validated
def cfl(
    eps1: Annotated[float, Field(ge=0)] = 0.4,
    eps2: Annotated[float, Field(ge=0)] = 1.6,
    after: Annotated[int, Field(ge=0)] = 20,
    linkage: Halving = "single",
    gamma_max: Annotated[float, Field(ge=0, le=1)] | None = None,
    max_age: Annotated[int, Field(ge=0)] | None = None,
    migration: Migration = "none",
    tau: Annotated[float, Field(ge=0)] = 0.2,
) -> Method:
    """CFL: one cluster that splits in two, and so do its parts, wherever the mean update is short
    and single ones long.

    Split where ``|sum p_i D_i| < eps1`` and ``max |D_i| > eps2``, into the halves with the least
    largest cosine across.

    Args:
        eps1: the mean update of a cluster is short below this; it scales with the learning rate and
            the epochs.
        eps2: the longest update is long above this.
        after: rounds at the start in which nothing splits.
        linkage: ``single`` is the optimal bipartition (the paper), ``complete`` the released code.
        gamma_max: with a number, split only if ``sqrt((1 - alpha_cross) / 2) > gamma_max``.
        max_age: with a number, split only when every member there has sent an update in so many
            rounds.
        migration: with a detector, clients whose data drifted descend the tree of splits anew.
        tau: threshold of the detector, as a share of a client's data.

    Example:
        >>> cfl(eps1=0.1).groups
        1
    """
    rule = Bipartition(plain, eps1, eps2, after, linkage, gamma_max, max_age)
    return Method(drifting(rule, migration, tau), recluster=rule.recluster)
