"""FedGroup and FedGrouProx.

Duan et al., "FedGroup: Efficient Clustered Federated Learning via Decomposed Data-Driven Measure"
(2021). Cold starts are in ``grouping/direction.py``, EDC and MADC in ``similarity.py``.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.config.arguments import validated
from coterie.core.work import Train
from coterie.math.group_count import Most, Number
from coterie.methods.method import Method
from coterie.objectives import proximal
from coterie.rules.cold_start import (
    Ablation,
    AssignTime,
    ByDirection,
    Fallback,
    GroupInit,
    Measure,
    Newcomer,
    Pretrain,
    Shortage,
)
from coterie.rules.inter_group import Rule, inter_group


@validated
def fedgroup(
    groups: Number = 3,
    alpha: Annotated[int, Field(ge=1)] = 20,
    measure: Measure = "edc",
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
) -> Method:
    """FedGroup: groups by the direction of the first update, FedAvg inside each (Alg. 2 and 3).

    Args:
        groups: number of groups ``m``, or ``auto``: as many as the clients of a cold start show.
        alpha: ``alpha * m`` clients take part in the group cold start.
        measure: ``edc`` (k-means++ on the embedding, eq. 8) or ``madc`` (complete linkage, eq. 7).
        eta_g: inter-group learning rate, 0 in the paper's tables.
        inter_group_rule: which of three rules, see ``coterie.rules.inter_group``.
        pretrain: ``steps`` (the authors' code), all local ``epochs`` (Alg. 3 l. 5), one epoch and
            the rest after the assignment with ``continue`` (sec. 3.4).
        pretrain_steps: mini-batch steps of pre-training with ``steps``.
        newcomer: ``w0_frozen`` (the authors' code, FlexCFL) or ``aux_latest`` (eq. 9).
        assign_time: place clients ``on_first_selection`` or ``upfront`` (the authors' code).
        group_init: groups start from ``cluster_mean`` (Alg. 3, erratum P1) or ``w0`` (Alg. 2 l. 2).
        ablation: ``rcc`` random cluster centres, ``rac`` newcomers get a random group once,
            ``rac_redraw`` each time.
        fallback: where a newcomer without a usable direction goes.
        on_shortage: ``stop`` or ``fewer`` groups when too few directions come home.
        max_groups: the most that ``auto`` finds.

    Example:
        >>> fedgroup(groups=5).groups
        5
    """
    return _fedgroup(**locals(), mu=0.0)


@validated
def fedgrouprox(
    groups: Number = 3,
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
) -> Method:
    """FedGrouProx: FedGroup with FedProx inside each group (Alg. 2 l. 15); ``mu = 0`` is FedGroup.

    Arguments as in ``fedgroup``, and ``mu``, the weight of the proximal term.

    Example:
        >>> fedgrouprox(mu=0.1).local.objective.mu
        0.1
    """
    return _fedgroup(**locals())


def _fedgroup(*, mu: float, eta_g: float, inter_group_rule: Rule, **rule: object) -> Method:
    objective = proximal(mu)
    assign = ByDirection(objective=objective, **rule)  # type: ignore[arg-type]
    return Method(
        assign=assign,
        local=Train(objective),
        inter_group=inter_group(eta_g, inter_group_rule),
        groups=1 if assign.groups == "auto" else assign.groups,
    )
