"""Optional measures of a run, ``[train] measures = [...]``: each adds its own fields to every
row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coterie.algorithms.rfedavg import ClusterMemory, guarded
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.groups import NO_GROUP
from coterie.core.plan import Plan
from coterie.core.solver import Solver
from coterie.math.similarity import Matrix
from coterie.measures.groups import common_gamma, cpd_label, cpd_vector, divergence, median, totals
from coterie.measures.theory import Constants, bound, gradient_divergence
from coterie.measures.view import Measure, RoundView

MeasureFactory = Callable[[Solver, Mapping[str, Any]], Measure]


def theory(solver: Solver, options: Mapping[str, Any]) -> Measure:
    """The divergence of Definition 2 at the current models and, for logistic regression, the bound
    of eq. 19 or 22.

    Adds ``theory``: ``divergence`` with these groups, ``divergence_one`` as if all were one group
    served by the mean of their models, and the ``bound`` of each (``None`` for a network that is
    not convex); all ``None`` if nobody answers.
    """
    eta_g = float(options.get("eta_g", 0.0))

    def measure(look: RoundView) -> Mapping[str, Any]:
        found: dict[str, Any] = {"bound": None, "bound_one": None}
        groups = look.groups
        one = groups.merged()
        many = found["divergence"] = gradient_divergence(look.door, groups, look.key)
        single = found["divergence_one"] = gradient_divergence(look.door, one, look.key.of("one"))
        if many is None or single is None:
            return {"theory": found}
        if groups.models.shape[1] == (look.door.features + 1) * look.door.classes:
            constants = Constants.of(look.population)
            found["bound"] = bound(many, constants, solver, eta_g, groups.k)
            found["bound_one"] = bound(single, constants, solver)
        return {"theory": found}

    return measure


def balance(solver: Solver, options: Mapping[str, Any]) -> Measure:
    """How equal the classes are that a round's model learned from, by the clients' true label
    histograms.

    Adds ``balance``: ``weighted`` by how much each reply counted (RFedAvg eq. 14), ``plain`` by its
    samples (eq. 2 over the replies) and ``all`` clients' data (eq. 2), each with the class shares
    ``b``, ``beta = max b / min b`` (eq. 3, ``None`` where a class is missing) and ``distance = |b -
    1/M|^2`` (eq. 15); and where the method makes clusters of updates, how many (``clusters``) and
    for how many the guard against ``I_C <= 0`` stood in (``guarded``). ``None`` for a round that
    was skipped. Several models count by the samples they were trained on. A chain is one reply,
    with the labels of all its clients, also of those that were lost on the way.
    """

    def measure(look: RoundView) -> Mapping[str, Any]:
        if "weights" not in look.notes:
            return {"balance": None}
        ids = look.notes["ids"]
        weights = look.notes["weights"]
        histograms = look.population.histograms().astype(np.float64)
        held = _behind(look.notes["plan"], ids, histograms)
        size = held.sum(axis=1)
        samples = (weights != 0) @ size
        reply = samples / max(1.0, samples.sum()) @ weights
        found: dict[str, Any] = {
            "weighted": evenness(reply @ (held / np.maximum(size, 1)[:, None])),
            "plain": evenness(held.sum(axis=0)),
            "all": evenness(histograms.sum(axis=0)),
        }
        memory = look.groups.memory.get(ClusterMemory)
        if memory is not None and memory.cluster is not None:
            found["clusters"] = int(memory.cluster.max()) + 1
            if memory.imbalance is not None:
                found["guarded"] = guarded(memory, ids)
        return {"balance": found}

    return measure


def _behind(plan: Plan, ids: IntArray, histograms: Matrix) -> Matrix:
    """The labels behind each reply: the client's, or those of all clients planned in the chain that
    it ended."""
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
    beta = float(b.max() / b.min()) if b.min() > 0 else None
    return {"b": b.tolist(), "beta": beta, "distance": float(((b - 1 / len(b)) ** 2).sum())}


def cpd(solver: Solver, options: Mapping[str, Any]) -> Measure:
    """How alike the groups are that a round trained in parallel, by the clients' true label
    histograms.

    A group is a chain of the plan, or a client where everybody trains alone. Adds ``cpd``: the
    number of ``groups``, the median class probability distance over their pairs in both readings of
    FedGSP's eq. 14 (``label``, and ``vector`` with the ``common_gamma`` of all clients; ``None``
    for fewer than two groups) and the ``divergence`` of their label counts (eq. 4).
    """

    def measure(look: RoundView) -> Mapping[str, Any]:
        plan = look.notes.get("plan")
        if plan is None:
            return {"cpd": None}
        group = np.arange(len(plan.ids)) if plan.chain is None else plan.chain
        held = look.population.histograms().astype(np.float64)
        total = totals(held[plan.ids], group)
        gamma = common_gamma(held)
        found = {"label": median(cpd_label(total)), "vector": median(cpd_vector(total, gamma))}
        return {"cpd": {"groups": len(total), **found, "divergence": divergence(total)}}

    return measure


MEASURES: Mapping[str, MeasureFactory] = {"balance": balance, "cpd": cpd, "theory": theory}


def make_measures(
    names: tuple[str, ...], solver: Solver, options: Mapping[str, Any]
) -> tuple[Measure, ...]:
    """The measures of these names, for a run with this solver and these options of its
    algorithm."""
    return tuple(MEASURES[name](solver, options) for name in names)
