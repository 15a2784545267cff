"""FLUX: Fenoglio et al., FLUX: Efficient Descriptor-Driven Clustered Federated Learning under
Arbitrary Distribution Shifts (2025)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import NO_GROUP, Describe, Groups, IntArray, Plan
from coterie.math.clustering import agglomerate
from coterie.math.cuts import adaptive_radius
from coterie.math.distances import l2
from coterie.math.group_count import GroupCount
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients, everyone
from coterie.rules.descriptors import ask_descriptors, centroid_distances, scaled
from coterie.rules.migration import Detector, Migration, migrating
from coterie.rules.one_shot import SHOWN, fixed_groups
from coterie.rules.signatures import SignatureMemory


@dataclass(frozen=True)
class DescriptorGroups(PlacesClients):
    """Assign rule: FedAvg at first, then groups of clients with like descriptors of their data; the
    fields are the arguments of `flux`."""

    after: int
    dimensions: int | None
    eps_scaling: float
    groups: int | None

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        notes: Counter[str] = Counter()
        memory = groups.memory.get(SignatureMemory)
        if memory is None and round.number < self.after:
            return everyone(groups, round)
        if memory is None:
            groups = self._start(groups, round.of("signatures"), notes)
        else:
            groups = self._place(groups, memory, round.of("newcomers"), notes)
        cohort = round.cohort[groups.member[round.cohort] >= 0]
        return groups, Plan(cohort, groups.member[cohort], notes=notes)

    def _start(self, groups: Groups, round: Round, notes: Counter[str]) -> Groups:
        """The groups of all clients; where too few replies were received, nothing changes."""
        asked = round.trainable(len(groups.member))
        # Until now there was one model, which all clients are described by.
        ids, rows = self._ask(groups.models[0], asked, round)
        if len(ids) < round.least_replies:
            notes["unclustered"] = 1
            return groups
        notes["cold_start"] = len(ids)
        groups = self._cluster(groups, ids, rows)
        notes["groups"] = groups.k
        return groups

    def _place(
        self, groups: Groups, memory: SignatureMemory, round: Round, notes: Counter[str]
    ) -> Groups:
        """Clients of the cohort without a group in the groups with the nearest mean descriptor."""
        new = round.cohort[groups.member[round.cohort] < 0]
        if not len(new):
            return groups
        ids, rows = self._ask(memory.origin, new, round)
        notes["newcomers"] = len(ids)
        return groups.with_members(ids, centroid_distances(memory, groups.k, rows).argmin(axis=1))

    def _ask(self, model: Tensor, ids: IntArray, round: Round) -> tuple[IntArray, Tensor]:
        """Who replied, and their descriptors, float32 ``[n, 2 + 2c, l]``."""
        reply = ask_descriptors(model, ids, round, self.dimensions)
        return reply.ids, torch.from_numpy(reply.fields["latent"]).to(torch.float32)

    def _cluster(self, groups: Groups, ids: IntArray, rows: Tensor) -> Groups:
        """Groups of these clients, which all start from the model they were described by."""
        distance = l2(scaled(rows, rows))
        if self.groups is None:
            # With two points a core, DBSCAN's clusters are those of single linkage cut at the
            # radius, and its noise, which FLUX takes as clusters of one, are its single points.
            radius = self.eps_scaling * adaptive_radius(distance)
            found = agglomerate(distance, "single", radius)
        else:
            found = agglomerate(distance, "ward", count=self.groups)
        clients = len(groups.member)
        member = np.full(clients, NO_GROUP)
        member[ids] = found.labels
        kept = rows.new_zeros(clients, *rows.shape[1:])
        kept[torch.from_numpy(ids)] = rows
        shown = None
        if len(ids) <= SHOWN:
            shown = distance
        threshold = float(found.threshold)
        origin = groups.models[0]
        memory = SignatureMemory(origin, kept, member, threshold, found.tree, ids, shown)
        return replace(groups.select([0] * found.count), member=member).remember(memory)

    @property
    def places_by_inputs(self) -> bool:
        """See `PlacesUnlabelled`."""
        return True

    def ask_unlabelled(self, groups: Groups) -> tuple[Describe, Tensor] | None:
        memory = groups.memory.get(SignatureMemory)
        if memory is None:
            return None
        work = Describe("latent", vectors=memory.signature.shape[2], labelled=False)
        return work, memory.origin

    def place_unlabelled(self, groups: Groups, rows: Tensor) -> IntArray:
        memory = groups.memory.get(SignatureMemory)
        assert memory is not None, "clients without labels come after the clustering"
        return centroid_distances(memory, groups.k, rows).argmin(axis=1)


@validated
def flux(
    warmup_rounds: Annotated[int, Field(ge=0)] = 3,
    dimensions: Annotated[int, Field(ge=1)] | None = None,
    eps_scaling: Annotated[float, Field(gt=0)] = 1.0,
    groups: GroupCount | None = None,
    migration: Detector | Migration = "none",
) -> Method:
    """FLUX: clusters clients by moments of their data under a first model. Newcomers need no labels.

    It needs no number of groups. After ``warmup_rounds`` rounds of FedAvg each client sends, once,
    the mean and the standard deviation of its samples in the latent space of the joint model, of
    all samples and of each class, in a few random directions. Each kind of moment is scaled to 0..1
    over the clients, and DBSCAN clusters them within ``eps``, the knee of the distances to the
    nearest neighbour. FedAvg then runs in each cluster. A newcomer joins the cluster with the
    nearest mean; without labels, only the moments of all its samples are compared.

    Args:
        warmup_rounds: rounds of FedAvg before the clustering.
        dimensions: number ``l`` of random directions; ``None``: the number of classes.
        eps_scaling: factor of the radius ``eps``.
        groups: number of groups, in place of ``eps``, by Ward's linkage; ``auto`` is the same as
            ``None``.
        migration: with a detector, clients whose data drifted are placed again.

    Raises:
        ConfigError: in the clustering round, for a network without a dense layer.

    Models: one per group; their number is determined by density.

    Source: Fenoglio et al., FLUX: Efficient Descriptor-Driven Clustered Federated Learning under
    Arbitrary Distribution Shifts (2025).

    Example:
        >>> flux(warmup_rounds=5).assign.after
        5
    """
    rule = DescriptorGroups(warmup_rounds, dimensions, eps_scaling, fixed_groups(groups))
    return Method(migrating(rule, migration), needs=("statistics", "class_labels"))
