"""A federated method as a record of rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.config.problems import Problem, refuse
from coterie.core.groups import Groups
from coterie.core.updates import Updates
from coterie.core.work import Train
from coterie.objectives import plain
from coterie.rules.assigning import Assign, Serve, by_group
from coterie.rules.combining import Aggregate, mean
from coterie.rules.inter_group import InterGroup
from coterie.rules.server import Server, sgd
from coterie.rules.weighing import Weigh, by_size

# What a method needs of single clients, apart from the sums of their updates: updates of a training
# that an assign rule asks for, before the first groups or of newcomers; that models pass from client
# to client; what clients say of their data; all of their data; targets that are classes, since some
# rule counts them; or that all clients can be asked in each round, of which the rule takes a sample.
Need = Literal["start", "newcomers", "chains", "statistics", "data", "class_labels", "all_clients"]
Recluster = Callable[[Groups, Updates, Round], tuple[Groups, Updates]]
InitialModels = Callable[[int], Tensor]


@dataclass(frozen=True, slots=True)
class FirstModels:
    """The models before the first round.

    Args:
        groups: how many.
        distinct: they start from different initialisations, not all from ``w_0``.
        at_most_clients: with fewer clients than ``groups``, start with as many models as clients;
            else that is an error.
    """

    groups: int = 1
    distinct: bool = False
    at_most_clients: bool = False

    def make(self, initial_models: InitialModels, clients: int) -> Tensor:
        """The models, float32 ``[k, d]``.

        Args:
            initial_models: ``j -> [d]``, the ``j``-th initialisation of the network.
            clients: number of clients.

        Raises:
            ConfigError: for fewer clients than groups.
        """
        k = self.groups
        if self.at_most_clients:
            k = min(k, clients)
        if clients < k:
            expected = f"1 to {clients}"
            refuse(Problem("algorithm.groups", "more groups than clients", k, expected))
        which = range(k) if self.distinct else [0] * k
        return torch.stack([initial_models(j).to(torch.float32) for j in which])


@dataclass(frozen=True)
class Method:
    """A federated method: the answers to eight questions, and how its first models are made.

    Args:
        assign: who trains from which model, and after whom?
        local: what does a client do, and what does it keep?
        recluster: do the replies change the groups? ``None``: they do not.
        weigh: how much does each reply count for each model? One matrix ``W [k, n]``.
        aggregate: what do the weighted replies make together? Their mean, a robust average, or a sum
            with noise or as secure aggregation computes it.
        server: how does a model move on the weighted update?
        inter_group: do the models pull on each other? ``None``: they do not.
        serve: what serves a client?
        first: the models before the first round.
        needs: what it needs of single clients apart from the sums of their updates, ``()`` for
            nothing; ``None``: it does not say. What the other rules read follows from them, see
            ``coterie.methods.traits``.

    ``made_by`` is the table ``[algorithm]`` of the same method, where a factory of Coterie made it.

    Example:
        >>> from coterie.rules.assigning import everyone
        >>> fedavg = Method(assign=everyone)
    """

    assign: Assign
    local: Train = Train(plain)
    recluster: Recluster | None = None
    weigh: Weigh = by_size
    aggregate: Aggregate = mean()
    server: Server = sgd(1.0)
    inter_group: InterGroup | None = None
    serve: Serve = by_group
    first: FirstModels = FirstModels()
    needs: tuple[Need, ...] | None = None

    # Set by a factory on what it made. No field: a method that `replace` changed is another one.
    made_by: ClassVar[Mapping[str, Any] | None] = None

    @property
    def groups(self) -> int:
        """Number of models at the start."""
        return self.first.groups
