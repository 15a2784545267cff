"""Group cold start: clients that train briefly from the first model show the first groups.

Source: Duan et al., FedGroup (2021), Alg. 3; FlexCFL (2022) uses the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from coterie.clients.round import Round
from coterie.core import BoolArray, Groups, GrowingRecord, IntArray, Key, Reply, Train
from coterie.errors import ConfigError, QuorumError
from coterie.math.clustering import complete_linkage, kmeans
from coterie.math.distances import cosine_distance
from coterie.math.group_count import Auto, enough_samples, estimate_groups
from coterie.math.outliers import outliers
from coterie.math.similarity import edc_embedding, madc

Measure = Literal["edc", "madc"]
Pretrain = Literal["steps", "epochs", "continue"]
GroupInit = Literal["cluster_mean", "w0"]
Shortage = Literal["stop", "fewer"]
Outliers = Literal["keep", "leave_out"]


class ColdStartError(QuorumError):
    """Fewer distinct update directions were received than there are groups."""


# A number of groups that fewer clients than this show says nothing.
LEAST_REPLIES = 4


def enough_to_count(round: Round, trainable: IntArray) -> int:
    """The replies without which groups are not counted: four, or all clients where there are fewer,
    and never less than the quorum."""
    return max(round.least_replies, min(LEAST_REPLIES, len(trainable)))


@dataclass(frozen=True, slots=True)
class DirectionMemory(GrowingRecord):
    """What the cold start leaves behind, and what placing newcomers needs.

    Args:
        direction: float32 ``[k, d]``, the mean update of each cluster of the cold start.
        latest: float32 ``[k, d]``, the latest update of each group.
        auxiliary: float32 ``[d]``, the auxiliary model of the last round.
        random_group: bool ``[N]``, clients whose group was drawn at random (ablation RAC).
        equipped: bool ``[N]``, clients that hold ``w_0`` and the directions.
        seen: float32 ``[k, d]``, the models at the start of the last round.
    """

    record_name: ClassVar[str] = "direction"
    newcomer: ClassVar[Mapping[str, float]] = {"random_group": False, "equipped": False}
    direction: Tensor
    latest: Tensor
    auxiliary: Tensor
    random_group: BoolArray
    equipped: BoolArray
    seen: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Pretraining:
    """The short training by which a client shows its direction.

    Args:
        length: ``steps``: so many mini-batch steps; ``epochs``: all local epochs; ``continue``: one
            epoch, taken off this round's local epochs.
        steps: mini-batch steps with ``steps``.
    """

    length: Pretrain = "steps"
    steps: int = 50

    def work(self, round: Round) -> Train:
        """What a client is asked to do."""
        if self.length == "steps":
            return round.trial(steps=self.steps)
        if self.length == "epochs":
            return round.trial()
        return round.trial(epochs=1)


@dataclass(frozen=True)
class GroupColdStart:
    """Alg. 3: cluster the update directions of ``alpha * m`` clients.

    Args:
        groups: number of groups ``m``; ``auto``: counted from the directions of clients with enough
            samples; the others come later, as newcomers.
        alpha: ``alpha * m`` clients take part, with ``auto`` ``alpha * max_groups``.
        measure: ``edc`` with k-means++, or ``madc`` with complete linkage.
        pretraining: how clients show their direction.
        group_init: groups start from their cluster's mean model, or from ``w_0``.
        random_centres: the ablation RCC: ``m`` single clients are the clusters.
        on_shortage: stop, or form fewer groups, when too few directions were received.
        max_groups: largest number that ``auto`` finds.
        outliers: ``leave_out``: directions are made equally long, and those far from all others take
            no part in the clustering. Their clients come later, as newcomers.
    """

    groups: int | Auto
    alpha: int = 20
    measure: Measure = "edc"
    pretraining: Pretraining = Pretraining()
    group_init: GroupInit = "cluster_mean"
    random_centres: bool = False
    on_shortage: Shortage = "stop"
    max_groups: int = 8
    outliers: Outliers = "keep"

    def __post_init__(self) -> None:
        if self.groups == "auto" and self.random_centres:
            what = "the number of groups cannot be estimated from random cluster centres"
            expected = "a number with ablation = 'rcc'"
            raise ConfigError(
                "does-not-fit", "algorithm.groups", what, got="auto", allowed=expected
            )

    @property
    def first_models(self) -> int:
        """Models before the cold start; with ``auto`` one, of which it makes as many as it finds."""
        if self.groups == "auto":
            return 1
        return self.groups

    def form(self, groups: Groups, round: Round) -> Groups:
        """The first groups, ``w_0^(j) = w_0 + mean(delta)`` over the clients of cluster ``j``
        (erratum P1).

        With ``auto`` nothing changes while too few directions are received to count groups.

        Raises:
            ColdStartError: if too few distinct directions are received.
        """
        w0 = groups.first_model
        ids, delta, sizes, m = self._directions(groups, round)
        if len(ids) < self._least_directions(groups, round):
            return groups
        if self.groups == "auto":
            # The others join as newcomers.
            kept = enough_samples(sizes)
            ids = ids[kept]
            delta = delta[torch.from_numpy(kept)]
        ids, delta, m = self._without_outliers(ids, delta, m)
        if self.groups == "auto":
            m = min(m, estimate_groups(delta, self.max_groups, round.key.of("count")))
            groups = groups.select([0] * m)
        labels = self._cluster(delta, m, round.key.of("cluster"))
        direction = torch.zeros_like(groups.models)
        for j in range(m):
            cluster = delta[torch.from_numpy(labels == j)]
            # All clients alike, "Average" in Alg. 3, where rounds weigh by samples.
            direction[j] = cluster.to(torch.float64).mean(dim=0).to(torch.float32)
        if self.group_init == "cluster_mean":
            # Printed is w_0^(g) = mean(delta), of which l. 17 would take w_0 away once more
            # (erratum P1).
            groups = replace(groups, models=w0 + direction)
        groups = replace(groups, trained=np.zeros(groups.k, bool)).with_members(ids, labels)
        no_client = np.zeros(len(groups.member), bool)
        memory = DirectionMemory(direction, direction, w0, no_client, no_client)
        return groups.remember(memory)

    def _without_outliers(
        self, ids: IntArray, delta: Tensor, m: int
    ) -> tuple[IntArray, Tensor, int]:
        """The directions that are clustered, and how many groups they can form."""
        if self.outliers == "keep" or self.random_centres:
            return ids, delta, m
        near = ~outliers(delta, cosine_distance(delta), m)
        delta = delta[torch.from_numpy(near)]
        return ids[near], delta, min(m, len(_first_of_each(delta)))

    def _least_directions(self, groups: Groups, round: Round) -> int:
        """Directions without which ``auto`` counts nothing; 0 for a fixed number of groups."""
        if self.groups != "auto":
            return 0
        return enough_to_count(round, round.trainable(len(groups.member)))

    def _directions(self, groups: Groups, round: Round) -> tuple[IntArray, Tensor, IntArray, int]:
        """The updates of enough clients, the numbers of their samples, and how many groups they can
        form. Clients that do not answer are replaced by others while there are any."""
        trainable = round.trainable(len(groups.member))
        order = round.key.of("sample").generator().permutation(trainable)
        if self.groups == "auto":
            # One group is an answer, too: `auto` asks whether there are several.
            fewest = 1
            most = self.max_groups
        else:
            fewest = self.groups
            most = self.groups
        want = min(self.alpha * most, len(order))
        if self.random_centres:
            want = most
        least = self._least_directions(groups, round)
        work = self.pretraining.work(round)
        ids = np.empty(0, np.int64)
        sizes = np.empty(0, np.int64)
        delta = groups.models[:0]
        distinct = np.empty(0, np.int64)
        tried = 0
        # Distinct directions count: two clients with the same data, or a client that sends what
        # another sent, do not make two groups.
        while (len(distinct) < fewest or len(ids) < least) and tried < len(order):
            asked = np.sort(order[tried : tried + want])
            reply = round.clients.run(work, asked, groups.models[0], key=round.key)
            usable = has_direction(reply)
            ids = np.concatenate([ids, reply.ids[usable]])
            delta = torch.cat([delta, reply.rows(usable).delta])
            sizes = np.concatenate([sizes, reply.size[usable]])
            distinct = _first_of_each(delta)
            tried = tried + want
            want = most
        too_few = len(distinct) < fewest and self.on_shortage == "stop"
        if not least and (len(distinct) == 0 or too_few):
            raise _shortage(fewest, len(distinct), min(tried, len(order)), round)
        if self.random_centres:
            ids = ids[distinct[:most]]
            sizes = sizes[distinct[:most]]
            delta = delta[torch.from_numpy(distinct[:most])]
        # In client order, so that it does not matter in which request a client answered.
        sort = np.argsort(ids)
        return ids[sort], delta[torch.from_numpy(sort)], sizes[sort], min(most, len(distinct))

    def _cluster(self, delta: Tensor, m: int, key: Key) -> IntArray:
        """The cluster of each direction, int64 ``[n]``."""
        # There is one way only, and of two clients MADC is not defined (it divides by n - 2).
        if len(delta) == m or m == 1:
            return np.arange(len(delta)) % m
        if self.measure == "madc":
            return complete_linkage(madc(delta), m)
        if self.outliers == "leave_out":
            # The embedding is of singular vectors, which one long update would have to itself.
            delta = normalize(delta, dim=1)
        return kmeans(edc_embedding(delta, m), m, key)


def _shortage(groups: int, found: int, asked: int, round: Round) -> ColdStartError:
    # A user has to know whether clients were silent or were refused, and why.
    refused = sorted(round.clients.ledger.refused.items())
    reasons = ", ".join(f"{reason} {n}" for reason, n in refused) or "none"
    what = f"the cold start needs {groups} distinct update directions"
    got = f"{found} from {asked} clients; refused: {reasons}"
    expected = "as many as groups, or on_shortage = 'fewer'"
    return ColdStartError("too-few", "algorithm.groups", what, found=got, allowed=expected)


def has_direction(reply: Reply) -> BoolArray:
    """Which replies have a direction, bool ``[n]``: a zero update has none."""
    return (reply.fields["delta"] != 0).any(axis=1)


def _first_of_each(delta: Tensor) -> IntArray:
    """Where each distinct row stands first, int64 ``[m]``."""
    first: dict[bytes, int] = {}
    for at, row in enumerate(delta.numpy()):
        # A digest and not the bytes, of which a row of a large network has many megabytes.
        first.setdefault(blake2b(row.tobytes()).digest(), at)
    return np.array(list(first.values()), np.int64)
