"""The tree in which a method merged the clients, two by two."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import is_valid_linkage, leaves_list

from coterie.core.arrays import FloatArray, IntArray
from coterie.rules.signatures import SignatureMemory

SEVERAL_GROUPS = -2  # in place of a group's number: a branch with clients of several groups


@dataclass(frozen=True, slots=True)
class Tree:
    """Clients merged two by two.

    Args:
        links: float64 ``[n - 1, 4]``, a linkage matrix as SciPy's.
        leaves: int64 ``[n]``, the number of the client of each leaf.
        proximity: float64 ``[n, n]``, distances between the leaves, where they were kept.
        threshold: the height at which the tree is cut, if it is.
    """

    links: FloatArray
    leaves: IntArray
    proximity: FloatArray | None = None
    threshold: float | None = None

    @classmethod
    def of(cls, memory: SignatureMemory | None) -> Tree | None:
        """The tree of one-shot grouping; ``None`` if there is none that can be drawn."""
        if memory is None:
            return None
        links = memory.tree.astype(np.float64)
        leaves = memory.leaves.astype(np.int64)
        n = len(leaves)
        if not _drawable(links, n):
            return None
        proximity = None
        if memory.proximity is not None and memory.proximity.shape == (n, n):
            proximity = memory.proximity.astype(np.float64)
        # A method that cuts nowhere keeps infinity.
        threshold = memory.threshold if math.isfinite(memory.threshold) else None
        return cls(links, leaves, proximity, threshold)

    @property
    def rows(self) -> IntArray:
        """The leaves from left to right, as rows of the proximity matrix."""
        return leaves_list(self.links).astype(np.int64)

    @property
    def order(self) -> IntArray:
        """The clients from left to right."""
        return self.leaves[self.rows]


def _drawable(links: FloatArray, n: int) -> bool:
    """Whether these are the merges of ``n`` leaves: a checkpoint may hold anything."""
    if n < 2 or links.shape != (n - 1, 4):
        return False
    return bool(np.isfinite(links).all() and is_valid_linkage(links))


@dataclass(frozen=True, slots=True)
class Bracket:
    """A merge as it is drawn: up from one branch, across, and down to the other.

    Args:
        x: float64 ``[4]``, abscissae of its corners.
        y: float64 ``[4]``, their heights.
        group: the group of all clients under it, ``-2`` for several groups.
    """

    x: FloatArray
    y: FloatArray
    group: int

    @property
    def height(self) -> float:
        """The distance at the merge."""
        return float(self.y.max())


def brackets(tree: Tree, groups: IntArray) -> list[Bracket]:
    """A bracket for each merge.

    Args:
        tree: a tree with ``n`` leaves, at the positions 0, 1, ..., ``n - 1``.

    Example:
        >>> tree = Tree(np.array([[0.0, 1, 2, 2]]), np.arange(2))
        >>> (bracket,) = brackets(tree, np.array([3, 3]))
        >>> bracket.x.tolist(), bracket.y.tolist(), bracket.group
        ([0.0, 0.0, 1.0, 1.0], [0.0, 2.0, 2.0, 0.0], 3)
    """
    n = len(tree.leaves)
    # A node is a leaf, 0 to n - 1, or the merge n + i of row i: SciPy's numbering.
    centre = np.zeros(2 * n - 1)
    height = np.zeros(2 * n - 1)
    group = np.zeros(2 * n - 1, np.int64)
    centre[tree.rows] = np.arange(n)
    group[:n] = groups
    found = []
    # A merge stands in a later row than its branches, so one pass knows both.
    for i, (first, second, distance, _) in enumerate(tree.links):
        left, right = sorted((int(first), int(second)), key=lambda node: centre[node])
        node = n + i
        centre[node] = (centre[left] + centre[right]) / 2
        height[node] = distance
        group[node] = SEVERAL_GROUPS
        if group[left] == group[right]:
            group[node] = group[left]
        x = centre[[left, left, right, right]]
        y = np.array([height[left], distance, distance, height[right]])
        found.append(Bracket(x, y, int(group[node])))
    return found
