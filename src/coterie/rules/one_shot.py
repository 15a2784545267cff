"""One-shot grouping: every client sends a signature once, and the server clusters them (FedClust,
PACFL, FL+HC)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from coterie.clients.round import Round
from coterie.core import NO_GROUP, BoolArray, Describe, FloatArray, Groups, IntArray, Key, Plan
from coterie.errors import ConfigError
from coterie.math.clustering import (
    Automatic,
    Clusters,
    Linkage,
    agglomerate,
    cut_without_few,
    large_clusters,
)
from coterie.math.cuts import GAP, largest_gap, widest_gap
from coterie.math.group_count import (
    GroupCount,
    enough_samples,
    estimate_groups,
    estimate_notes,
)
from coterie.math.outliers import outliers
from coterie.math.similarity import Matrix
from coterie.rules.assigning import PlacesClients, everyone
from coterie.rules.cold_start import Outliers, enough_to_count
from coterie.rules.signatures import (
    LargeFederation,
    Signature,
    SignatureMemory,
    Signatures,
    Subspace,
    ask_shortened,
    ask_signatures,
    blocks_of,
    signature_distances,
)

Threshold = Annotated[float, Field(gt=0)] | Automatic
# Groups that are reckoned with where their number is open.
SEVERAL = 4
# The most groups that are counted, and the clients that are enough for it: it takes the cube of
# their number.
MOST_COUNTED = 8
COUNTED = 1024
# Clients whose distances are kept for the report's heat map; it grows with their square.
SHOWN = 500


@dataclass(frozen=True)
class OneShot(PlacesClients):
    """Assign rule: one round in which all clients send a signature and are clustered; then
    newcomers are placed as they come.

    A newcomer sends its signature, too, and joins the nearest cluster. Beyond the threshold it
    opens a group; newcomers of one round that are similar share it. Groups start from the model
    that the signatures were made with. A client whose signature was not received, or is zero
    throughout, has no group until it is asked again.

    Args:
        signature: what is asked for.
        linkage: how clusters are merged.
        threshold: ``lambda``; ``gap``: the largest one (``cuts.largest_gap``); ``auto``: the same, and
            silhouettes where no gap is wide enough (``cuts.silhouette_count``). Where these leave all
            but a few clients in one cluster, the few are set aside (`cut_without_few`);
            they join the nearest cluster.
        groups: number of groups instead of a threshold; newcomers then never open one. ``auto``:
            counted from the directions of the signatures, as FedGroup does, and distances are then
            those of directions. Clients with few samples have no part in the count and the tree;
            they join the nearest cluster, and never open one.
        after: rounds of FedAvg before; newcomers train in it as all clients do.
        outliers: ``leave_out``: clients whose signature is far from all others have no part in the
            tree, whose gaps they would decide; they join the nearest cluster.
        large: what is done where there are many clients.
    """

    signature: Signature
    linkage: Linkage = "average"
    threshold: float | Automatic = "auto"
    groups: GroupCount | None = None
    after: int = 0
    outliers: Outliers = "keep"
    large: LargeFederation = LargeFederation()

    def __post_init__(self) -> None:
        if self.groups is not None and self.threshold != "auto":
            what = "both a number of groups and a threshold"
            got = f"{self.groups} and {self.threshold}"
            expected = "one of them"
            raise ConfigError("in-conflict", "algorithm.groups", what, found=got, allowed=expected)

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        notes: Counter[str] = Counter()
        found: dict[str, float | str | None] = {}
        memory = groups.memory.get(SignatureMemory)
        if memory is None:
            self._check_groups(self.large.tree_size(len(groups.member)))
            if round.number < self.after:
                return everyone(groups, round)
            groups = self._cluster(groups, round.of("signatures"), notes)
            memory = groups.memory.get(SignatureMemory)
            if memory is not None:
                found = {"groups": groups.k, "threshold": _finite(memory.threshold)}
                if self._counts:
                    found |= estimate_notes(groups.k, len(groups.member))
                elif self._is_automatic:
                    found |= cut_notes(memory.tree[:, 2], groups.k, notes["outliers"])
        else:
            cohort = round.cohort
            new = cohort[(groups.member[cohort] < 0) | (memory.cluster[cohort] < 0)]
            if len(new):
                groups = self._place(groups, memory, new, round.of("newcomers"), notes)
        ids = round.cohort[groups.member[round.cohort] >= 0]
        return groups, Plan(ids, groups.member[ids], notes={**notes, **found})

    @property
    def _counts(self) -> bool:
        return self.groups == "auto"

    @property
    def _number(self) -> int | None:
        """The number of groups that was asked for, if one was."""
        if isinstance(self.groups, int):
            return self.groups
        return None

    @property
    def _is_automatic(self) -> bool:
        """Whether the signatures decide how many groups there are."""
        return self._number is None and isinstance(self.threshold, str)

    def _check_groups(self, clients: int) -> None:
        if self._number is not None and self._number > clients:
            what = "more groups than clients to cluster"
            expected = f"1 to {clients}"
            got = self.groups
            raise ConfigError("out-of-range", "algorithm.groups", what, found=got, allowed=expected)

    def _cluster(self, groups: Groups, round: Round, notes: Counter[str]) -> Groups:
        """The clusters of all signatures; where too few were received, nothing changes."""
        every = round.trainable(len(groups.member))
        trainable = self.large.draw(every, round)
        sampled = len(trainable) < len(every)
        # Before the clustering there is one model.
        received = self._ask(groups.models[0], trainable, round, notes, sampled)
        least = round.least_replies
        if self._is_automatic:
            # The largest gap between merges means nothing among three clients.
            least = enough_to_count(round, trainable)
        if len(received.ids) < least:
            notes["unclustered"] = 1
            return groups
        groups = self._form(groups, received, round, notes, sampled)
        if not sampled or self.large.ask == "sample":
            return groups
        return self._place_others(groups, np.setdiff1d(every, trainable), round, notes)

    def _place_others(
        self, groups: Groups, others: IntArray, round: Round, notes: Counter[str]
    ) -> Groups:
        """The clients that had no part in the tree."""
        # A block at a time: a million signatures, or distances to them, do not fit into memory.
        for block in blocks_of(others, self.signature.work(round), groups.models.shape[1]):
            memory = groups.memory.get(SignatureMemory)
            assert memory is not None
            groups = self._place(groups, memory, block, round, notes)
        notes["cold_start"] += notes.pop("newcomers", 0)
        return groups

    def _form(
        self, groups: Groups, received: Signatures, round: Round, notes: Counter[str], sampled: bool
    ) -> Groups:
        """The groups of these clients by their signatures."""
        clients = len(groups.member)
        origin = groups.models[0]
        proximity = self.signature.distance(received.rows)
        found, formed = self._cut(received, proximity, round.key.of("count"))
        later = received.of(~formed)
        received = received.of(formed)
        least = float(received.size.min()) if self._counts else 0.0
        far = int((later.size >= least).sum())
        if far:
            notes["outliers"] = far
        proximity = _among(proximity, formed)
        ids = received.ids
        notes["cold_start"] = len(ids)
        member = np.full(clients, NO_GROUP)
        member[ids] = found.labels
        signature = received.rows
        if not sampled:
            signature = signature.new_zeros(clients, *signature.shape[1:])
            signature[torch.from_numpy(ids)] = received.rows
        memory = SignatureMemory(
            origin,
            signature,
            member,
            float(found.threshold),
            found.tree,
            ids,
            proximity if len(ids) <= SHOWN else None,
            ids if sampled else None,
            least,
        )
        groups = groups.select([0] * found.count)
        groups = replace(groups, member=member).remember(memory)
        if not len(later.ids):
            return groups
        # At any distance: a far client that opened a group would be alone with its model.
        distance = self._distances(memory, groups.k, later.rows)
        opened = np.zeros(len(later.ids), bool)
        return self._join(groups, memory, later, distance.argmin(axis=1), opened)

    def _cut(self, received: Signatures, proximity: Matrix, key: Key) -> tuple[Clusters, BoolArray]:
        """The clusters, and the clients that form them, bool ``[n]``."""
        formed = np.ones(len(received.ids), bool)
        if self._counts:
            formed = enough_samples(received.size)
        if self.outliers == "leave_out":
            rows = received.of(formed).rows
            clusters = self._number or SEVERAL
            formed[formed] = ~outliers(rows, _among(proximity, formed), clusters)
        proximity = _among(proximity, formed)
        if self._counts:
            count = _count(received.of(formed).rows, key)
            least = max(2, len(proximity) // (4 * MOST_COUNTED))
            found, aside = large_clusters(proximity, self.linkage, count, least)
        elif self._is_automatic:
            assert isinstance(self.threshold, str)
            found, aside = cut_without_few(proximity, self.linkage, self.threshold)
        else:
            return agglomerate(proximity, self.linkage, self.threshold, self._number), formed
        formed[formed] = ~aside
        return found, formed

    def _ask(
        self, origin: Tensor, ids: IntArray, round: Round, notes: Counter[str], sampled: bool
    ) -> Signatures:
        """The signatures that were received, shortened where a sample makes the tree, and their
        directions where these are counted."""
        if sampled and self.signature.projects:
            received = ask_shortened(self.signature, self.large, origin, ids, round, notes)
        else:
            received = ask_signatures(self.signature, origin, ids, round, notes)
        if not self._counts:
            return received
        # Clients with more samples take more steps, so lengths say how many, and not of which kind.
        # In float64 the square of no value is zero.
        rows = normalize(received.rows.to(torch.float64), dim=1, eps=0.0)
        return replace(received, rows=rows.to(torch.float32))

    def _place(
        self,
        groups: Groups,
        memory: SignatureMemory,
        new: IntArray,
        round: Round,
        notes: Counter[str],
    ) -> Groups:
        """Newcomers to their nearest clusters; those beyond the threshold are clustered among
        themselves, and each cluster opens a group."""
        received = self._ask(memory.origin, new, round, notes, memory.kept is not None)
        if not len(received.ids):
            return groups
        notes["newcomers"] += len(received.ids)
        distance = self._distances(memory, groups.k, received.rows)
        # With a fixed number of groups the nearest one is always near enough, and for a client
        # whose few samples say little of its place.
        level = memory.threshold
        if self._number is not None:
            level = np.inf
        nearest = distance.min(axis=1)
        near = (nearest <= level) | (received.size < memory.least_samples)
        # Infinite where no group has a signature left to compare with.
        joins = np.isfinite(nearest) & near
        joined = distance.argmin(axis=1)
        if not joins.all():
            among_themselves = self.signature.distance(received.of(~joins).rows)
            opened = agglomerate(among_themselves, self.linkage, level, self._number)
            joined[~joins] = groups.k + opened.labels
            notes["opened"] += opened.count
            groups = _open(groups, memory.origin, opened.count)
        return self._join(groups, memory, received, joined, ~joins)

    @property
    def places_by_inputs(self) -> bool:
        """See `PlacesUnlabelled`: not by signatures that are trained, which needs labels."""
        return isinstance(self.signature, Subspace)

    def ask_unlabelled(self, groups: Groups) -> tuple[Describe, Tensor] | None:
        """See `PlacesUnlabelled`."""
        memory = groups.memory.get(SignatureMemory)
        if memory is None:
            return None
        assert isinstance(self.signature, Subspace), "other signatures are trained"
        # The directions of all samples together, as if they were of one class.
        features = memory.signature.shape[1]
        vectors = self.signature.vectors
        return Describe("subspace", 1, features, vectors, labelled=False), memory.origin

    def place_unlabelled(self, groups: Groups, rows: Tensor) -> IntArray:
        """See `PlacesUnlabelled`: the nearest group, at any distance, since a new one would have no
        model."""
        memory = groups.memory.get(SignatureMemory)
        assert memory is not None, "clients without labels come after the clustering"
        return self._distances(memory, groups.k, rows).argmin(axis=1)

    def _join(
        self,
        groups: Groups,
        memory: SignatureMemory,
        received: Signatures,
        joined: IntArray,
        opened: BoolArray,
    ) -> Groups:
        """These clients in these groups, for which their signatures stand from now on."""
        memory = memory.with_clients(received.ids, received.rows, joined, opened)
        return groups.with_members(received.ids, joined).remember(memory)

    def _distances(self, memory: SignatureMemory, k: int, rows: Tensor) -> Matrix:
        """``[n, k]``: newcomers to the groups, by the stored signatures of each."""
        return signature_distances(memory, self.signature, self.linkage, k, rows)


def _among(proximity: Matrix, chosen: BoolArray) -> Matrix:
    """The distances among some clients."""
    if chosen.all():
        return proximity
    return proximity[np.ix_(chosen, chosen)]


def _count(rows: Tensor, key: Key) -> int:
    """The number of groups among directions."""
    if len(rows) > COUNTED:
        chosen = key.of("chosen").generator().choice(len(rows), COUNTED, replace=False)
        rows = rows[torch.from_numpy(np.sort(chosen))]
    return estimate_groups(rows, MOST_COUNTED, key)


def _open(groups: Groups, origin: Tensor, count: int) -> Groups:
    """More groups, from the model that the signatures were made with, and without rows of a server
    optimiser."""
    return replace(groups, models=torch.cat([groups.models, origin.repeat(count, 1)]))


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    if np.isfinite(value):
        return value
    return None


def fixed_groups(groups: GroupCount | None) -> int | None:
    """The number of groups that was asked for; ``auto`` is none: the threshold decides.

    Example:
        >>> fixed_groups(3), fixed_groups("auto")
        (3, None)
    """
    if groups == "auto":
        return None
    return groups


# --- notes of an automatic cut --------------------------------------------------------------------


# Fewer clients have no gap to judge by.
_LEAST_TO_CUT = 4


def cut_notes(heights: FloatArray, groups: int, aside: int = 0) -> dict[str, str]:
    """The line of a round's notes that explains why no gap was cut, and who had no part in the cut;
    empty where a gap of all clients was.

    Args:
        heights: float64 ``[n-1]``, the distances of the merges, ascending.

    Example:
        >>> import numpy as np
        >>> heights = np.array([1.0, 1.5, 6.0, 7.0, 7.5])
        >>> cut_notes(heights, 3)
        {}
        >>> cut_notes(heights, 3, aside=1)["grouping"]
        '3 groups found without 1 client that is far from all others'
        >>> cut_notes(np.array([7.0, 7.1, 7.2, 7.3, 7.4]), 2)["grouping"]
        '2 groups found by silhouettes: no gap between merges is 10 % of the last, 7.4 (largest: 1.4 %)'
    """
    lines = []
    if aside:
        clients = "1 client that is"
        if aside != 1:
            clients = f"{aside} clients that are"
        found = "one group"
        if groups != 1:
            found = f"{groups} groups"
        lines.append(f"{found} found without {clients} far from all others")
    last = float(heights.max(initial=0))
    if groups == 1 or largest_gap(heights) >= last:
        lines.append(_without_gap(heights, groups, last))
    if not lines:
        return {}
    return {"grouping": "; ".join(lines)}


def _without_gap(heights: FloatArray, groups: int, last: float) -> str:
    gap = widest_gap(heights)
    if groups > 1:
        return (
            f"{groups} groups found by silhouettes: no gap between merges is "
            f"{100 * GAP:.0f} % of the last, {last:.4g} (largest: {100 * gap:.1f} %)"
        )
    return f"one group found: {_why_one(heights, last, gap)}"


def _why_one(heights: FloatArray, last: float, gap: float) -> str:
    if last == 0:
        return "all clients sent equal values"
    expected = f"if you expect groups, set groups, or a threshold below {last:.4g}"
    if len(heights) + 1 < _LEAST_TO_CUT:
        return f"an automatic threshold needs {_LEAST_TO_CUT} clients; {expected}"
    return (
        f"the largest gap between merges is {100 * gap:.1f} % of the last merge distance "
        f"({last:.4g}), but {100 * GAP:.0f} % is needed; {expected}"
    )
