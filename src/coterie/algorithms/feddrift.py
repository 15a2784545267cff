"""FedDrift: Jothimurugesan et al., Federated Learning under Distributed Concept Drift (2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.arguments import validated
from coterie.config.schema import Count
from coterie.core import FloatArray, Groups, GrowingRecord, IntArray, Plan
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients
from coterie.rules.model_distances import mean_losses, models_alike
from coterie.rules.model_means import keep_groups, merge_groups
from coterie.rules.newcomers import least_loss_groups

Above = Annotated[float, Field(gt=0)]
NEVER = -1


@dataclass(frozen=True, slots=True)
class DriftWatch(GrowingRecord):
    """What FedDrift remembers from one time step to the next.

    Args:
        least: float64 ``[N]``, the least loss of any model for each client at the last time step;
            infinite for a client that never reported one.
        alone: int64 ``[k]``, 1 for a model that one client opened in this time step. No other client
            may choose it before the next.
        used: int64 ``[k]``, the first round of the last time step in which a client had the model, -1
            for a model that was never shared.
    """

    record_name: ClassVar[str] = "feddrift"
    newcomer: ClassVar[Mapping[str, float]] = {"least": np.inf}
    least: Tensor
    alone: IntArray
    used: IntArray


def watch_of(groups: Groups) -> DriftWatch:
    """What FedDrift remembers, after its first round."""
    watch = groups.memory.get(DriftWatch)
    assert watch is not None
    return watch


@dataclass(frozen=True)
class DriftIntoNewModels(PlacesClients):
    """The assign rule of FedDrift; its fields are the arguments of `feddrift`."""

    every: int
    delta: float
    merge: float
    most: int
    start: Literal["together", "alone"]

    def __call__(self, groups: Groups, round: Round) -> tuple[Groups, Plan]:
        watch = groups.memory.get(DriftWatch)
        notes: dict[str, Any] = {}
        if watch is None:
            groups = self._begin(groups, round)
        elif round.number % self.every == 0:
            groups, notes = self._time_step(groups, watch, round.of("time_step"))
        groups = self._place(groups, round)
        ids = round.cohort[groups.member[round.cohort] >= 0]
        return groups, Plan(ids, groups.member[ids], notes=notes)

    def _begin(self, groups: Groups, round: Round) -> Groups:
        """One model for all clients, or one for each."""
        clients = round.trainable(len(groups.member))
        models = np.zeros(len(clients), np.int64)
        if self.start == "alone":
            # Clients that are alike find each other when models are merged, at the next time step.
            models = np.arange(len(clients))
            groups = groups.select([0] * len(clients))
        # Infinite, so that no first loss of a client is a jump.
        least = torch.full((len(groups.member),), np.inf, dtype=torch.float64)
        alone = np.full(groups.k, int(self.start == "alone"))
        watch = DriftWatch(least, alone, np.full(groups.k, NEVER))
        return groups.with_members(clients, models).remember(watch)

    def _place(self, groups: Groups, round: Round) -> Groups:
        """Newcomers of the cohort choose among the models that are shared."""
        new = round.cohort[groups.member[round.cohort] < 0]
        if not len(new):
            return groups
        shared = np.flatnonzero(watch_of(groups).alone == 0)
        # Where every model was opened in this time step there is no other to choose from.
        if not len(shared):
            shared = np.arange(groups.k)
        chosen = least_loss_groups(groups.select(shared), new, round)
        return groups.with_members(new, np.where(chosen >= 0, shared[chosen], chosen))

    def _time_step(
        self, groups: Groups, watch: DriftWatch, round: Round
    ) -> tuple[Groups, dict[str, Any]]:
        """Clients choose again, similar models are merged, and clients that drifted open a model."""
        ids, loss, size = mean_losses(round.trainable(len(groups.member)), groups.models, round)
        if not len(ids):
            return groups, {}
        # A drift is a jump of the least loss: a model of another group that fits is no drift.
        now = torch.from_numpy(loss.min(axis=1))
        drifted = (now > watch.least[ids] + self.delta).numpy()
        watch = replace(watch, least=watch.least.clone().index_copy_(0, torch.from_numpy(ids), now))
        chosen = loss.argmin(axis=1)
        groups = groups.with_members(ids, chosen).remember(watch)
        # Clients that drifted have no part in it: their losses say how badly all models fit.
        groups = self._merge(groups, loss[~drifted], size[~drifted], chosen[~drifted])
        groups = self._open(self._make_room(groups, int(drifted.sum())), ids[drifted], round.number)
        return groups, {"drifted": int(drifted.sum()), "drifted_ids": ids[drifted]}

    def _merge(
        self, groups: Groups, loss: FloatArray, size: FloatArray, chosen: IntArray
    ) -> Groups:
        """One model in place of all that do alike on each other's data."""
        number = models_alike(loss, size, chosen, self.merge)
        watch = watch_of(groups)
        # A merged model was last used when the latest of its parts was, and those that one client
        # trained alone were never shared.
        used = np.full(number.max() + 1, NEVER)
        np.maximum.at(used, number, np.where(watch.alone, NEVER, watch.used))
        groups = merge_groups(groups, number, np.bincount(chosen, minlength=groups.k))
        return groups.remember(replace(watch, used=used))

    def _make_room(self, groups: Groups, wanted: int) -> Groups:
        """Only the models that stay where so many new ones are wanted.

        A model without clients is kept while there is room, since its data may come back. Those that
        were without clients for the longest time go first. A model that only
        the client had that opened it, and that now prefers another, is not kept.
        """
        watch = watch_of(groups)
        empty = groups.sizes() == 0
        tried = np.flatnonzero(empty & (watch.used == NEVER))
        old = np.flatnonzero(empty & (watch.used != NEVER))
        # Stable, so that of equally old models those with the lowest numbers go, on every machine.
        old = old[np.argsort(watch.used[old], kind="stable")]
        missing = max(0, groups.k - len(tried) + wanted - self.most)
        kept = np.setdiff1d(np.arange(groups.k), np.concatenate([tried, old[:missing]]))
        return keep_groups(groups, kept).remember(replace(watch, used=watch.used[kept]))

    def _open(self, groups: Groups, drifted: IntArray, number: int) -> Groups:
        """A new model for each of these clients, for as many as there is room."""
        watch = watch_of(groups)
        # The others stay where they are, with the model of least loss.
        opening = drifted[: max(0, self.most - groups.k)]
        shared = groups.k
        used = np.where(groups.sizes() > 0, number, watch.used)
        # Its first values are those of the model that does least badly.
        rows = np.concatenate([np.arange(shared), groups.member[opening]])
        groups = groups.select(rows).with_members(opening, shared + np.arange(len(opening)))
        alone = (np.arange(groups.k) >= shared).astype(np.int64)
        used = np.concatenate([used, np.full(len(opening), NEVER)])
        return groups.remember(replace(watch, alone=alone, used=used))


@validated
def feddrift(
    every: Count = 10,
    delta: Above = 0.1,
    merge: Above | None = None,
    most: Count = 20,
    start: Literal["together", "alone"] = "together",
) -> Method:
    """FedDrift: a client whose loss jumps starts its own model, and similar models are merged.

    At each time step a client has drifted if ``min_j F_i(w_j)`` is more than ``delta`` above its
    value at the previous one. It trains a new model alone until the next time step. Other clients
    choose the model with the lowest loss. Models are merged by complete linkage while
    ``max(L_ij - L_jj, L_ji - L_ii, 0) <= merge``, where ``L_ij`` is the loss of model ``i`` on the
    data of the clients that chose model ``j``.

    Args:
        every: number of rounds in a time step.
        delta: the increase of a loss that counts as drift.
        merge: the largest distance at which models are merged; ``None``: ``delta``.
        most: largest number of models. Once it is reached, a client that drifted stays with the
            model with the lowest loss.
        start: whether all clients have one model in the first time step, or each trains alone.

    Models: one per group; their number is determined by a threshold.

    Source: Jothimurugesan et al., Federated Learning under Distributed Concept Drift (2023).

    Example:
        >>> feddrift(delta=0.2).assign.merge
        0.2
    """
    rule = DriftIntoNewModels(every, delta, delta if merge is None else merge, most, start)
    return Method(rule, needs=("statistics",))
