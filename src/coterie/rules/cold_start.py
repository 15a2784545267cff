"""Grouping by the direction of the first update: FedGroup's cold starts (Alg. 3 and eq. 9)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.groups import NO_GROUP, Groups
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.plan import Plan
from coterie.core.work import Evaluate, SelectGroup, Train
from coterie.errors import ConfigError, QuorumError
from coterie.math.clustering import complete_linkage, kmeans
from coterie.math.group_count import Auto, count, told
from coterie.math.similarity import edc_embedding, madc, nearest
from coterie.rules.group_count import enough

Measure = Literal["edc", "madc"]
Newcomer = Literal["aux_latest", "w0_frozen"]
AssignTime = Literal["on_first_selection", "upfront"]
GroupInit = Literal["cluster_mean", "w0"]
Pretrain = Literal["steps", "epochs", "continue"]
Fallback = Literal["largest", "lowest_loss", "none"]
Shortage = Literal["stop", "fewer"]
Ablation = Literal["none", "rcc", "rac", "rac_redraw"]


class ColdStartError(QuorumError):
    """Fewer distinct update directions came home than there are groups."""


@dataclass(frozen=True)
class ByDirection:
    """Assign rule: a group cold start before the first round, a client cold start for whoever has
    no group.

    Args:
        groups: number of groups ``m``; ``auto``: counted from the directions of the group cold
            start.
        objective: what clients minimise while pre-training.
        alpha: the group cold start asks ``alpha * m`` clients, with ``auto`` ``alpha *
            max_groups``.
        measure: ``edc`` with k-means++, or ``madc`` with complete linkage.
        pretrain: ``steps``: ``pretrain_steps`` mini-batch steps; ``epochs``: all local epochs;
            ``continue``: one epoch, taken off this round's local epochs.
        pretrain_steps: steps of pre-training.
        newcomer: ``w0_frozen``: pre-train from ``w_0``, compare with the cluster means of the cold
            start; ``aux_latest``: pre-train from the auxiliary model, compare with the groups'
            latest updates.
        assign_time: place clients when first selected, or all of them up front.
        group_init: groups start from their cluster's mean model, or from ``w_0``.
        ablation: ``rcc``: random cluster centres; ``rac``: newcomers get a random group once,
            ``rac_redraw``: each time they are selected.
        fallback: where a newcomer without a usable direction goes.
        on_shortage: stop, or form fewer groups, when too few directions came home.
        max_groups: the most that ``auto`` finds.

    Raises:
        ConfigError: for ``auto`` with random cluster centres.
    """

    groups: int | Auto
    objective: Objective
    alpha: int = 20
    measure: Measure = "edc"
    pretrain: Pretrain = "steps"
    pretrain_steps: int = 50
    newcomer: Newcomer = "w0_frozen"
    assign_time: AssignTime = "on_first_selection"
    group_init: GroupInit = "cluster_mean"
    ablation: Ablation = "none"
    fallback: Fallback = "largest"
    on_shortage: Shortage = "stop"
    max_groups: int = 8

    def __post_init__(self) -> None:
        if self.groups == "auto" and self.ablation == "rcc":
            raise ConfigError(
                "algorithm.groups: random cluster centres show no groups to count, got 'auto'; "
                "expected a number with ablation = 'rcc'"
            )

    def __call__(
        self, groups: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Plan]:
        notes: Counter[str] = Counter()
        first = "direction" not in groups.memory
        before = groups.member
        if first:
            groups = self._group_cold_start(groups, door, key.of("cold_start"))
            if "direction" not in groups.memory:
                return groups, Plan(cohort[:0], cohort[:0], notes={"uncounted": 1})
            notes["cold_start"] = int((groups.member >= 0).sum())
        elif self.newcomer == "aux_latest":
            groups = _follow(groups)
        asked = _able(groups, door) if first and self.assign_time == "upfront" else cohort
        new = asked[self._homeless(groups)[asked]]
        if self._alone(groups):
            groups = _together(groups, new, notes)
            new = new[:0]
        pretrained = (groups.member >= 0) & (before < 0)
        if self.ablation in ("rac", "rac_redraw"):
            groups, new = self._draw(groups, new, key.of("draw"), notes)
        pretrained[new] = True
        if len(new):
            groups = self._client_cold_start(groups, new, door, key, notes)
        if self.newcomer == "w0_frozen" and not self._alone(groups):
            groups = self._equip(groups, notes)
        if self.newcomer == "aux_latest":
            groups = groups.remember(seen=groups.models)
        ids = cohort[groups.member[cohort] >= 0]
        spent = pretrained[ids].astype(np.int64) if self.pretrain == "continue" else None
        found = told(groups.k) if first and self.groups == "auto" else {}
        return groups, Plan(ids, groups.member[ids], spent=spent, notes={**notes, **found})

    @property
    def _bounds(self) -> tuple[int, int]:
        """Least and largest number of groups."""
        if self.groups == "auto":
            return (1, self.max_groups)
        return (self.groups, self.groups)

    def _wanted(self, groups: Groups, door: Clients) -> int:
        """Directions without which ``auto`` counts nothing."""
        if self.groups == "auto":
            return enough(door, _able(groups, door))
        return 0

    def _alone(self, groups: Groups) -> bool:
        """One group was found: nobody has to be placed."""
        return self.groups == "auto" and groups.k == 1

    @property
    def _work(self) -> Train:
        match self.pretrain:
            case "steps":
                return Train(self.objective, steps=self.pretrain_steps)
            case "epochs":
                return Train(self.objective)
            case "continue":
                return Train(self.objective, epochs=1)

    def _homeless(self, groups: Groups) -> np.ndarray[Any, np.dtype[np.bool_]]:
        homeless = groups.member < 0
        if self.ablation == "rac_redraw":
            return homeless | groups.memory["drawn"].numpy()
        return homeless

    def _draw(
        self, groups: Groups, new: IntArray, key: Key, notes: Counter[str]
    ) -> tuple[Groups, IntArray]:
        """RAC: a random group for newcomers; clients that migrate (``memory["migrant"]``) are left
        to be placed."""
        migrant = (
            groups.memory["migrant"].numpy()[new] >= 0
            if "migrant" in groups.memory
            else np.zeros(len(new), bool)
        )
        new, left = new[~migrant], new[migrant]
        member = groups.member.copy()
        drawn = groups.memory["drawn"].clone()
        notes["newcomers"] += int((member[new] < 0).sum())
        member[new] = [key.client(int(i)).generator().integers(groups.k) for i in new]
        drawn[torch.from_numpy(new)] = True
        return replace(groups, member=member).remember(drawn=drawn), left

    def _equip(self, groups: Groups, notes: Counter[str]) -> Groups:
        """Clients with a group hold ``w_0`` and the ``m`` directions from then on: later migrations
        are free."""
        equipped = groups.memory["equipped"] | torch.from_numpy(groups.member >= 0)
        m = groups.k if self.groups == "auto" else self.groups
        notes["directions"] = m * int((equipped & ~groups.memory["equipped"]).sum())
        return groups.remember(equipped=equipped)

    def _group_cold_start(self, groups: Groups, door: Clients, key: Key) -> Groups:
        """Alg. 3: cluster the directions of ``alpha m`` clients; ``w_0^(j) = w_0 + mean(delta)``
        (erratum P1).

        With ``auto`` all stays as it was while too few directions come home to be counted.
        """
        w0 = groups.memory["start"]
        ids, delta, m = self._directions(groups, door, key)
        if len(ids) < self._wanted(groups, door):
            return groups
        if self.groups == "auto":
            m = min(m, count(delta, self.max_groups, key.of("count")))
            groups = groups.taking([0] * m)
        labels = self._cluster(delta, m, key.of("cluster"))
        direction = torch.zeros_like(groups.models)
        for j in range(m):
            direction[j] = (
                delta[torch.from_numpy(labels == j)].to(torch.float64).mean(dim=0).to(torch.float32)
            )
        member = groups.member.copy()
        member[ids] = labels
        models = w0 + direction if self.group_init == "cluster_mean" else groups.models
        return replace(groups, models=models, member=member).remember(
            direction=direction,
            latest=direction,
            auxiliary=w0,
            drawn=torch.zeros(len(member), dtype=torch.bool),
            equipped=torch.zeros(len(member), dtype=torch.bool),
            trained=torch.zeros(len(models), dtype=torch.bool),
        )

    def _directions(self, groups: Groups, door: Clients, key: Key) -> tuple[IntArray, Tensor, int]:
        """The updates of enough clients, asking replacements for those that did not answer; and how
        many groups."""
        order = key.of("sample").generator().permutation(_able(groups, door))
        least, most = self._bounds
        want = most if self.ablation == "rcc" else min(self.alpha * most, len(order))
        ids = np.empty(0, np.int64)
        delta = groups.models[:0]
        at = 0
        ask = want
        found = np.empty(0, np.int64)
        wanted = self._wanted(groups, door)
        while (len(found) < least or len(ids) < wanted) and at < len(order):
            asked = np.sort(order[at : at + ask])
            reply = door.run(self._work, asked, groups.models[:1], np.zeros_like(asked), key=key)
            usable = _usable(reply)
            ids = np.concatenate([ids, reply.ids[usable]])
            delta = torch.cat([delta, torch.from_numpy(reply.fields["delta"][usable])])
            found = _distinct(delta)
            at = at + ask
            ask = most
        if not wanted and (len(found) == 0 or (len(found) < least and self.on_shortage == "stop")):
            refused = (
                ", ".join(f"{reason} {n}" for reason, n in sorted(door.ledger.refused.items()))
                or "none"
            )
            raise ColdStartError(
                f"algorithm.groups: the cold start needs {least} distinct update directions, got {len(found)} "
                f"after asking {min(at, len(order))} clients (refused: {refused}); expected as many as groups, "
                "or on_shortage = 'fewer'"
            )
        if self.ablation == "rcc":
            ids = ids[found[:most]]
            delta = delta[torch.from_numpy(found[:most])]
        sort = np.argsort(ids)
        return ids[sort], delta[torch.from_numpy(sort)], min(most, len(found))

    def _cluster(self, delta: Tensor, m: int, key: Key) -> IntArray:
        if len(delta) == m or m == 1:
            return np.arange(len(delta)) % m
        if self.measure == "madc":
            return complete_linkage(madc(delta), m)
        return kmeans(edc_embedding(delta, m), m, key)

    def _client_cold_start(
        self, groups: Groups, new: IntArray, door: Clients, key: Key, notes: Counter[str]
    ) -> Groups:
        """Eq. 9: a newcomer joins ``argmin_j (1 - cos(D_j, delta_pre)) / 2``; ties go to the lowest
        group."""
        member = groups.member.copy()
        frozen = self.newcomer == "w0_frozen"
        start, target = (
            (groups.memory["start"], groups.memory["direction"])
            if frozen
            else (groups.memory["auxiliary"], groups.memory["latest"])
        )
        key = key.of("newcomers_frozen" if frozen else "newcomers")
        if frozen and door.drift_reports is not None:
            which = np.tile(np.arange(1 + len(target)), (len(new), 1))
            reply = door.run(
                SelectGroup(self._work), new, torch.cat([start[None], target]), which, key=key
            )
            choice = reply.fields["choice"]
            usable = (choice >= 0) & (choice < len(target))
            member[reply.ids[usable]] = choice[usable].astype(np.int64)
        else:
            reply = door.run(self._work, new, start[None], np.zeros(len(new), np.int64), key=key)
            usable = _usable(reply)
            member[reply.ids[usable]] = nearest(
                torch.from_numpy(reply.fields["delta"][usable]), target
            )
        notes["newcomers"] += int(usable.sum())
        lost = reply.ids[~usable]
        if len(lost):
            notes[f"fallback_{self.fallback}"] += len(lost)
        if len(lost) and self.fallback != "none":
            member[lost] = self._fall_back(groups, lost, door, key.of("fallback"))
        return replace(groups, member=member)

    def _fall_back(self, groups: Groups, lost: IntArray, door: Clients, key: Key) -> IntArray:
        if self.fallback == "largest":
            return np.full(len(lost), int(np.argmax(groups.sizes())))
        which = np.tile(np.arange(groups.k), (len(lost), 1))
        reply = door.run(Evaluate("train"), lost, groups.models, which, key=key)
        choice = np.full(len(lost), NO_GROUP)
        choice[np.searchsorted(lost, reply.ids)] = reply.fields["loss"].argmin(axis=1)
        return choice


def _usable(reply: Reply) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A direction is usable unless it is zero (the gate has seen to it that it is finite)."""
    return (reply.fields["delta"] != 0).any(axis=1)


def _distinct(delta: Tensor) -> IntArray:
    """Where each distinct row stands first."""
    first: dict[bytes, int] = {}
    for at, row in enumerate(delta.numpy()):
        first.setdefault(blake2b(row.tobytes()).digest(), at)
    return np.array(list(first.values()), np.int64)


def _able(groups: Groups, door: Clients) -> IntArray:
    """The clients that can train."""
    if door.able is None:
        return np.arange(len(groups.member))
    return door.able


def _together(groups: Groups, new: IntArray, notes: Counter[str]) -> Groups:
    """Newcomers join the one group there is."""
    member = groups.member.copy()
    member[new] = 0
    notes["newcomers"] += len(new)
    return replace(groups, member=member)


def _follow(groups: Groups) -> Groups:
    """Each group's latest update and the auxiliary model, from what changed since the last look."""
    change = groups.models - groups.memory["seen"]
    moved = groups.memory["trained"] & (change != 0).any(dim=1)
    latest = torch.where(moved[:, None], change, groups.memory["latest"])
    return groups.remember(latest=latest, auxiliary=groups.auxiliary(filled=False))
