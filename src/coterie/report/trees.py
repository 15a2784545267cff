"""The clients as a tree: dendrogram and proximity heat map of the methods that merge clients step
by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import is_valid_linkage, leaves_list
from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray
from coterie.report.colours import SEVERAL, Spec, finished, group_colour, group_name

# most cells of a side; most clients whose names are written, and how much of them
CELLS = 100
NAMED = 40
LETTERS = 16


@dataclass(frozen=True, slots=True)
class Tree:
    """Clients merged two by two.

    Args:
        links: ``[n - 1, 4]``, a linkage matrix as SciPy's.
        leaves: int64 ``[n]``, the number of the client of each leaf.
        proximity: ``[n, n]``, distances between the leaves, where they were kept.
        threshold: the height at which the tree is cut, if it is.
    """

    links: FloatArray
    leaves: IntArray
    proximity: FloatArray | None = None
    threshold: float | None = None

    @classmethod
    def of(cls, memory: Mapping[str, Tensor]) -> Tree | None:
        """The tree that a method remembers; ``None`` if it remembers none that can be drawn.

        Example:
            >>> import torch
            >>> memory = {"tree": torch.tensor([[0.0, 1, 2, 2]]), "proximity": 2 - 2 * torch.eye(2)}
            >>> Tree.of(memory | {"leaves": torch.tensor([4, 7])}).order.tolist(), Tree.of({})
            ([4, 7], None)
        """
        if not {"tree", "leaves"} <= set(memory):
            return None
        links = memory["tree"].numpy().astype(np.float64)
        leaves = memory["leaves"].numpy().astype(np.int64)
        near = memory.get("proximity")
        cut = memory.get("threshold")
        n = len(leaves)
        if (
            n < 2
            or links.shape != (n - 1, 4)
            or not np.isfinite(links).all()
            or not is_valid_linkage(links)
        ):
            return None
        proximity = (
            None if near is None or near.shape != (n, n) else near.numpy().astype(np.float64)
        )
        height = float(cut.reshape(-1)[0]) if cut is not None and cut.numel() else None
        return cls(
            links, leaves, proximity, height if height is not None and np.isfinite(height) else None
        )

    @property
    def rows(self) -> IntArray:
        """The leaves from left to right, as rows of the proximity matrix."""
        return leaves_list(self.links).astype(np.int64)

    @property
    def order(self) -> IntArray:
        """The clients from left to right."""
        return self.leaves[self.rows]


def brackets(tree: Tree, group: IntArray) -> list[tuple[FloatArray, FloatArray, int]]:
    """A bracket for each merge: four abscissae, four heights, and the group of all that it holds,
    ``-2`` for several.

    Args:
        tree: with ``n`` leaves, which stand at 0, 1, ..., ``n - 1``.
        group: int64 ``[n]``, the group of each row of the proximity matrix.

    Example:
        >>> tree = Tree(np.array([[0.0, 1, 2, 2]]), np.arange(2), np.zeros((2, 2)))
        >>> [(x.tolist(), y.tolist(), g) for x, y, g in brackets(tree, np.array([3, 3]))]
        [([0.0, 0.0, 1.0, 1.0], [0.0, 2.0, 2.0, 0.0], 3)]
    """
    n = len(tree.leaves)
    at = np.zeros(2 * n - 1)
    high = np.zeros(2 * n - 1)
    of = np.zeros(2 * n - 1, np.int64)
    at[tree.rows] = np.arange(n)
    of[:n] = group
    found = []
    for i, (left, right, height, _) in enumerate(tree.links):
        a, b = sorted((int(left), int(right)), key=lambda node: at[node])
        node = n + i
        at[node] = (at[a] + at[b]) / 2
        high[node] = height
        of[node] = of[a] if of[a] == of[b] else SEVERAL
        found.append(
            (at[[a, a, b, b]], np.array([high[a], height, height, high[b]]), int(of[node]))
        )
    return found


def dendrogram(tree: Tree, group: IntArray, names: Sequence[str]) -> Spec:
    """The merges of the clients: how far apart two of them are is the height at which they meet.

    Args:
        tree: the merges.
        group: int64 ``[N]``, the group of each client.
        names: ``N`` names.
    """
    own = group[tree.leaves]
    parts = brackets(tree, own)
    shades = group_colour([*own, *(g for *_, g in parts)])
    lines = [
        {
            "x": float(x),
            "y": float(y),
            "group": group_name(g),
            "merge": i,
            "corner": corner,
            "height": float(ys.max()),
        }
        for i, (xs, ys, g) in enumerate(parts)
        for corner, (x, y) in enumerate(zip(xs, ys, strict=True))
    ]
    n = len(own)
    order = tree.order
    across = alt.X(
        "x:Q", title=None, axis=None, scale=alt.Scale(domain=[-0.7, n - 0.3], nice=False)
    )
    tooltip = ["group:N", alt.Tooltip("height:Q", format=".4g")]
    branches = (
        alt.Chart(pd.DataFrame(lines))
        .mark_line(strokeWidth=1.6, strokeJoin="miter", interpolate="linear")
        .encode(
            across,
            alt.Y("y:Q", title="distance at the merge"),
            shades,
            alt.Detail("merge:N"),
            order="corner:O",
        )
        .encode(tooltip=tooltip)
    )
    ends = [
        {"x": i, "client": str(names[c]), "group": group_name(int(group[c]))}
        for i, c in enumerate(order)
    ]
    leaves = alt.Chart(pd.DataFrame(ends)).encode(x=across, tooltip=["client:N", "group:N"])
    layers = [
        branches,
        leaves.mark_point(filled=True, size=30 if n > NAMED else 60, opacity=1).encode(
            shades, y=ZERO
        ),
    ]
    if n <= NAMED:
        shades.legend = alt.Legend(
            offset=24 + 6 * min(LETTERS, max(len(str(names[c])) for c in order))
        )
        name = leaves.transform_calculate(short=f"slice(datum.client, 0, {LETTERS})")
        layers.append(
            name.mark_text(angle=270, align="right", dx=-9, fontSize=11).encode(
                text="short:N", y=ZERO
            )
        )
    if tree.threshold is not None:
        layers += _cut(tree.threshold, n)
    return finished(alt.layer(*layers), 320)


ZERO = alt.datum(0)


def _cut(threshold: float, n: int) -> list[Any]:
    frame = pd.DataFrame([{"y": threshold, "x": n - 0.3, "text": f"cut at {threshold:.4g}"}])
    base = alt.Chart(frame).encode(y="y:Q")
    text = base.mark_text(align="right", dy=-7, fontSize=11, opacity=0.8).encode(
        x="x:Q", text="text:N"
    )
    return [base.mark_rule(strokeDash=[5, 4], opacity=0.7), text]


def heat_map(
    proximity: FloatArray,
    order: IntArray,
    group: IntArray,
    names: Sequence[str],
    height: int = 460,
    small: bool = False,
) -> Spec:
    """Distances between clients in a given order, with a strip that tells the group of each.

    With more than 100 clients a cell is the mean over a block of neighbours.

    Args:
        proximity: ``[n, n]``.
        order: int64 ``[n]``, rows of the matrix from first to last.
        group: int64 ``[n]``, the group of each row.
        names: ``n`` names of the rows.
        height: of the chart in pixels.
        small: one of many: with a short legend.
    """
    blocks = np.array_split(np.arange(len(order)), min(len(order), CELLS))
    near = proximity[np.ix_(order, order)]
    own = group[order]
    cells = [
        {"a": i, "b": j, "distance": _mean(near[np.ix_(a, b)])}
        for i, a in enumerate(blocks)
        for j, b in enumerate(blocks)
    ]
    sides = pd.DataFrame(
        {
            "at": i,
            "who": _who([names[order[k]] for k in rows]),
            "group": group_name(_commonest(own[rows])),
        }
        for i, rows in enumerate(blocks)
    )
    shades = group_colour(own)
    if small:
        shades.legend = None
    layers = alt.layer(_cells(pd.DataFrame(cells), sides, small), _strips(sides, shades))
    return finished(layers.resolve_scale(color="independent"), height)


def _cells(cells: pd.DataFrame, sides: pd.DataFrame, small: bool) -> alt.Chart:
    wide = len(sides)
    place = {"domain": [-0.06 * wide, wide], "nice": False}
    across = alt.X("a0:Q", axis=None, scale=alt.Scale(**place))
    down = alt.Y("b0:Q", axis=None, scale=alt.Scale(**place, reverse=True))
    short = {"gradientLength": 110, "tickCount": 2, "format": ".2g"}
    legend = alt.Legend(orient="bottom", **(short if small else {"gradientLength": 180}))
    scale = alt.Scale(scheme="viridis", zero=True)
    base = alt.Chart(cells)
    for name, key in (("one", "a"), ("other", "b")):
        base = base.transform_lookup(
            lookup=key, from_=alt.LookupData(sides, "at", ["who"]), as_=[name]
        )
    return (  # a little larger than 1, so that no line shows between two cells
        base.transform_calculate(
            a0="datum.a", a1="datum.a + 1.05", b0="datum.b", b1="datum.b + 1.05"
        )
        .mark_rect()
        .encode(across, down, alt.Color("distance:Q", title="distance", scale=scale, legend=legend))
        .encode(
            x2="a1:Q",
            y2="b1:Q",
            tooltip=["one:N", "other:N", alt.Tooltip("distance:Q", format=".4g")],
        )
    )


def _strips(sides: pd.DataFrame, shades: alt.Color) -> alt.LayerChart:
    low, high = (str(-share * len(sides)) for share in (0.05, 0.015))
    strip = alt.Chart(sides).transform_calculate(
        start="datum.at", stop="datum.at + 1", low=low, high=high
    )
    strip = strip.mark_rect().encode(shades, tooltip=["who:N", "group:N"])
    top = strip.encode(x="start:Q", x2="stop:Q", y="low:Q", y2="high:Q")
    return alt.layer(top, strip.encode(y="start:Q", y2="stop:Q", x="low:Q", x2="high:Q"))


def _mean(block: FloatArray) -> float | None:
    known = block[np.isfinite(block)]
    if len(known):
        return float(f"{known.mean():.6g}")
    return None


def _commonest(group: IntArray) -> int:
    return int(np.bincount(group + 1).argmax()) - 1


def _who(names: Sequence[str]) -> str:
    if len(names) == 1:
        return str(names[0])
    return f"{names[0]} to {names[-1]}"
