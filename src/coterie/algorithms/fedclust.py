"""FedClust: Islam et al., FedClust: Optimizing Federated Learning on Non-IID Data (2024)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from coterie.config.arguments import validated
from coterie.math.group_count import GroupCount
from coterie.methods.method import Method
from coterie.rules.cold_start import Outliers
from coterie.rules.migration import Detector, Migration, migrating
from coterie.rules.one_shot import OneShot, Threshold, fixed_groups
from coterie.rules.signatures import Ask, LargeFederation, SampleSize, SketchSize, TrainedUpdate


@validated
def fedclust(
    # Neither the linkage nor lambda is printed; the poster's source for clustering covers
    # all of these.
    linkage: Literal["average", "complete", "single", "ward"] = "average",
    threshold: Threshold = "auto",
    groups: GroupCount | None = None,
    layer: str = "final",
    bias: bool = True,
    warmup_epochs: Annotated[int, Field(ge=1)] | None = None,
    migration: Detector | Migration = "none",
    outliers: Outliers = "keep",
    sample: SampleSize = None,
    sketch: SketchSize = None,
    ask: Ask = "all",
) -> Method:
    """FedClust: clusters clients once, by the final layers of their trained models. It needs no
    number of groups.

    Clients upload their final layer after a short training. Then FedAvg runs in each cluster.

    With ``u_i`` the final layer of client ``i`` after training ``w_0``, ``P_ij = |u_i - u_j|_2``;
    agglomerative clustering of ``P`` gives the groups, each of which starts from ``w_0``. A
    newcomer does the same and joins the nearest cluster, or opens a new one if that is farther than
    ``lambda``.

    Args:
        linkage: how clusters are merged.
        threshold: ``lambda``, the largest distance at which clusters are merged; ``gap``: found by
            the largest gap; ``auto``: the groups are counted, at most eight, from the directions of
            the layers, by whose distances clients are then clustered.
        groups: number of groups, in place of a threshold; ``auto`` is the same as ``None``: the
            threshold decides.
        layer: ``final``, or the name of a layer or a tensor of the model.
        bias: whether the layer's bias is also uploaded.
        warmup_epochs: local epochs before the upload; ``None``: the run's.
        migration: with a detector, clients whose data drifted send their layer again.
        outliers: ``leave_out`` keeps clients that are far from all others out of the tree; they join
            the nearest cluster.
        sample: number of clients that form the tree; the others join the nearest cluster, or open a
            new one. ``None``: all clients if there are at most 10,000, otherwise 4,096.
        sketch: number of values to which longer layers are randomly projected if a sample forms the
            tree; ``None``: 512.
        ask: ``all`` clients upload their layer before the first round, or only the ``sample``; then
            each other client does when it is first selected.

    Raises:
        ConfigError: if both a number of groups and a threshold are set; in the first round, for a
            layer that the model lacks, or for more groups than clients.

    Models: one per group; their number is determined by a threshold.

    Source: Islam et al., FedClust: Optimizing Federated Learning on Non-IID Data through
    Weight-Driven Client Clustering (2024).

    Example:
        >>> fedclust(threshold=2.5).assign.threshold
        2.5
    """
    number: GroupCount | None = fixed_groups(groups)
    if number is None and threshold == "auto":
        number = "auto"
    # Groups start from w_0, the model of the signatures: of the rest of the trained models nothing
    # was uploaded that could be averaged.
    rule = OneShot(
        TrainedUpdate(warmup_epochs, layer, bias),
        linkage,
        threshold,
        number,
        outliers=outliers,
        large=LargeFederation(sample, sketch, ask),
    )
    return Method(migrating(rule, migration), needs=("start", "newcomers"))
