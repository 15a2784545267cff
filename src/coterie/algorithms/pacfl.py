"""PACFL: Vahidian et al., Efficient Distribution Similarity Identification in Clustered Federated
Learning (2023)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from coterie.config.arguments import validated
from coterie.math.clustering import Automatic
from coterie.math.group_count import GroupCount
from coterie.methods.method import Method
from coterie.rules.migration import Detector, Migration, migrating
from coterie.rules.one_shot import OneShot, fixed_groups
from coterie.rules.signatures import Angle, Subspace


@validated
def pacfl(
    # The authors' script for CIFAR-10. Their text has the principal angle between spans; their code
    # has the smallest angle between single vectors, and WPGMA for "average".
    vectors: Annotated[int, Field(ge=1)] = 3,
    angle: Angle = "entry_min",
    threshold: Annotated[float, Field(gt=0, le=180)] | Automatic = "auto",
    groups: GroupCount | None = None,
    linkage: Literal["weighted", "average", "complete", "single"] = "weighted",
    migration: Detector | Migration = "none",
) -> Method:
    """PACFL: clusters clients by the subspaces of their data, before any training.

    Clients send the leading directions of their data once; clients at small angles train together.

    ``U_i`` holds the first ``p`` left singular vectors of the client's samples of each class, and
    ``A_ij`` is the smallest angle between ``U_i`` and ``U_j`` in degrees. Agglomerative clustering
    of ``A`` forms the clusters, and each runs FedAvg from ``w_0``. A newcomer joins the nearest
    cluster, or opens a new one if that is farther than the threshold.

    Args:
        vectors: number ``p`` of singular vectors per class.
        angle: ``entry_min``: between single vectors, as in the reference code; ``principal``:
            between their spans.
        threshold: largest angle in degrees at which clusters are merged (the code's script for
            CIFAR-10 has 4.9); ``gap``: found by the largest gap; ``auto``: the same, or by
            silhouettes if no gap is wide enough.
        groups: number of groups, in place of a threshold; ``auto`` is the same as ``None``: the
            threshold decides.
        linkage: how clusters are merged; ``weighted`` (WPGMA) is what the code calls average.
        migration: with a detector, clients whose data drifted send their directions again.

    Raises:
        ConfigError: if both a number of groups and a threshold are set; in the first round, for
            more groups than clients.

    Models: one per group; their number is determined by a threshold.

    Source: Vahidian et al., Efficient Distribution Similarity Identification in Clustered Federated
    Learning via Principal Angles Between Client Data Subspaces (2023).

    Example:
        >>> pacfl(threshold=4.9).assign.threshold
        4.9
    """
    rule = OneShot(Subspace(vectors, angle), linkage, threshold, fixed_groups(groups))
    return Method(migrating(rule, migration), needs=("statistics", "class_labels"))
