"""A federated method as a record of rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.core.updates import Updates
from coterie.core.work import Train
from coterie.objectives import plain
from coterie.rules.assigning import Assign, Serve, by_group
from coterie.rules.combining import Aggregate, mean
from coterie.rules.inter_group import InterGroup
from coterie.rules.server import Server, sgd
from coterie.rules.weighing import Weigh, by_size

# What an assign rule reads of single clients: the updates of a training of its own, before the first
# groups or of newcomers; models that pass from client to client; what they say of their data; all
# of their data.
Reading = Literal["start", "newcomers", "chains", "statistics", "data"]
Recluster = Callable[[Groups, Updates, Round], tuple[Groups, Updates]]
InitialModels = Callable[[int], Tensor]


@dataclass(frozen=True, slots=True)
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
        groups: number of models at the start.
        distinct_init: the models start from different initialisations, not all from ``w_0``.
        at_most_clients: with fewer clients than ``groups``, start with as many models as clients;
            else that is an error.
        samples_cohort: the assign rule samples its clients itself, so its cohort is every client
            that can train.
        pools_data: all clients' training data are brought to one place, as no federation does.
        counts_classes: a rule reads how many samples of each class clients hold, or their accuracy,
            so the targets of the task must be classes.
        reads: what the assign rule reads of single clients beside the sums of their updates, ``()``
            for nothing; ``None``: it does not say. What the other rules read follows from them, see
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
    groups: int = 1
    distinct_init: bool = False
    at_most_clients: bool = False
    samples_cohort: bool = False
    pools_data: bool = False
    counts_classes: bool = False
    reads: tuple[Reading, ...] | None = None
    # Not copied by `replace`: a method that was changed is not the one that a factory made.
    made_by: Mapping[str, Any] | None = field(default=None, init=False, compare=False, repr=False)
