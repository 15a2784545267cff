"""Optional measures of a run, ``[train] measures = [...]``, `MEASURES` by name.

Each adds its own field to every row. To add one, write a factory next to these and name it in
`MEASURES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from coterie.clients.clients import Clients
from coterie.config import registry
from coterie.core.arrays import BoolArray, FloatArray, IntArray
from coterie.core.groups import NO_GROUP, Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.solver import Solver
from coterie.data.population import Population
from coterie.math.similarity import Matrix
from coterie.measures.groups import common_gamma, cpd_label, cpd_vector, divergence, median, totals
from coterie.measures.theory import Constants, bound, gradient_divergence
from coterie.methods.algorithm import Algorithm, method_of
from coterie.methods.method import Method
from coterie.rules.cluster_queries import ClusterMemory
from coterie.rules.inter_group import InterGroup, InterGroupStep


@dataclass(frozen=True, slots=True)
class RoundView:
    """What a measure sees of a round.

    Args:
        clients: what is asked with ``counts=False`` is no traffic.
        notes: what the round did; ``plan`` is who was to train, ``ids [n]`` and ``weights [k, n]``
            are the replies that counted, and how much.
        can_train: bool ``[N]``, who is present and holds training samples; ``None``: all.
    """

    clients: Clients
    population: Population
    groups: Groups
    notes: Mapping[str, Any]
    key: Key
    can_train: BoolArray | None = None


Measure = Callable[[RoundView], Mapping[str, Any]]


# The local solver and what the run does -> a measure.
MeasureFactory = Callable[[Solver, Method | Algorithm], Measure]


def theory(solver: Solver, method: Method | Algorithm) -> Measure:
    """The gradient divergence inside groups, and the bound on the loss that follows from it.

    The divergence is that of FlexCFL's Definition 2 at the current models, the bound that of
    FedGroup's eq. 19 or 22 for logistic regression. Adds ``theory``: ``divergence`` with these
    groups, ``divergence_one`` as if all were one group served by the mean of their models, and the
    ``bound`` of each (``None`` for a network that is not convex, or an inter-group rule whose
    shift has no known bound); all ``None`` if no client answers.
    """
    own = method_of(method)
    inter_group = None if own is None else own.inter_group

    def measure(view: RoundView) -> Mapping[str, Any]:
        groups = view.groups
        clients = view.clients
        many = gradient_divergence(clients, groups, view.key, view.can_train)
        key = view.key.of("one")
        one = gradient_divergence(clients, groups.merged(), key, view.can_train)
        found: dict[str, Any] = {
            "bound": None,
            "bound_one": None,
            "divergence": many,
            "divergence_one": one,
        }
        if many is not None and one is not None and _is_convex(clients):
            constants = Constants.of(view.population)
            shift = _largest_shift(inter_group, groups.models)
            if shift is not None:
                found["bound"] = bound(many, constants, solver, shift)
            found["bound_one"] = bound(one, constants, solver)
        return {"theory": found}

    return measure


def _is_convex(clients: Clients) -> bool:
    """Whether the network is logistic regression: one layer, with a bias, that reads the features.
    It may have more outputs than the data have classes."""
    layout = clients.layout
    if layout is None or not clients.classes:
        return False
    match layout.shapes[: layout.trainable]:
        case [(outputs, features), (biases,)]:
            return features == clients.features and outputs == biases >= clients.classes
    return False


def _largest_shift(inter_group: InterGroup | None, models: Tensor) -> float | None:
    """How far inter-group aggregation can move a model; ``None`` if that is not known."""
    if inter_group is None:
        return 0.0
    if isinstance(inter_group, InterGroupStep):
        return inter_group.largest_shift(models)
    return None


def balance(solver: Solver, method: Method | Algorithm) -> Measure:
    """How balanced the classes are from which a round's model learned.

    The clients' true label histograms are counted. Adds ``balance``: ``weighted`` by how much each
    reply counted (RFedAvg eq. 14), ``plain`` by its samples (eq. 2 over the replies) and ``all``
    clients' data (eq. 2). Each has the class shares ``b``, ``beta = max b / min b`` (eq. 3,
    ``None`` if a class is missing) and ``distance = |b - 1/M|^2`` (eq. 15). If the method clusters
    updates, it also has the number of clusters (``clusters``) and the number of those to which the
    guard against ``I_C <= 0`` was applied (``guarded``). ``None`` for a round that was skipped.

    Several models are weighted by the samples that they were trained on. A chain is one reply, with
    the labels of all its clients, including those that were lost on the way.
    """

    def measure(view: RoundView) -> Mapping[str, Any]:
        if "weights" not in view.notes:
            return {"balance": None}
        ids = view.notes["ids"]
        weights = view.notes["weights"]
        histograms = view.population.histograms().astype(np.float64)
        held = _labels_of_replies(view.notes["plan"], ids, histograms)
        size = held.sum(axis=1)
        # How much each reply counts over all models [n]: by its weights [k, n] in each model, and
        # each model by the samples that it was trained on.
        samples = (weights != 0) @ size
        reply = samples / max(1.0, samples.sum()) @ weights
        found: dict[str, Any] = {
            "weighted": evenness(reply @ (held / np.maximum(size, 1)[:, None])),
            "plain": evenness(held.sum(axis=0)),
            "all": evenness(histograms.sum(axis=0)),
        }
        memory = view.groups.memory.get(ClusterMemory)
        if memory is not None and memory.cluster is not None:
            found["clusters"] = int(memory.cluster.max()) + 1
            if memory.imbalance is not None:
                found["guarded"] = memory.guarded(ids)
        return {"balance": found}

    return measure


def _labels_of_replies(plan: Plan, ids: IntArray, histograms: Matrix) -> Matrix:
    """The label histogram behind each reply, ``[n, c]``: the client's own, or the sum over its
    chain."""
    if plan.chain is None:
        return histograms[ids]
    link = np.full(len(histograms), NO_GROUP)
    link[plan.ids] = np.unique(plan.chain, return_inverse=True)[1]
    return totals(histograms, link)[link[ids]]


def evenness(counts: FloatArray) -> dict[str, Any]:
    """Class shares ``b``, ``beta`` and the squared distance to equal shares.

    Example:
        >>> evenness(np.array([3.0, 1.0]))
        {'b': [0.75, 0.25], 'beta': 3.0, 'distance': 0.125}
    """
    b = counts / counts.sum()
    beta = None
    if b.min() > 0:
        beta = float(b.max() / b.min())
    return {"b": b.tolist(), "beta": beta, "distance": float(((b - 1 / len(b)) ** 2).sum())}


def cpd(solver: Solver, method: Method | Algorithm) -> Measure:
    """How similar the groups are that were trained in parallel in a round.

    The clients' true label histograms are counted. A group is a chain of the plan, or a client if
    there are no chains. Adds ``cpd``: the number of ``groups``, the median class probability
    distance over their pairs in both readings of FedGSP's eq. 14 (``label``, and ``vector`` with
    the ``common_gamma`` of all clients; ``None`` for fewer than two groups) and the ``divergence``
    of their label counts (eq. 4).
    """

    def measure(view: RoundView) -> Mapping[str, Any]:
        plan = view.notes.get("plan")
        if plan is None:
            return {"cpd": None}
        group = np.arange(len(plan.ids)) if plan.chain is None else plan.chain
        held = view.population.histograms().astype(np.float64)
        total = totals(held[plan.ids], group)
        # The width is that of all clients, so that it is the same for every grouping of them.
        gamma = common_gamma(held)
        found = {"label": median(cpd_label(total)), "vector": median(cpd_vector(total, gamma))}
        return {"cpd": {"groups": len(total), **found, "divergence": divergence(total)}}

    return measure


MEASURES: Mapping[str, MeasureFactory] = {"balance": balance, "cpd": cpd, "theory": theory}
COUNT_CLASSES = ("balance", "cpd")


def make_measures(
    names: tuple[str, ...], solver: Solver, method: Method | Algorithm
) -> tuple[Measure, ...]:
    """The measures of these names of `MEASURES`."""
    given = {"solver": solver, "method": method}
    return tuple(registry.build("measure", {"name": name}, **given) for name in names)
