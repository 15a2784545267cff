"""FedGroup and FedGrouProx.

Duan et al., "FedGroup: Efficient Clustered Federated Learning via Decomposed Data-Driven Measure"
(2021). EDC and MADC are in ``coterie.math.similarity``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import Groups, IntArray, Key, Plan, Train
from coterie.core.traits import Trait, holding
from coterie.math.group_count import GroupCount, Most, estimate_notes
from coterie.methods.first_models import FirstModels
from coterie.methods.method import Method
from coterie.objectives import proximal
from coterie.privacy.start import PrivateColdStart, PrivateNewcomers
from coterie.rules.assigning import PlacesClients
from coterie.rules.cold_start import (
    DirectionMemory,
    GroupColdStart,
    GroupInit,
    Measure,
    Outliers,
    Pretrain,
    Pretraining,
    Shortage,
)
from coterie.rules.inter_group import Rule, inter_group
from coterie.rules.newcomers import (
    Ablation,
    Fallback,
    NearestDirection,
    Newcomer,
    RandomGroup,
    follow_models,
    random_groups,
)

AssignTime = Literal["on_first_selection", "upfront"]


@dataclass(frozen=True)
class ByDirection(PlacesClients):
    """The assign rule of FedGroup (Alg. 2), which FlexCFL shares.

    Args:
        upfront: place all clients before the first round, as the authors' code does, instead of
            each when it is first selected.
        random: the ablation RAC in place of ``newcomers``, ``None``: no ablation.
    """

    cold_start: GroupColdStart | PrivateColdStart
    newcomers: NearestDirection | PrivateNewcomers = NearestDirection()
    upfront: bool = False
    random: RandomGroup | None = None

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        notes: Counter[str] = Counter()
        had_group = groups.member >= 0

        # Alg. 2 l. 2: the first group models are those of the group cold start (Alg. 3).
        first = groups.memory.get(DirectionMemory) is None
        if first:
            # Alg. 2 l. 2 starts all groups from w_0, Alg. 3 from its clusters. Both papers' code
            # does the latter (erratum P2).
            groups = self.cold_start.form(groups, round.of("cold_start"))
            if groups.memory.get(DirectionMemory) is None:
                # With `auto`, too few clients answered to count groups; the next round tries again.
                no_clients = round.cohort[:0]
                return groups, Plan(no_clients, no_clients, notes={"uncounted": 1})
            notes["cold_start"] = int((groups.member >= 0).sum())
        elif not self.newcomers.frozen:
            groups = follow_models(groups)

        # Sec. 3.4, eq. 9: the client cold start, for those of the cohort without a group.
        new = self._newcomers(groups, round, first)
        if self._one_group(groups):
            notes["newcomers"] += len(new)
            groups = groups.with_members(new, 0)
            new = new[:0]
        # Clients that pre-trained in this round have spent a part of their local epochs.
        pretrained = (groups.member >= 0) & ~had_group
        if self.random is not None:
            groups, new = self.random.place(groups, new, round.of("draw"), notes)
        pretrained[new] = True
        if len(new):
            groups = self.newcomers.place(groups, new, round, notes)

        groups = self._remember(groups, notes)
        # Alg. 2 l. 5-6: each client of the cohort trains in its group.
        ids = round.cohort[groups.member[round.cohort] >= 0]
        spent = None
        if self.cold_start.pretraining.length == "continue":
            spent = pretrained[ids].astype(np.int64)
        found = {}
        if first and self.cold_start.groups == "auto":
            found = estimate_notes(groups.k, len(groups.member))
        return groups, Plan(ids, groups.member[ids], spent=spent, notes={**notes, **found})

    def start_size(self) -> int:
        """See `StartsPrivately`."""
        assert isinstance(self.cold_start, GroupColdStart), "the cold start is private already"
        return self.cold_start.alpha * self.cold_start.first_models

    def start_traits(self) -> frozenset[Trait]:
        """See `StartsPrivately`."""
        start = self.cold_start
        if isinstance(start, PrivateColdStart):
            return frozenset()
        return holding(
            {
                "counts_groups": start.groups == "auto",
                "compares_pairs": start.measure == "madc",
                "draws_centres": start.random_centres,
                "leaves_out": start.outliers == "leave_out",
            }
        )

    def with_private_start(
        self, noise: float, rate: float, clients: int, secret: Key | None
    ) -> ByDirection:
        """See `StartsPrivately`."""
        pretraining = self.cold_start.pretraining
        first = self.cold_start.first_models
        start = PrivateColdStart(first, rate, noise, clients, pretraining, secret)
        return replace(self, cold_start=start, newcomers=PrivateNewcomers(start.pretraining))

    def _newcomers(self, groups: Groups, round: Round, first: bool) -> IntArray:
        """The clients that are to be placed in this round, int64, ascending."""
        asked = round.cohort
        if first and self.upfront:
            # GrouProx places all of the federation before round 0, so that every round
            # scores all clients.
            asked = round.trainable(len(groups.member))
        without_group = groups.member < 0
        if self.random is not None:
            without_group = self.random.newcomers(groups)
        return asked[without_group[asked]]

    def _one_group(self, groups: Groups) -> bool:
        """``auto`` found one group: no client has to be placed."""
        return self.cold_start.groups == "auto" and groups.k == 1

    def _remember(self, groups: Groups, notes: Counter[str]) -> Groups:
        """What later rounds need to know: who holds the directions, or the models of this one."""
        if self.newcomers.frozen and self._one_group(groups):
            return groups
        memory = groups.memory.get(DirectionMemory)
        assert memory is not None
        if not self.newcomers.frozen:
            # The models that this round starts from: the next one takes the difference, and so the
            # inter-group step counts as a part of the update, as in the code.
            return groups.remember(replace(memory, seen=groups.models))
        # Clients with a group hold w_0 and the m directions from then on, so that later migrations
        # cost no download; the ledger's `flexcfl` count needs how many got them.
        equipped = memory.equipped | (groups.member >= 0)
        new = int((equipped & ~memory.equipped).sum())
        m = groups.k if self.cold_start.groups == "auto" else self.cold_start.groups
        notes["directions"] = m * new
        return groups.remember(replace(memory, equipped=equipped))


@validated
def fedgroup(
    groups: GroupCount = 3,
    alpha: Annotated[int, Field(ge=1)] = 20,
    measure: Measure = "edc",
    eta_g: Annotated[float, Field(ge=0)] = 0.0,
    # As printed in Alg. 2 l. 19. All tables of the paper have eta_g = 0.
    inter_group_rule: Rule = "normalized_difference",
    pretrain: Pretrain = "steps",
    # The paper says E epochs in Alg. 3 and one in sec. 3.4; its code trains 50 batches
    # (erratum P5).
    pretrain_steps: Annotated[int, Field(ge=1)] = 50,
    newcomer: Newcomer = "w0_frozen",
    assign_time: AssignTime = "on_first_selection",
    group_init: GroupInit = "cluster_mean",
    ablation: Ablation = "none",
    fallback: Fallback = "largest",
    on_shortage: Shortage = "stop",
    max_groups: Most = 8,
    outliers: Outliers = "keep",
) -> Method:
    """FedGroup: groups clients by the direction of their first update. Newcomers join the nearest
    group.

    FedAvg runs inside each group (Alg. 2 and 3).

    Args:
        groups: number of groups ``m``, or ``auto``: estimated in a cold start.
        alpha: ``alpha * m`` clients take part in the group cold start.
        measure: ``edc`` (k-means++ on the embedding, eq. 8) or ``madc`` (complete linkage, eq. 7).
        eta_g: inter-group learning rate, 0 in the paper's tables.
        inter_group_rule: which of three rules, see ``coterie.rules.inter_group``.
        pretrain: ``steps`` (the authors' code), all local ``epochs`` (Alg. 3 l. 5), or
            ``continue``: one epoch, and the rest after the assignment (sec. 3.4).
        pretrain_steps: mini-batch steps of pre-training with ``steps``.
        newcomer: ``w0_frozen`` (the authors' code, FlexCFL) or ``aux_latest`` (eq. 9).
        assign_time: place clients ``on_first_selection`` or ``upfront`` (the authors' code).
        group_init: groups start from ``cluster_mean`` (Alg. 3, erratum P1) or ``w0`` (Alg. 2 l. 2).
        ablation: ``rcc`` random cluster centres, ``rac`` newcomers get a random group once,
            ``rac_redraw`` each time.
        fallback: where a newcomer without a usable direction goes.
        on_shortage: ``stop`` or ``fewer`` groups when too few directions are received.
        max_groups: largest number that ``auto`` finds.
        outliers: ``leave_out`` excludes directions that are far from all others, or opposite to
            them, from the clustering.

    Models: one per group; their number is set or estimated.

    Source: Duan et al., FedGroup: Efficient Clustered Federated Learning via Decomposed Data-Driven
    Measure (2021).

    Example:
        >>> fedgroup(groups=5).groups
        5
    """
    pretraining = Pretraining(pretrain, pretrain_steps)
    cold_start = GroupColdStart(
        groups,
        alpha,
        measure,
        pretraining,
        group_init,
        random_centres=ablation == "rcc",
        on_shortage=on_shortage,
        max_groups=max_groups,
        outliers=outliers,
    )
    newcomers = NearestDirection(newcomer, pretraining, fallback)
    upfront = assign_time == "upfront"
    return Method(
        ByDirection(cold_start, newcomers, upfront, random_groups(ablation)),
        inter_group=inter_group(eta_g, inter_group_rule),
        first=FirstModels(cold_start.first_models),
        needs=("start",) if newcomers.frozen else ("start", "newcomers"),
    )


@validated
def fedgrouprox(
    groups: GroupCount = 3,
    alpha: Annotated[int, Field(ge=1)] = 20,
    measure: Measure = "edc",
    mu: Annotated[float, Field(ge=0)] = 1.0,
    eta_g: Annotated[float, Field(ge=0)] = 0.0,
    inter_group_rule: Rule = "normalized_difference",
    pretrain: Pretrain = "steps",
    pretrain_steps: Annotated[int, Field(ge=1)] = 50,
    newcomer: Newcomer = "w0_frozen",
    assign_time: AssignTime = "on_first_selection",
    group_init: GroupInit = "cluster_mean",
    ablation: Ablation = "none",
    fallback: Fallback = "largest",
    on_shortage: Shortage = "stop",
    max_groups: Most = 8,
    outliers: Outliers = "keep",
) -> Method:
    """FedGrouProx: FedGroup with FedProx inside each group.

    The proximal term is that of Alg. 2 l. 15; with ``mu = 0`` this is FedGroup.

    Arguments as in ``fedgroup``, and ``mu``, the weight of the proximal term.

    Models: one per group; their number is set or estimated.

    Source: Duan et al., FedGroup: Efficient Clustered Federated Learning via Decomposed Data-Driven
    Measure (2021).

    Example:
        >>> fedgrouprox(mu=0.1).local.objective.mu
        0.1
    """
    method = fedgroup(
        groups=groups,
        alpha=alpha,
        measure=measure,
        eta_g=eta_g,
        inter_group_rule=inter_group_rule,
        pretrain=pretrain,
        pretrain_steps=pretrain_steps,
        newcomer=newcomer,
        assign_time=assign_time,
        group_init=group_init,
        ablation=ablation,
        fallback=fallback,
        on_shortage=on_shortage,
        max_groups=max_groups,
        outliers=outliers,
    )
    # The cold start minimises the same objective: rules read it from the round, not from here.
    return replace(method, local=Train(proximal(mu)))
