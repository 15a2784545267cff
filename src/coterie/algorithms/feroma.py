"""Feroma: Li et al., Federated Learning with Profile Mapping under Distribution Shifts and Drifts
(2026)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.core import NO_GROUP, Describe, FloatArray, Groups, IntArray, Plan, Updates
from coterie.core.groups import GrowingRecord
from coterie.math.distances import l2
from coterie.math.similarity import Matrix
from coterie.methods.method import Method
from coterie.rules.assigning import everyone
from coterie.rules.descriptors import ask_descriptors, scaled

# So that a model whose profile is the client's own counts much, and not infinitely much.
NEAREST = 1e-8


@dataclass(frozen=True, slots=True)
class Profiles(GrowingRecord):
    """What Feroma remembers: of which data each model is.

    Args:
        origin: float32 ``[d]``, the model that all profiles are made with.
        profile: float32 ``[k, 2 + 2c, l]``, of the data that each model was last trained on.
        size: float64 ``[k]``, the number of these samples.
    """

    record_name: ClassVar[str] = "feroma"
    # Its rows are of models, which clients that come later open by themselves.
    newcomer: ClassVar[Mapping[str, float]] = {}
    origin: Tensor
    profile: Tensor
    size: FloatArray


def shares_by_distance(distance: Matrix, size: FloatArray, power: float) -> FloatArray:
    """How much of each model a client starts from, ``[n, k]``: ``a_ij`` is proportional to
    ``n_j / d_ij^power``.

    Args:
        size: float64 ``[k]``, the samples ``n_j`` of each model.
    """
    near = distance + NEAREST
    # Relative to the nearest, since a high power of a small number is not a number any more.
    weight = size * (near.min(axis=1, keepdims=True) / near) ** power
    return weight / weight.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class MapsProfiles:
    """The assign rule of Feroma; its fields are the arguments of `feroma`."""

    warmup_rounds: int
    dimensions: int | None
    draws: int
    power: float

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        memory = groups.memory.get(Profiles)
        if memory is None and round.number < self.warmup_rounds:
            return everyone(groups, round)
        origin = groups.models[0] if memory is None else memory.origin
        ids, rows, size = self._ask(origin, round)
        if not len(ids):
            return groups, Plan(ids, ids)
        if memory is None:
            # The joint model of all is dropped; each client of this round continues from it alone.
            groups = replace(groups, member=np.full_like(groups.member, NO_GROUP))
            groups = groups.with_members(ids, np.arange(len(ids))).select([0] * len(ids))
            plan = Plan(ids, groups.member[ids], notes={"cold_start": len(ids)})
            return groups.remember(Profiles(origin, rows, size)), plan
        share = self._shares(memory, rows)
        groups, newcomers = _open_models(groups, ids)
        # No client starts from a model that a newcomer opens in this round.
        mixtures = np.pad(share, ((0, 0), (0, newcomers)))
        groups = groups.remember(_with_profiles(memory, groups.member[ids], rows, size))
        notes = {"newcomers": newcomers, "groups": groups.k}
        # Numbers from k on name the mixtures.
        return groups, Plan(ids, groups.k + np.arange(len(ids)), notes=notes, mixtures=mixtures)

    def _ask(self, origin: Tensor, round: Round) -> tuple[IntArray, Tensor, FloatArray]:
        """Who replied, their profiles ``[n, 2 + 2c, l]``, and their numbers of samples."""
        reply = ask_descriptors(
            origin, round.cohort, round.of("profiles"), self.dimensions, self.draws
        )
        rows = torch.from_numpy(reply.fields["latent"]).to(torch.float32)
        return reply.ids, rows, reply.size.astype(np.float64)

    def _shares(self, memory: Profiles, rows: Tensor) -> FloatArray:
        ours = scaled(rows, memory.profile)
        theirs = scaled(memory.profile, memory.profile)
        return shares_by_distance(l2(ours, theirs), memory.size, self.power)

    def recluster(self, groups: Groups, updates: Updates, round: Round) -> tuple[Groups, Updates]:
        """What a client trained is its model, whatever it started from."""
        return groups, replace(updates, row=groups.member[updates.ids])

    @property
    def places_by_inputs(self) -> bool:
        """See `PlacesUnlabelled`."""
        return True

    def ask_unlabelled(self, groups: Groups) -> tuple[Describe, Tensor] | None:
        """See `PlacesUnlabelled`: the moments of all samples."""
        memory = groups.memory.get(Profiles)
        if memory is None:
            return None
        work = Describe("latent", vectors=memory.profile.shape[2], labelled=False)
        return work, memory.origin

    def place_unlabelled(self, groups: Groups, rows: Tensor) -> IntArray:
        """See `PlacesUnlabelled`: the model with the nearest profile."""
        memory = groups.memory.get(Profiles)
        assert memory is not None, "clients without labels come after the first profiles"
        known = scaled(memory.profile[:, : rows.shape[1]], memory.profile)
        return l2(scaled(rows, memory.profile), known).argmin(axis=1)


def _open_models(groups: Groups, ids: IntArray) -> tuple[Groups, int]:
    """A model for each of these clients that has none, and how many these are."""
    new = ids[groups.member[ids] < 0]
    # What is in it does not matter: the first training of its client replaces it.
    opened = groups.select([*range(groups.k), *[0] * len(new)])
    return opened.with_members(new, groups.k + np.arange(len(new))), len(new)


def _with_profiles(memory: Profiles, own: IntArray, rows: Tensor, size: FloatArray) -> Profiles:
    """The profiles with those of this round's clients, at the numbers ``own`` of their models."""
    k = max(len(memory.size), int(own.max()) + 1)
    profile = rows.new_zeros(k, *rows.shape[1:])
    profile[: len(memory.size)] = memory.profile
    profile[torch.from_numpy(own)] = rows
    sizes = np.zeros(k)
    sizes[: len(memory.size)] = memory.size
    sizes[own] = size
    return Profiles(memory.origin, profile, sizes)


@validated
def feroma(
    warmup_rounds: Annotated[int, Field(ge=0)] = 5,
    dimensions: Annotated[int, Field(ge=1)] | None = None,
    draws: Annotated[int, Field(ge=0)] = 3,
    power: Annotated[float, Field(gt=0)] = 1.0,
) -> Method:
    """Feroma: each client starts from a mix of the models whose data are most similar to its own.

    After ``warmup_rounds`` rounds of FedAvg each client has its own model. In every round it
    describes its data by moments in the latent space of the joint model, its profile ``s_i``, and
    starts from ``sum_j a_ij w_j`` with ``a_ij`` proportional to ``n_j / |s_i - s_j|^power``, where
    ``s_j`` is the profile of the data that model ``j`` was last trained on. A client that joins
    later without labels is served the model whose profile is nearest to the moments of all its
    samples.

    Args:
        warmup_rounds: rounds of FedAvg before the first profiles.
        dimensions: number ``l`` of random directions of a profile; ``None``: the number of classes.
        draws: number of random halves of its samples that a client describes in a round; 0: it
            describes all samples, in the same way in every round.
        power: how sharply shares fall with the distance of profiles.

    Raises:
        ConfigError: in the round of the first profiles, for a network without a dense layer.

    Models: one per group; their number is that of the clients, each of which is a group.

    Source: Li et al., Federated Learning with Profile Mapping under Distribution Shifts and Drifts
    (2026).

    Example:
        >>> feroma(power=4).assign.power
        4.0
    """
    rule = MapsProfiles(warmup_rounds, dimensions, draws, power)
    return Method(rule, recluster=rule.recluster, needs=("statistics", "class_labels"))
