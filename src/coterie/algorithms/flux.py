"""FLUX: Fenoglio et al., FLUX: Efficient Descriptor-Driven Clustered Federated Learning under
Arbitrary Distribution Shifts (2025)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.config.arguments import validated
from coterie.config.tables import Detector
from coterie.math.group_count import GroupCount
from coterie.methods.method import Method
from coterie.rules.descriptors import DescriptorGroups
from coterie.rules.group_count import fixed_groups
from coterie.rules.migration import Migration, migrating


@validated
def flux(
    warmup_rounds: Annotated[int, Field(ge=0)] = 3,
    dimensions: Annotated[int, Field(ge=1)] | None = None,
    eps_scaling: Annotated[float, Field(gt=0)] = 1.0,
    groups: GroupCount | None = None,
    migration: Detector | Migration = "none",
) -> Method:
    """FLUX: clusters clients by moments of their data under a first model. Newcomers need no labels.

    It needs no number of groups. After ``warmup_rounds`` rounds of FedAvg each client sends, once, the mean and the standard
    deviation of what the joint model makes of its samples, of all and of each class, in a few
    random directions. Each kind of moment is scaled to 0..1 over the clients, and DBSCAN clusters
    them within ``eps``, the knee of the distances to the nearest neighbour. Then FedAvg per
    cluster. A newcomer joins the cluster with the nearest mean; one without labels by the moments
    of all its samples alone.

    Args:
        warmup_rounds: rounds of FedAvg before the clustering.
        dimensions: random directions ``l``; ``None``: the number of classes.
        eps_scaling: what the radius ``eps`` is multiplied by.
        groups: a number of groups instead, by Ward's linkage; ``auto`` is ``None``.
        migration: with a detector, clients whose data drifted are placed anew.

    Raises:
        ConfigError: in the clustering round for a network without a dense layer.

    Models: one per group, their number by density.

    Source: Fenoglio et al., FLUX: Efficient Descriptor-Driven Clustered Federated Learning under
    Arbitrary Distribution Shifts (2025).

    Example:
        >>> flux(warmup_rounds=5).assign.after
        5
    """
    rule = DescriptorGroups(warmup_rounds, dimensions, eps_scaling, fixed_groups(groups))
    return Method(migrating(rule, migration), counts_classes=True, reads=("statistics",))
