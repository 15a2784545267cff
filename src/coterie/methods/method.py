"""A federated method as a record of rules, and its round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from coterie.clients.round import Round
from coterie.core import NO_GROUP, Groups, Keep, Plan, Served, Train, one_torch_thread
from coterie.core.own_model import serves_as_sent
from coterie.core.startup import work_clock
from coterie.core.traits import Need
from coterie.core.updates import Updates, mean_discrepancy
from coterie.errors import ConfigError
from coterie.methods.first_models import FirstModels, InitialModels
from coterie.rules.assigning import Assign, Serve, by_group
from coterie.rules.hooks import call
from coterie.rules.inter_group import InterGroup, pull_shared
from coterie.rules.server import Server, sgd
from coterie.rules.soft_groups import with_answers
from coterie.rules.weighing import Aggregate, Weigh, by_size, mean, side_by_side

Recluster = Callable[[Groups, Updates, Round], tuple[Groups, Updates]]


@dataclass(frozen=True)
class Method:
    """A federated method: a rule for each of eight questions, and the first models.

    Args:
        assign: which clients train, from which model, and in which order?
        local: what does a client do, and what does it keep?
        recluster: do the replies change the groups? ``None``: they do not.
        weigh: how much does each reply count for each model? One matrix ``W [k, n]``.
        aggregate: how are the weighted replies combined? By their mean, a robust average, or a sum
            with noise or as in secure aggregation.
        server: how does the weighted update change a model?
        inter_group: are the models of different groups mixed? ``None``: they are not.
        serve: which model does a client use for predictions?
        first: the models before the first round.
        needs: what the method needs from single clients in addition to the sums of their updates;
            ``()``: nothing; ``None``: not stated. The needs of its rules are derived from the
            rules, see ``coterie.methods.traits``.
        name: what tables call the method; by default its first rule that is not Coterie's.

    ``made_by`` is the table ``[algorithm]`` of the same method, if one of Coterie's factories
    created it.

    Example:
        >>> from coterie.rules.assigning import everyone
        >>> fedavg = Method(assign=everyone)
    """

    assign: Assign
    local: Train = Train()
    recluster: Recluster | None = None
    weigh: Weigh = by_size
    aggregate: Aggregate = mean()
    server: Server = sgd(1.0)
    inter_group: InterGroup | None = None
    serve: Serve = by_group
    first: FirstModels = FirstModels()
    needs: tuple[Need, ...] | None = None
    name: str = ""

    # Set by a factory on what it made. No field: a method that `replace` changed is another one.
    made_by: ClassVar[Mapping[str, Any] | None] = None

    def __post_init__(self) -> None:
        for slot, kind in (("local", Train), ("aggregate", Aggregate), ("first", FirstModels)):
            value = getattr(self, slot)
            if not isinstance(value, kind):
                raise ConfigError("wrong-type", slot, got=value, allowed=kind.__name__)

    @property
    def groups(self) -> int:
        """Number of models at the start."""
        return self.first.groups


@dataclass(frozen=True, slots=True)
class Clustered:
    """A ``Method`` as an ``Algorithm``."""

    method: Method

    @property
    def samples_cohort(self) -> bool:
        """Whether the method samples its clients itself."""
        return "all_clients" in (self.method.needs or ())

    def init(self, initial_models: InitialModels, clients: int) -> Groups:
        """The first models, and no client has a group yet."""
        models = self.method.first.make(initial_models, clients)
        stays = self.method.local.keep
        if isinstance(stays, Keep):
            # A client that changes its group takes along what it keeps. So all models begin with
            # the same values there, and differ only in what is shared.
            kept = torch.from_numpy(stays.kept())
            models[:, kept] = models[0, kept]
        trained = np.zeros(len(models), bool)
        # w_0 is kept apart from the models: newcomers of FedGroup and FlexCFL train from it later.
        return Groups(models, np.full(clients, NO_GROUP), start=models[0], trained=trained)

    def step(self, state: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]:
        """One round: the new state, and notes for the round's row. An empty cohort changes nothing,
        unless its models move in every round."""
        method = self.method
        # Sorted: sums run in client order, whatever order a sampler gives.
        round = replace(round, cohort=np.sort(round.cohort), local=method.local)
        if not len(round.cohort) and not method.aggregate.every_round:
            return state, {}
        # The grouping rules draw from one stream, so that a rule with two halves can share a draw.
        grouping = round.of("assign")

        # Step 1: who trains from which model, and after whom?
        begun = work_clock()
        groups, plan = call("assign", method.assign, state, grouping)
        # Some rules train clients only to place them; that time counts as training.
        seconds = {"grouping": work_clock() - begun - round.clients.ledger.training}

        # Step 2: the clients train. A rule that clusters replies needs all of them side by side.
        collect = method.aggregate.collect
        if method.recluster is not None:
            collect = side_by_side
        updates = collect(method.local, method.weigh, groups, plan, round.of("train"))
        groups, plan = plan.answered(groups)
        notes = {**training_notes(method, groups, plan, updates), "seconds": seconds}
        groups = with_answers(groups, updates, method.local, notes)

        # Step 3: do the replies change the groups? A rule hears of a round that does not count, too.
        begun = work_clock()
        too_few = updates.replies < round.least_replies and not method.aggregate.every_round
        if too_few:
            updates = updates.first(0)
        if method.recluster is not None:
            groups, updates = call("recluster", method.recluster, groups, updates, grouping)
        if too_few:
            return groups, {**notes, "exchange": 0, "skipped": True}

        # Step 4: how much does each reply count, and how do the models move?
        groups, found = move_models(method, groups, plan, updates, round)
        seconds["aggregation"] = work_clock() - begun
        return groups, {**notes, **found}

    @one_torch_thread()
    def serve(self, state: Groups) -> Served:
        """Which model serves each client."""
        served = call("serve", self.method.serve, state)
        if serves_as_sent(self.method.local.own_model):
            return served
        return replace(served, personal=self.method.local)


# --- parts of a round -----------------------------------------------------------------------------


def training_notes(method: Method, groups: Groups, plan: Plan, updates: Updates) -> dict[str, Any]:
    """What is known of a round once its clients have trained."""
    # Fig. 6 of FlexCFL counts one exchange per group and round with an inter-group step.
    exchange = groups.k
    if method.inter_group is None:
        exchange = 0
    return {**plan.notes, "replies": updates.replies, "exchange": exchange, "plan": plan}


@one_torch_thread()
def move_models(
    method: Method, groups: Groups, plan: Plan, updates: Updates, round: Round
) -> tuple[Groups, dict[str, Any]]:
    """The groups, after the reclustering, with models moved by the replies, and notes for the
    round's row."""
    before = groups.models
    weights = call("weigh", method.weigh, groups, updates, round.of("assign"))
    notes: dict[str, Any] = {"ids": updates.ids, "weights": weights}
    notes["loss"] = None
    if len(updates):
        notes["loss"] = float(np.average(updates.loss, weights=updates.size))
    combine = method.aggregate.combine
    combined = call("aggregate", combine, groups, updates, weights, plan, round)
    groups, total, trained, found = combined
    groups = call("server", method.server, groups, total, torch.from_numpy(trained))
    if method.inter_group is not None:
        groups = pull_shared(method.inter_group, method.local.stays, groups)
    groups = replace(groups, trained=trained)
    notes["discrepancy"] = None
    if len(updates) and updates.summed is None:
        notes["discrepancy"] = mean_discrepancy(before, groups.models, updates, plan.mixtures)
    return groups, {**notes, **found}
