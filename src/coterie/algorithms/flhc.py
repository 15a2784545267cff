"""FL+HC: Briggs et al., Federated Learning with Hierarchical Clustering of Local Updates (2020)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from coterie.config.arguments import validated
from coterie.math.group_count import GroupCount
from coterie.methods.method import Method
from coterie.rules.migration import Detector, Migration, migrating
from coterie.rules.one_shot import OneShot, Threshold, fixed_groups
from coterie.rules.signatures import Metric, TrainedUpdate


@validated
def flhc(
    # The rounds and the metric that the authors recommend.
    warmup_rounds: Annotated[int, Field(ge=0)] = 10,
    epochs: Annotated[int, Field(ge=1)] | None = 3,
    metric: Metric = "l1",
    linkage: Literal["complete", "average", "single"] = "complete",
    threshold: Threshold = "auto",
    groups: GroupCount | None = None,
    migration: Detector | Migration = "none",
) -> Method:
    """FL+HC: runs FedAvg first, then clusters the updates of all clients once.

    After ``warmup_rounds`` rounds of FedAvg all clients train the joint model.

    The updates ``w_i - w`` are clustered once by their distances; each cluster continues with
    FedAvg from the joint model ``w``. A newcomer trains that same ``w`` and joins the nearest
    cluster.

    Args:
        warmup_rounds: rounds of FedAvg before clustering, ``n``.
        epochs: local epochs of the training that is clustered; ``None``: the run's.
        metric: ``l1`` (Manhattan), ``l2`` or ``cosine``.
        linkage: how clusters are merged.
        threshold: ``T``, the largest distance at which clusters are merged; ``gap``: found by the
            largest gap; ``auto``: the same, or by silhouettes if no gap is wide enough.
        groups: number of groups, in place of a threshold; ``auto`` is the same as ``None``: the
            threshold decides.
        migration: with a detector, clients whose data drifted send their update again.

    Raises:
        ConfigError: if both a number of groups and a threshold are set; in the first round, for
            more groups than clients.

    Models: one per group; their number is determined by a threshold.

    Source: Briggs et al., Federated Learning with Hierarchical Clustering of Local Updates to
    Improve Training on Non-IID Data (2020).

    Example:
        >>> flhc(warmup_rounds=5, metric="l2", threshold=3.0).assign.after
        5
    """
    rule = OneShot(
        TrainedUpdate(epochs, metric=metric),
        linkage,
        threshold,
        fixed_groups(groups),
        warmup_rounds,
    )
    return Method(migrating(rule, migration), needs=("start", "newcomers"))
