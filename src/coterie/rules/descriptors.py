"""Groups of clients with like descriptors of their data (FLUX)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.core.arrays import IntArray
from coterie.core.describe import Describe
from coterie.core.engine import Reply
from coterie.core.groups import NO_GROUP, Groups
from coterie.core.plan import Plan
from coterie.math.clustering import agglomerate
from coterie.math.density import adaptive_radius
from coterie.math.distances import l2
from coterie.math.similarity import Matrix
from coterie.rules.assigning import PlacesClients
from coterie.rules.one_shot import SHOWN
from coterie.rules.signatures import SignatureMemory
from coterie.rules.single_group import everyone


def scaled(rows: Tensor, reference: Tensor) -> Tensor:
    """Descriptors as vectors, each block of which is scaled to what it spans in a reference.

    ``(v - min) / (max - min)`` with one minimum and one maximum for each kind of moment, over all
    clients and directions of the reference.

    Args:
        rows: ``[n, b, l]``, the first ``b`` blocks of some descriptors.
        reference: ``[s, B, l]`` with ``B >= b``, at least one.

    Returns:
        float64 ``[n, b l]``.

    Example:
        >>> scaled(torch.tensor([[[3.0, 1.0]]]), torch.tensor([[[1.0, 5.0], [0.0, 0.0]]])).tolist()
        [[0.5, 0.0]]
    """
    blocks = reference[:, : rows.shape[1]].to(torch.float64)
    low = blocks.amin(dim=(0, 2))[:, None]
    span = blocks.amax(dim=(0, 2))[:, None] - low
    # A block that is the same for all says nothing, whatever it is divided by.
    span = torch.where(span > 0, span, 1.0)
    return ((rows.to(torch.float64) - low) / span).flatten(1)


def centroid_distances(memory: SignatureMemory, k: int, rows: Tensor) -> Matrix:
    """How far descriptors are from the mean descriptor of each group.

    Args:
        memory: the descriptors that were clustered, ``[N, B, l]``, and the group of each.
        k: number of groups.
        rows: ``[n, b, l]``, the first ``b <= B`` blocks of other descriptors; only these are
            compared.

    Returns:
        float64 ``[n, k]``, infinite for a group without a descriptor.
    """
    known = np.flatnonzero(memory.cluster >= 0)
    stored = memory.signature[torch.from_numpy(known)]
    ours = scaled(stored[:, : rows.shape[1]], stored)
    theirs = scaled(rows, stored)
    distance = np.full((len(rows), k), np.inf)
    cluster: IntArray = memory.cluster[known]
    for group in np.unique(cluster):
        centroid = ours[torch.from_numpy(cluster == group)].mean(dim=0)
        distance[:, group] = l2(theirs, centroid[None])[:, 0]
    return distance


def ask_descriptors(
    model: Tensor, ids: IntArray, round: Round, dimensions: int | None, draws: int = 0
) -> Reply:
    """The descriptors of some clients by a model.

    Args:
        model: float32 ``[d]``.
        ids: int64 ``[n]``, the clients.
        round: its stream.
        dimensions: ``l``; ``None``: the number of classes ``c``.
        draws: random halves of a client's samples that are described, 0: all samples.

    Returns:
        Its field ``latent`` is float32 ``[n, 2 + 2c, l]``.
    """
    classes = round.clients.classes
    work = Describe("latent", classes, vectors=dimensions or classes, draws=draws)
    which = np.zeros(len(ids), np.int64)
    return round.clients.run(work, ids, model[None], which, key=round.key)


@dataclass(frozen=True)
class DescriptorGroups(PlacesClients):
    """Assign rule: FedAvg at first, then groups of clients with like descriptors of their data.

    Args:
        after: rounds of FedAvg.
        dimensions: of a descriptor's moments; ``None``: the number of classes.
        eps_scaling: what the radius is multiplied by.
        groups: a number of groups instead of a radius.
    """

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
        shown = distance if len(ids) <= SHOWN else None
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
