"""Equal-sized clusters at least cost, exactly: three solvers of the same transportation problem.

``minimise sum_k cost[k, label_k]`` such that every one of ``L`` clusters has exactly ``S`` of the
``n = L S`` clients (FedGSP eq. 10-13 with the centroids fixed). All three work on integer costs, so
that they end and agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from coterie.core.arrays import IntArray
from coterie.core.startup import starting_up
from coterie.errors import ConfigError, install_command
from coterie.math.similarity import Matrix

Exact = Literal["transport", "matching", "flow"]

# Costs have at most so many bits, so that sums of a million of them still fit into 64.
_BITS = 40

# The distance of what cannot be reached: beyond all sums of costs, and twice it still fits.
_FAR = np.int64(2**60)


def integer_costs(cost: Matrix) -> IntArray:
    """Costs as integers of at most 2^40: each row less its least entry, times a power of two.

    Costs that are integers already, and smaller, stay exact, so that ties stay ties.

    Example:
        >>> (integer_costs(np.array([[3.0, 1.0], [0.0, 0.5]])) / 2.0**39).tolist()
        [[1.0, 0.0], [0.0, 0.25]]
    """
    # A constant taken off a client's row changes no assignment, and leaves more bits.
    above = cost - cost.min(axis=1, keepdims=True)
    largest = float(above.max(initial=0.0))
    exponent = 0
    if largest > 0:
        exponent = _BITS - int(np.frexp(largest)[1])
    return np.rint(np.ldexp(above, exponent)).astype(np.int64)


@dataclass
class _Moves:
    """Who could leave which cluster for which other at least cost: an ``L x L`` graph.

    Args:
        cost: int64 ``[n, L]``.
        label: int64 ``[n]``, the cluster of each client now.
        step: int64 ``[L, L]``, the least ``cost[i, b] - cost[i, a]`` over the members ``i`` of
            ``a``.
        who: int64 ``[L, L]``, the member that has it.
    """

    cost: IntArray
    label: IntArray
    step: IntArray = field(init=False)
    who: IntArray = field(init=False)

    def __post_init__(self) -> None:
        clusters = self.cost.shape[1]
        self.step = np.full((clusters, clusters), _FAR)
        self.who = np.full((clusters, clusters), -1)
        self.update(range(clusters))

    def update(self, clusters: range | set[int]) -> None:
        """Compute the steps out of some clusters again, after their members changed."""
        for a in clusters:
            members = np.flatnonzero(self.label == a)
            if not len(members):
                self.step[a] = _FAR
                self.who[a] = -1
                continue
            dearer = self.cost[members] - self.cost[members, a][:, None]
            best = dearer.argmin(axis=0)
            self.step[a] = dearer[best, np.arange(len(best))]
            self.who[a] = members[best]

    def shortest_paths(self, sources: IntArray) -> tuple[IntArray, IntArray]:
        """The distance of each cluster from any of the sources, and its predecessor (-1: none),
        both ``[L]`` (Bellman-Ford).

        Steps may be negative, since a client need not be in its cheapest cluster any more. Cycles
        are not, since the assignment is optimal for the sizes it has; so the search ends.
        """
        clusters = len(self.step)
        distance = np.full(clusters, _FAR)
        before = np.full(clusters, -1)
        distance[sources] = 0
        active = sources
        while len(active):
            # One step from every cluster whose distance fell in the step before.
            via = distance[active, None] + self.step[active]
            best = via.argmin(axis=0)
            reached = via[best, np.arange(clusters)]
            nearer = np.flatnonzero(reached < distance)
            distance[nearer] = reached[nearer]
            before[nearer] = active[best[nearer]]
            active = nearer
        return distance, before

    def path(self, end: int, before: IntArray) -> list[tuple[int, int, int]]:
        """Who moves from where to where on the shortest path to ``end``."""
        found = []
        while before[end] >= 0:
            start = int(before[end])
            found.append((int(self.who[start, end]), start, end))
            end = start
        return found


def transport(cost: IntArray, size: int) -> IntArray:
    """The cluster of each client, int64 ``[n]``, by successive shortest paths over the clusters:
    ``L`` nodes instead of ``n``.

    All clients start in their cheapest cluster, which is optimal but for the sizes. Then clients move
    along shortest paths from clusters with too many to clusters with too few; each leaves the
    assignment optimal for the sizes it has. Several paths of one search are used when no client is
    on two of them: all their edges have zero reduced cost under the same distances.

    Example:
        >>> transport(np.array([[0, 5], [0, 1], [0, 9], [4, 4]]), 2).tolist()
        [0, 1, 0, 1]
    """
    label = cost.argmin(axis=1)
    count = np.bincount(label, minlength=cost.shape[1])
    moves = _Moves(cost, label)
    while (count > size).any():
        distance, before = moves.shortest_paths(np.flatnonzero(count > size))
        short = np.flatnonzero(count < size)
        nearest_first = short[np.argsort(distance[short], kind="stable")]
        moved: set[int] = set()
        touched: set[int] = set()
        for end in nearest_first.tolist():
            path = moves.path(end, before)
            source = path[-1][1]
            # A path of this search is void once its source has given enough away, or one of its
            # clients has moved; the next search finds another.
            if count[source] <= size or any(client in moved for client, _, _ in path):
                continue
            for client, start, stop in path:
                label[client] = stop
                moved.add(client)
                touched |= {start, stop}
            count[source] -= 1
            count[end] += 1
        moves.update(touched)
    return label


def matching(cost: IntArray, size: int) -> IntArray:
    """The same by ``scipy.optimize.linear_sum_assignment``, every column repeated ``size``
    times."""
    with starting_up():
        from scipy.optimize import linear_sum_assignment

    _, column = linear_sum_assignment(np.repeat(cost, size, axis=1))
    return column.astype(np.int64) // size


def flow(cost: IntArray, size: int) -> IntArray:
    """The same by OR-Tools' ``SimpleMinCostFlow``, as in FedGSP's section 3.3.

    Each client supplies 1, each cluster takes ``size``.
    """
    try:
        from ortools.graph.python.min_cost_flow import SimpleMinCostFlow
    except ImportError:
        what = "OR-Tools is not installed"
        do = f"install it with {install_command('flow')}, or use 'transport' or 'matching'"
        raise ConfigError("not-installed", "algorithm.solver", what, do=do) from None
    n, clusters = cost.shape
    solver = SimpleMinCostFlow()
    tail = np.repeat(np.arange(n), clusters)
    head = np.tile(n + np.arange(clusters), n)
    arcs = solver.add_arcs_with_capacity_and_unit_cost(
        tail, head, np.ones(n * clusters, np.int64), cost.ravel()
    )
    supply = np.concatenate([np.ones(n, np.int64), np.full(clusters, -size)])
    solver.set_nodes_supplies(np.arange(n + clusters), supply)
    status = solver.solve()
    assert status == solver.OPTIMAL, status
    return np.asarray(solver.flows(arcs)).reshape(n, clusters).argmax(axis=1)


SOLVERS: Mapping[Exact, Callable[[IntArray, int], IntArray]] = {
    "transport": transport,
    "matching": matching,
    "flow": flow,
}
