"""How clients were merged, and who is near whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from coterie.core.arrays import FloatArray, IntArray
from coterie.headline import decimals_for
from coterie.report.figures.heat_map import heat_map
from coterie.report.figures.style import (
    MOST_COLUMNS,
    MOST_ROWS,
    Spec,
    colour_by_group,
    group_name,
    to_spec,
    tooltip,
)
from coterie.report.render import Section, Table, chart_section
from coterie.report.tree import Bracket, Tree, brackets
from coterie.report.view import RunView
from coterie.terminal import number_text

MOST_NAMES = 40  # clients whose names are written under the tree
LETTERS = 16  # of such a name
GROUND = alt.datum(0)  # the height at which the clients stand
TREE_NOTE = (
    "Two branches meet at the height of the distance between them. Colour is the group. A grey "
    "branch holds clients of several groups."
)
DISTANCE_NOTE = (
    "Distances between clients, in the order of the tree above. The strips show their groups."
)


def tree_sections(run: RunView, number: int) -> list[Section]:
    """The tree of the merges and the distances between the clients, where they were kept."""
    tree = run.tree
    # A tree of more clients than the run has is of another run.
    if tree is None or len(run.groups) <= tree.leaves.max():
        return []
    spec = dendrogram(tree, run.groups, run.names)
    title = "How clients were merged"
    found = [chart_section(title, TREE_NOTE, f"tree-{number}", spec, merge_table(tree))]
    if tree.proximity is None:
        return found
    names = [str(run.names[i]) for i in tree.leaves]
    spec = heat_map(tree.proximity, tree.rows, run.groups[tree.leaves], names)
    table = distance_table(tree, run.groups)
    near = chart_section("Who is near whom", DISTANCE_NOTE, f"near-{number}", spec, table)
    return [*found, {**near, "square": True}]


def dendrogram(tree: Tree, groups: IntArray, names: Sequence[str]) -> Spec:
    """The merges of the clients: two of them meet at the height of their distance."""
    of_leaves = groups[tree.leaves]
    merges = brackets(tree, of_leaves)
    n = len(of_leaves)
    colour = colour_by_group([*of_leaves, *(merge.group for merge in merges)])
    # Room for half a mark at both ends.
    scale = alt.Scale(domain=[-0.7, n - 0.3], nice=False)
    across = alt.X("x:Q", title=None, axis=None, scale=scale)
    clients = [
        {"x": i, "client": str(names[c]), "group": group_name(int(groups[c]))}
        for i, c in enumerate(tree.order)
    ]
    leaves = alt.Chart(pd.DataFrame(clients)).encode(
        x=across, tooltip=tooltip("client:N", "group:N")
    )
    size = 30 if n > MOST_NAMES else 60
    marks = leaves.mark_point(filled=True, size=size, opacity=1).encode(colour, y=GROUND)
    layers: list[Any] = [_branches(merges, across, colour), marks]
    if n <= MOST_NAMES:
        # The legend makes way for the names, which are written upwards.
        longest = max(len(str(names[c])) for c in tree.order)
        colour.legend = alt.Legend(offset=24 + 6 * min(LETTERS, longest))
        short = leaves.transform_calculate(short=f"slice(datum.client, 0, {LETTERS})")
        text = short.mark_text(angle=270, align="right", dx=-9, fontSize=11)
        layers.append(text.encode(text=alt.Text("short:N"), y=GROUND))
    if tree.threshold is not None:
        layers += _cut(tree.threshold, n)
    return to_spec(alt.layer(*layers), 320)


def _branches(merges: Sequence[Bracket], across: alt.X, colour: alt.Color) -> alt.Chart:
    corners = [
        {
            "x": float(merge.x[corner]),
            "y": float(merge.y[corner]),
            "group": group_name(merge.group),
            "merge": i,
            "corner": corner,
            "height": merge.height,
        }
        for i, merge in enumerate(merges)
        for corner in range(4)
    ]
    lines = alt.Chart(pd.DataFrame(corners)).mark_line(
        strokeWidth=1.6, strokeJoin="miter", interpolate="linear"
    )
    return lines.encode(
        across,
        alt.Y("y:Q", title="distance at the merge"),
        colour,
        alt.Detail("merge:N"),
        order=alt.Order("corner:O"),
        tooltip=tooltip("group:N", alt.Tooltip("height:Q", format=".4g")),
    )


def _cut(threshold: float, n: int) -> list[Any]:
    frame = pd.DataFrame([{"y": threshold, "x": n - 0.3, "text": f"cut at {threshold:.4g}"}])
    base = alt.Chart(frame).encode(y=alt.Y("y:Q"))
    text = base.mark_text(align="right", dy=-7, fontSize=11, opacity=0.8)
    return [
        base.mark_rule(strokeDash=[5, 4], opacity=0.7),
        text.encode(x=alt.X("x:Q"), text=alt.Text("text:N")),
    ]


def merge_table(tree: Tree) -> Table:
    """The last merges of a tree, from the highest."""
    # The last merges are those that decide the groups.
    last = tree.links[::-1][:MOST_ROWS]
    decimals = decimals_for(float(last[0][2]) or 1.0)
    rows = [[f"{distance:.{decimals}f}", f"{int(clients)}"] for *_, distance, clients in last]
    return ["distance at the merge", "clients under it"], rows


def distance_table(tree: Tree, groups: np.ndarray) -> Table:
    """Mean distance between the clients of two groups."""
    assert tree.proximity is not None
    of_leaves = groups[tree.leaves]
    known = [int(group) for group in np.unique(of_leaves)][:MOST_COLUMNS]
    decimals = decimals_for(float(np.nanmax(tree.proximity)) or 1.0)
    rows = []
    for a in known:
        blocks = [tree.proximity[np.ix_(of_leaves == a, of_leaves == b)] for b in known]
        means = [_mean(block, a == b) for b, block in zip(known, blocks, strict=True)]
        rows.append([group_name(a), *(number_text(mean, f".{decimals}f") for mean in means)])
    return ["mean distance", *map(group_name, known)], rows


def _mean(block: FloatArray, same_group: bool) -> float | None:
    if same_group:
        # A client's distance to itself says nothing of its group.
        block = block[~np.eye(len(block), dtype=bool)]
    if not block.size:
        return None
    return float(block.mean())
