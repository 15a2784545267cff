"""Clients that belong to several groups: each has a share of every model.

The shares are the rows of one matrix. FedSoft starts clients from their mixture of the models, counts
their replies by shares, and serves them the mixture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from coterie.clients.round import Round
from coterie.core import FloatArray, Groups, GrowingRecord, IntArray, Plan, Served, Train, Updates
from coterie.math.similarity import Matrix
from coterie.rules.assigning import by_group


@dataclass(frozen=True, slots=True)
class ShareMemory(GrowingRecord):
    """How much of each model every client is, ``[N, k]``: rows that sum to 1, or of -1 where
    unknown."""

    record_name: ClassVar[str] = "shares"
    newcomer: ClassVar[Mapping[str, float]] = {"shares": -1.0}
    shares: FloatArray


@dataclass(frozen=True, slots=True)
class LabelPriorMemory(GrowingRecord):
    """How often the samples of each model have each class, ``[k, c]``: rows that sum to 1."""

    record_name: ClassVar[str] = "label_prior"
    newcomer: ClassVar[Mapping[str, float]] = {}
    prior: FloatArray


def with_label_prior(groups: Groups, sums: FloatArray) -> Groups:
    """The same groups with the prior of the labels of this round's clients, ``C_mc = sum_i sum_s
    q_s(m) 1{y_s = c} / sum_i sum_s q_s(m)``, from the sums ``[n, k, c]``."""
    if not len(sums):
        return groups
    # No class is impossible: a later client may hold samples of it.
    total = np.maximum(sums.sum(axis=0), 1e-8)
    return groups.remember(LabelPriorMemory(total / total.sum(axis=1, keepdims=True)))


def label_prior_of(groups: Groups, classes: int) -> FloatArray:
    """The prior of labels of each model, an even one before the first round, float64 ``[k, c]``."""
    memory = groups.memory.get(LabelPriorMemory)
    if memory is None:
        return np.full((groups.k, classes), 1 / classes)
    return memory.prior


def shares_of(groups: Groups, ids: IntArray) -> FloatArray:
    """The shares of some clients, float64 ``[n, k]``, even ones for those of which nothing is
    known, such as a client that comes when the run is over.

    Example:
        >>> import torch
        >>> groups = Groups(torch.zeros(2, 1), np.full(2, -1))
        >>> groups = with_shares(groups, np.array([1]), np.array([[0.25, 0.75]]))
        >>> shares_of(groups, np.array([0, 1])).tolist(), groups.member.tolist()
        ([[0.5, 0.5], [0.25, 0.75]], [-1, 1])
    """
    memory = groups.memory.get(ShareMemory)
    if memory is None:
        return np.full((len(ids), groups.k), 1 / groups.k)
    known = np.asarray(ids) < len(memory.shares)
    shares = np.full((len(ids), groups.k), -1.0)
    shares[known] = memory.shares[ids[known]]
    return np.where(shares < 0, 1 / groups.k, shares)


def known_shares(groups: Groups) -> FloatArray:
    """How much of each group every client is, float64 ``[N, k]``; rows of zeros for clients without
    a group. In hard groups a client is of its group alone.

    Example:
        >>> import torch
        >>> known_shares(Groups(torch.zeros(2, 1), np.array([1, -1]))).tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    has_group = np.flatnonzero(groups.member >= 0)
    shares = np.zeros((len(groups.member), groups.k))
    if groups.memory.get(ShareMemory) is None:
        shares[has_group, groups.member[has_group]] = 1.0
    else:
        shares[has_group] = shares_of(groups, has_group)
    return shares


def with_shares(groups: Groups, ids: IntArray, shares: FloatArray) -> Groups:
    """The groups with these clients' shares. A client is a member of the group of which it has the
    largest share; of equals the lowest."""
    memory = groups.memory.get(ShareMemory)
    if memory is None:
        every = np.full((len(groups.member), groups.k), -1.0)
    else:
        every = memory.shares.copy()
    every[ids] = shares
    # Members are what tables and reports show, and whom figures of a group are about.
    groups = groups.with_members(ids, shares.argmax(axis=1))
    return groups.remember(ShareMemory(every))


def plan_from_mixtures(groups: Groups, ids: IntArray, notes: Mapping[str, int]) -> Plan:
    """Each client starts from its own mixture of the models, ``M_i = shares_i``."""
    # Numbers from k on name the mixtures.
    row = groups.k + np.arange(len(ids))
    return Plan(ids, row, notes=notes, mixtures=shares_of(groups, ids))


def by_mixture(groups: Groups) -> Served:
    """Each client is served by its mixture of the models, one without shares by their mean.

    Example:
        >>> import torch
        >>> groups = Groups(torch.tensor([[0.0], [4.0]]), np.full(2, -1))
        >>> groups = with_shares(groups, np.array([1]), np.array([[0.25, 0.75]]))
        >>> [by_mixture(groups).vector(client).item() for client in range(2)]
        [2.0, 3.0]
    """
    if groups.k == 1:
        return by_group(groups)
    clients = np.arange(len(groups.member))
    return Served(groups.models, groups.k + clients, shares_of(groups, clients))


def by_predictions(groups: Groups) -> Served:
    """Each client predicts with the mean of what all models predict, weighted by its shares, even
    ones for a client of which nothing is known.

    Example:
        >>> import torch
        >>> groups = Groups(torch.tensor([[0.0], [4.0]]), np.full(2, -1))
        >>> by_predictions(groups).shares.tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    if groups.k == 1:
        return by_group(groups)
    clients = np.arange(len(groups.member))
    return Served(groups.models, groups.member, shares=shares_of(groups, clients))


@dataclass(frozen=True)
class ByShare:
    """Weights ``u_ij n_i / sum_i u_ij n_i``: a client's samples count for a group by its share of
    it. A reply that started from one model counts for this one."""

    def __call__(self, groups: Groups, updates: Updates, round: Round) -> Matrix:
        share = np.zeros((len(updates), groups.k))
        from_mixture = updates.row >= groups.k
        share[from_mixture] = shares_of(groups, updates.ids[from_mixture])
        share[~from_mixture, updates.row[~from_mixture]] = 1.0
        # With one group these are the weights of FedAvg to the bit.
        weight = share.T * updates.size
        total = weight.sum(axis=1, keepdims=True)
        return np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)


by_share = ByShare()


# --- what clients answered with their updates -----------------------------------------------------


def with_answers(groups: Groups, updates: Updates, local: Train, notes: dict[str, Any]) -> Groups:
    """The groups with what clients said of themselves: which model they chose, or their shares of
    each and of its labels."""
    if local.choose is not None:
        groups = take_choices(groups, updates, notes)
    if updates.shares is not None:
        count_newcomers(groups, updates.shares.ids, notes)
        groups = with_shares(groups, updates.shares.ids, updates.shares.shares)
    if updates.label_sums is not None:
        groups = with_label_prior(groups, updates.label_sums)
    return groups


def take_choices(groups: Groups, updates: Updates, notes: dict[str, Any]) -> Groups:
    """The clients are members of the groups that they chose; ``notes`` counts newcomers."""
    count_newcomers(groups, updates.ids, notes)
    # Who did not answer keeps its group: nothing is known of what it chose.
    return groups.with_members(updates.ids, updates.row)


def count_newcomers(groups: Groups, ids: IntArray, notes: dict[str, Any]) -> None:
    """Count in ``notes`` those of some clients that had no group before."""
    newcomers = int((groups.member[ids] < 0).sum())
    notes["newcomers"] = int(notes.get("newcomers", 0)) + newcomers
