"""The tree of the clients, and their distances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from coterie.report.figures.heat_map import heat_map
from coterie.report.figures.trees import dendrogram
from coterie.report.tree import Tree
from tests.report.pages import HOSTILE, data_of, linkage_memory


def test_a_tree_that_cannot_be_drawn_is_not_drawn():
    whole = linkage_memory()
    assert Tree.of(whole).threshold == 4
    for name, value in (
        ("tree", np.zeros((2, 4))),
        ("tree", np.full((5, 4), np.nan)),
        ("leaves", np.zeros(0, np.int64)),
    ):
        assert Tree.of(replace(whole, **{name: value})) is None
    assert Tree.of(replace(whole, threshold=float("inf"))).threshold is None
    assert Tree.of(replace(whole, proximity=np.zeros((5, 5)))).proximity is None
    assert Tree.of(None) is None


def test_dendrogram_colours_a_merge_by_its_group_and_names_the_leaves():
    groups = np.array([1, 0, 1, 0, 1, 0])
    names = [HOSTILE, *"bcdef"]
    found = Tree.of(linkage_memory())
    spec = dendrogram(found, groups, names)
    assert set(data_of(spec, "group", "merge")) >= {("several", 4)}
    assert [
        merge for group, merge in set(data_of(spec, "group", "merge")) if group == "several"
    ] == [4]
    ends = sorted(data_of(spec, "x", "client", "group"))
    assert [client for _, client, _ in ends] == [names[i] for i in found.order]
    assert sorted(found.order) == list(range(6))
    assert {(client, group) for _, client, group in ends} == {
        (n, f"group {g}") for n, g in zip(names, groups, strict=True)
    }


@pytest.mark.parametrize(("n", "cells"), [(6, 6), (150, 100)])
def test_heat_map_shows_the_matrix_in_the_order_of_the_tree(n, cells):
    found = Tree.of(linkage_memory(n))
    rows = found.rows
    groups = np.arange(n) % 2
    names = [str(i) for i in range(n)]
    spec = heat_map(found.proximity, rows, groups, names)
    shown = {(a, b): d for a, b, d in data_of(spec, "a", "b", "distance")}
    assert len(shown) == cells * cells
    if n == cells:
        assert shown[0, 1] == pytest.approx(found.proximity[rows[0], rows[1]], rel=1e-5)
        assert [who for _, who in sorted(set(data_of(spec, "at", "who")))] == [
            names[i] for i in rows
        ]
    else:
        assert all(np.isfinite(list(shown.values())))
