"""Vertices that alone hold a graph together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from coterie.math.graphs import cut_vertices


@pytest.mark.parametrize("seed", range(40))
def test_cut_vertices_are_those_without_which_there_are_more_parts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 14))
    adjacent = rng.random((n, n)) < rng.uniform(0.05, 0.3)
    adjacent = adjacent | adjacent.T
    expected = []
    for j in range(n):
        others = np.delete(np.arange(n), j)
        parts, _ = connected_components(adjacent[np.ix_(others, others)], directed=False)
        before, part = connected_components(adjacent, directed=False)
        alone = int((part == part[j]).sum() == 1)
        if parts > before - alone:
            expected.append(j)
    assert cut_vertices(adjacent) == expected


def test_a_graph_without_vertices_has_no_cut_vertex() -> None:
    assert cut_vertices(np.zeros((0, 0), bool)) == []
