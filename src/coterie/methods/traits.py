"""What a method, a task and a network are and need, as traits."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from coterie.core.objective import AddsToTask
from coterie.core.own_model import SendsSecondVector
from coterie.core.task import Smoothable, Task, is_classes
from coterie.core.training import FullGradient, Phases
from coterie.core.traits import Need, Occasion, Trait, holding
from coterie.core.vectors import Layout
from coterie.local.training.probe import has_running_statistics
from coterie.methods.algorithm import Algorithm, method_of
from coterie.methods.method import Method
from coterie.rules.assigning import PlacesClients, StartsPrivately
from coterie.rules.migration import Migrating
from coterie.rules.soft_groups import ByShare
from coterie.rules.weighing import WeighsAlone, by_size, evenly, mean

# What needs no single client's updates or data.
NOT_OF_CLIENTS: frozenset[Need] = frozenset({"class_labels", "all_clients"})
# In every round; the others only now and then.
IN_ROUNDS: tuple[Occasion, ...] = ("chains", "grouping", "second_vector", "weights", "shares")
# In the order in which a run comes to them.
WORDS: Mapping[Occasion, str] = {
    "start": "before the first groups",
    "newcomers": "of clients that join later",
    "chains": "a model passes from client to client",
    "grouping": "updates decide the groups",
    "second_vector": "each moves the vector next to the model by its own number of steps",
    "weights": "weights depend on other replies",
    "shares": "a reply counts for several models",
    "data": "all data are pooled",
}


def traits_of(made: Method | Algorithm) -> frozenset[Trait]:
    """What a method is and needs.

    Args:
        made: a method, or an algorithm with a step of its own.

    Example:
        >>> from coterie.algorithms import fedem
        >>> sorted(traits_of(fedem(groups=2)))
        ['mixture', 'places_nobody', 'reads_clients', 'statistics']
    """
    method = method_of(made)
    if method is None:
        if isinstance(made, Algorithm) and made.samples_cohort:
            return frozenset({"own_step", "all_clients"})
        return frozenset({"own_step"})
    local = method.local
    needs = _needs(method)
    assign = method.assign
    if isinstance(assign, Migrating):
        assign = assign.assign
    start: frozenset[Trait] = frozenset()
    private = isinstance(assign, StartsPrivately)
    if isinstance(assign, StartsPrivately):
        start = assign.start_traits()
    sums = method.aggregate.sums
    found: dict[Trait, bool] = {
        "migrates": isinstance(method.assign, Migrating),
        "places_nobody": not isinstance(assign, PlacesClients),
        "groups_late": method.groups < 2 or local.choose is not None,
        "regroups": method.recluster is not None,
        "moves_second_vector": isinstance(local.own_model, SendsSecondVector),
        "starts_privately": private,
        "reads_clients": bool(needs - NOT_OF_CLIENTS) and not private,
        "weighs_unevenly": method.weigh not in (by_size, evenly) or not sums,
        "sums_of_a_round": sums and method.aggregate != mean(),
        "mixture": local.mixture is not None,
        "full_gradient": isinstance(local.how, FullGradient),
        "phases": isinstance(local.how, Phases),
        "own_model": local.own_model is not None,
        "plain_steps": local.own_model is not None and local.own_model.plain_sgd,
        "whole_loss": not isinstance(local.objective, AddsToTask),
        "keeps_layers": local.keep is not None,
        "uploads_a_part": local.upload is not None,
    }
    return frozenset({*needs, *single_updates(method), *start, *holding(found)})


def traits_of_task(task: Task) -> frozenset[Trait]:
    """What a task is that some features do not work with."""
    return holding(
        {
            "no_classes": not task.class_labels,
            "no_probabilities": not is_classes(task),
            "no_smoothing": not isinstance(task, Smoothable),
        }
    )


def traits_of_network(module: nn.Module) -> frozenset[Trait]:
    """What a network is that some features do not work with."""
    layout = Layout.of(module)
    return holding(
        {
            "running_statistics": has_running_statistics(module),
            "moving_buffers": layout.trainable < len(layout.names),
        }
    )


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
    if isinstance(method.local.own_model, SendsSecondVector) and method.recluster is not None:
        found.add("second_vector")
    elif method.recluster is not None:
        found.add("grouping")
    # A client adds to one sum in secure aggregation, and would have to add to each model's.
    if isinstance(method.weigh, ByShare):
        found.add("shares")
    # By its own samples alone, a client can multiply its update before it is added to the others.
    elif not (isinstance(method.weigh, WeighsAlone) and method.aggregate.sums):
        found.add("weights")
    return tuple(occasion for occasion in WORDS if occasion in found)
