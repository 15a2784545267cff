"""What a method and a task are and need, as traits, and features of a run that do not work with some
of them.

A feature declares which traits it forbids, with the words for the user. What is refused, and when,
is this one loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from coterie.core.own_model import SendsBeside
from coterie.core.task import Task
from coterie.core.training import FullGradient, Phases
from coterie.errors import ConfigError
from coterie.methods.algorithm import Algorithm, method_of
from coterie.methods.buffered import Buffered
from coterie.methods.method import Method, Need
from coterie.rules.migration import Migrating
from coterie.rules.soft_groups import ByShare
from coterie.rules.weighing import WeighsAlone, by_size, evenly, mean

# When the server needs the updates of single clients, and not only the sum of each group's.
Occasion = Literal[
    "start", "newcomers", "chains", "data", "grouping", "beside", "weights", "shares"
]
Trait = (
    Need
    | Occasion
    | Literal[
        "own_step",  # nothing is known of what it does
        "asynchronous",
        "migrates",
        "regroups",  # by the updates of a round
        "moves_beside",  # a second vector, by the updates of a round
        "reads_clients",  # more than sums of their updates
        "weighs_unevenly",  # or combines replies in its own way
        "sums_of_a_round",  # with noise, or as secure aggregation computes them
        "mixture",
        "full_gradient",
        "phases",
        "own_model",
        "keeps_layers",
        "uploads_a_part",
        "no_classes",  # of a task: its targets are none
    ]
)

# What needs no single client's updates or data.
NOT_OF_CLIENTS: frozenset[Need] = frozenset({"class_labels", "all_clients"})
# In every round; the others only now and then.
IN_ROUNDS: tuple[Occasion, ...] = ("chains", "grouping", "beside", "weights", "shares")
# In the order in which a run comes to them.
WORDS: Mapping[Occasion, str] = {
    "start": "before the first groups",
    "newcomers": "of clients that join later",
    "chains": "a model passes from client to client",
    "grouping": "updates decide the groups",
    "beside": "each moves the vector beside the model by its own number of steps",
    "weights": "weights depend on other replies",
    "shares": "a reply counts for several models",
    "data": "all data are in one place",
}


def traits_of(made: Method | Algorithm) -> frozenset[Trait]:
    """What a method is and needs.

    Args:
        made: a method, or an algorithm with a step of its own.

    Example:
        >>> from coterie.algorithms import fedem
        >>> sorted(traits_of(fedem(groups=2)))
        ['mixture', 'reads_clients', 'statistics']
    """
    method = method_of(made)
    if method is None:
        return frozenset({"own_step"})
    local = method.local
    needs = _needs(method)
    sums = method.aggregate.sums
    found: dict[Trait, bool] = {
        "asynchronous": isinstance(made, Buffered),
        "migrates": isinstance(method.assign, Migrating),
        "regroups": method.recluster is not None,
        "moves_beside": isinstance(local.own_model, SendsBeside),
        "reads_clients": bool(needs - NOT_OF_CLIENTS),
        "weighs_unevenly": method.weigh not in (by_size, evenly) or not sums,
        "sums_of_a_round": sums and method.aggregate != mean(),
        "mixture": local.mixture is not None,
        "full_gradient": isinstance(local.how, FullGradient),
        "phases": isinstance(local.how, Phases),
        "own_model": local.own_model is not None,
        "keeps_layers": local.keep is not None,
        "uploads_a_part": local.upload is not None,
    }
    return frozenset(
        {*needs, *single_updates(method), *(trait for trait, holds in found.items() if holds)}
    )


def traits_of_task(task: Task) -> frozenset[Trait]:
    """What a task is that some features do not work with."""
    if task.class_labels:
        return frozenset()
    return frozenset({"no_classes"})


def _needs(method: Method) -> frozenset[Need]:
    """What a method says that it needs; one that says nothing is taken to read updates."""
    if method.needs is None:
        return frozenset({"start", "newcomers"})
    return frozenset(method.needs)


def single_updates(method: Method) -> tuple[Occasion, ...]:
    """When the server needs updates of single clients; empty where the weighted sum of each group's
    updates, and the sum of their weights, are enough.

    A sum of each group's updates is what secure aggregation would let a server see. What the rules
    `recluster`, `weigh` and `aggregate` read follows from them. What `assign` reads is declared by
    the method (``Method.needs``); a method that declares nothing is taken to read updates before its
    first groups and those of newcomers. Bounds that compare norms of updates are an option of a run
    and are not counted here.

    Args:
        method: the method.

    Example:
        >>> from coterie.algorithms import fedavg, fedgroup, ida
        >>> single_updates(fedavg()), single_updates(fedgroup()), single_updates(ida())
        ((), ('start',), ('weights',))
    """
    found: set[str] = {*_needs(method)}
    if isinstance(method.local.own_model, SendsBeside) and method.recluster is not None:
        found.add("beside")
    elif method.recluster is not None:
        found.add("grouping")
    # A client adds to one sum in secure aggregation, and would have to add to each model's.
    if isinstance(method.weigh, ByShare):
        found.add("shares")
    # By its own samples alone, a client can multiply its update before it is added to the others.
    elif not (isinstance(method.weigh, WeighsAlone) and method.aggregate.sums):
        found.add("weights")
    return tuple(occasion for occasion in WORDS if occasion in found)


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that a run can have, and the methods and tasks that it does not work with.

    Args:
        path: the key of its error lines.
        instead: what is expected in its place, in words.
        forbids: the traits that it does not work with, and why, in the order in which they are named.
    """

    path: str
    instead: str
    forbids: Mapping[Trait, str]

    def check(self, traits: Collection[Trait], got: Any) -> None:
        """Refuse a method or a task that the feature does not work with.

        Raises:
            ConfigError: naming the first reason.
        """
        for trait, why in self.forbids.items():
            if trait in traits:
                raise ConfigError("does-not-fit", self.path, why, got=got, allowed=self.instead)
