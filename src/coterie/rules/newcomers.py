"""Client cold start: a client without a group joins the one whose direction is nearest, or whose model
has the least loss, or a random one. A client without labels joins by its inputs.

Source: Duan et al., FedGroup (2021), eq. 9; with frozen directions FlexCFL (2022), Alg. 3.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.core import NO_GROUP, BoolArray, Describe, Groups, IntArray, Score, SelectGroup, Train
from coterie.math.similarity import nearest_direction
from coterie.rules.assigning import Assign
from coterie.rules.cold_start import DirectionMemory, Pretraining, has_direction
from coterie.rules.migration import Migrating, previous_group

Newcomer = Literal["aux_latest", "w0_frozen"]
Ablation = Literal["none", "rcc", "rac", "rac_redraw"]
Fallback = Literal["largest", "lowest_loss", "none"]


@dataclass(frozen=True)
class NearestDirection:
    """Eq. 9: a newcomer joins ``argmin_j (1 - cos(D_j, delta_pre)) / 2``; of equals the lowest.

    Args:
        compare_with: ``w0_frozen``: pre-train from ``w_0``, compare with the cluster means of the
            cold start; ``aux_latest``: pre-train from the auxiliary model, compare with the groups'
            latest updates.
        pretraining: how clients show their direction.
        fallback: where a newcomer without a usable direction goes: to the ``largest`` group, to the
            group with the ``lowest_loss`` on its data, or to ``none``.
    """

    compare_with: Newcomer = "w0_frozen"
    pretraining: Pretraining = Pretraining()
    fallback: Fallback = "largest"

    @property
    def frozen(self) -> bool:
        """Whether newcomers are compared with the directions of the cold start."""
        return self.compare_with == "w0_frozen"

    def place(self, groups: Groups, new: IntArray, round: Round, notes: Counter[str]) -> Groups:
        """The groups with these clients in them."""
        memory = groups.memory.get(DirectionMemory)
        assert memory is not None, "newcomers come after the group cold start"
        stream = round.of("newcomers_frozen" if self.frozen else "newcomers")
        start = memory.auxiliary
        if self.frozen:
            start = groups.first_model
        direction = memory.latest
        if self.frozen:
            direction = memory.direction
        work = self.pretraining.work(round)
        # Real clients hold w_0 and the frozen directions, so they can choose without
        # sending an update.
        if self.frozen and round.clients.are_real:
            ids, group, unusable = _let_choose(work, new, start, direction, stream)
        else:
            ids, group, unusable = _compare(work, new, start, direction, stream)
        before = groups
        groups = groups.with_members(ids, group)
        notes["newcomers"] += len(ids)
        if not len(unusable):
            return groups
        notes[f"fallback_{self.fallback}"] += len(unusable)
        if self.fallback == "none":
            return groups
        if self.fallback == "largest":
            # The largest group is that before these newcomers.
            return groups.with_members(unusable, int(np.argmax(before.sizes())))
        return groups.with_members(unusable, least_loss_groups(before, unusable, stream))


def least_loss_groups(groups: Groups, ids: IntArray, round: Round) -> IntArray:
    """The group whose model has the least loss on the data of each client, int64 ``[n]``, for
    clients in ascending order; none for a client that does not answer."""
    key = round.key.of("fallback")
    reply = round.clients.run(Score("train"), ids, groups.models, key=key)
    choice = np.full(len(ids), NO_GROUP)
    choice[np.searchsorted(ids, reply.ids)] = reply.loss.argmin(axis=1)
    return choice


def _compare(
    work: Train, new: IntArray, start: Tensor, direction: Tensor, round: Round
) -> tuple[IntArray, IntArray, IntArray]:
    """Newcomers send their update, and the server compares it with the directions. The results are
    the clients that were placed, the group of each, and those without a usable direction."""
    reply = round.clients.run(work, new, start, key=round.key)
    usable = has_direction(reply)
    group = nearest_direction(reply.rows(usable).delta, direction)
    return reply.ids[usable], group, reply.ids[~usable]


def _let_choose(
    work: Train, new: IntArray, start: Tensor, direction: Tensor, round: Round
) -> tuple[IntArray, IntArray, IntArray]:
    """Newcomers are sent the directions and tell which one theirs is nearest to, so that their
    update stays with them. Returns what `_compare` does."""
    models = torch.cat([start[None], direction])
    reply = round.clients.run(SelectGroup(work), new, models, key=round.key)
    choice = reply.choice
    usable = (choice >= 0) & (choice < len(direction))
    return reply.ids[usable], choice[usable].astype(np.int64), reply.ids[~usable]


@dataclass(frozen=True)
class RandomGroup:
    """The ablation RAC: newcomers get a random group, once or each time they are selected."""

    each_time: bool = False

    def newcomers(self, groups: Groups) -> BoolArray:
        """The clients that have no group, or one that is drawn again, bool ``[N]``."""
        memory = groups.memory.get(DirectionMemory)
        if not self.each_time or memory is None:
            return groups.member < 0
        return (groups.member < 0) | memory.random_group

    def place(
        self, groups: Groups, new: IntArray, round: Round, notes: Counter[str]
    ) -> tuple[Groups, IntArray]:
        """A random group for newcomers; the clients that are left lost their group because their
        data drifted, and are placed by their direction."""
        memory = groups.memory.get(DirectionMemory)
        assert memory is not None, "newcomers come after the group cold start"
        drifted = previous_group(groups)[new] >= 0
        # FlexCFL's code draws for newcomers only; migrating clients are compared as usual.
        left = new[drifted]
        new = new[~drifted]
        notes["newcomers"] += int((groups.member[new] < 0).sum())
        # A stream for each client: its group does not depend on who else is new.
        group = [round.key.client(int(i)).generator().integers(groups.k) for i in new]
        random_group = memory.random_group.copy()
        random_group[new] = True
        groups = groups.with_members(new, np.array(group, np.int64))
        return groups.remember(replace(memory, random_group=random_group)), left


def random_groups(ablation: Ablation) -> RandomGroup | None:
    """The rule of the ablation RAC, ``None`` for any other."""
    if ablation in ("rac", "rac_redraw"):
        return RandomGroup(each_time=ablation == "rac_redraw")
    return None


def follow_models(groups: Groups) -> Groups:
    """Each group's latest update and the auxiliary model (Alg. 2 l. 11), from what changed since
    the last round began."""
    memory = groups.memory.get(DirectionMemory)
    assert memory is not None
    assert memory.seen is not None
    assert groups.trained is not None
    change = groups.models - memory.seen
    # A group that no client trained keeps its last direction (of its last non-empty round).
    moved = torch.from_numpy(groups.trained) & (change != 0).any(dim=1)
    latest = torch.where(moved[:, None], change, memory.latest)
    # GrouProx averages all groups, empty ones among them; FlexCFL only those with members.
    auxiliary = groups.auxiliary(filled=False)
    return groups.remember(replace(memory, latest=latest, auxiliary=auxiliary))


# How a client without labels came to its model, in words.
BY_INPUTS = "its inputs"
ONE_MODEL = "one model"
WITHOUT_LABELS = "no labels: the model for clients without a group"


@runtime_checkable
class PlacesUnlabelled(Protocol):
    """An assign rule that can place a client by its inputs alone."""

    @property
    def places_by_inputs(self) -> bool:
        """Whether it can, with the options that it was made with."""
        ...

    def ask_unlabelled(self, groups: Groups) -> tuple[Describe, Tensor] | None:
        """What a client without labels is asked for, and the model ``[d]`` that it is sent with;
        ``None`` before the rule has found groups."""
        ...

    def place_unlabelled(self, groups: Groups, rows: Tensor) -> IntArray:
        """The group of each client, int64 ``[n]``, by what they reported, ``[n, ...]``."""
        ...


def unlabelled_rule(assign: Assign) -> PlacesUnlabelled | None:
    """The rule that places clients without labels; ``None`` where a method has none.

    Example:
        >>> from coterie.algorithms import fedclust, pacfl
        >>> unlabelled_rule(pacfl().assign) is None, unlabelled_rule(fedclust().assign) is None
        (False, True)
    """
    inner = assign
    if isinstance(assign, Migrating):
        inner = assign.assign
    if isinstance(inner, PlacesUnlabelled) and inner.places_by_inputs:
        return inner
    return None
