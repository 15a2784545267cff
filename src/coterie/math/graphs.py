"""Graphs of clusters that are alike."""

from __future__ import annotations

import numpy as np

from coterie.core.arrays import BoolArray


def cut_vertices(adjacent: BoolArray) -> list[int]:
    """The vertices without which a connected part of the graph falls apart, ascending.

    Args:
        adjacent: ``[n, n]``, symmetric; its diagonal is not used.

    Source: Hopcroft and Tarjan, Algorithm 447: Efficient Algorithms for Graph Manipulation (1973),
    by a depth-first search. It takes ``O(n^2)`` time.

    Example:
        >>> path = np.abs(np.subtract.outer(np.arange(4), np.arange(4))) == 1
        >>> cut_vertices(path)
        [1, 2]
    """
    neighbours = [np.flatnonzero(row).tolist() for row in adjacent]
    visited = [-1] * len(neighbours)  # the vertex's number in the order of the search
    # The lowest such number that is reached from below the vertex past its parent.
    low = list(visited)
    found = set()
    count = 0
    for root in range(len(neighbours)):
        if visited[root] >= 0:
            continue
        children = 0
        visited[root] = low[root] = count
        count += 1
        path = [(root, iter(neighbours[root]))]
        while path:
            vertex, ahead = path[-1]
            other = next(ahead, None)
            if other is None:
                path.pop()
                if not path:
                    continue
                parent = path[-1][0]
                low[parent] = min(low[parent], low[vertex])
                if parent == root:
                    children += 1
                elif low[vertex] >= visited[parent]:
                    found.add(parent)
            elif visited[other] < 0:
                visited[other] = low[other] = count
                count += 1
                path.append((other, iter(neighbours[other])))
            else:
                low[vertex] = min(low[vertex], visited[other])
        if children > 1:
            found.add(root)
    return sorted(found)
