"""Warnings about an automatic cut of a tree of merges."""

from __future__ import annotations

from coterie.core.arrays import FloatArray
from coterie.math.cuts import GAP, largest_gap, widest_gap

# Fewer clients have no gap to judge by.
_LEAST = 4


def cut_notes(heights: FloatArray, groups: int, aside: int = 0) -> dict[str, str]:
    """The line of a round's notes that explains why no gap was cut, and who had no part in the cut;
    empty where a gap of all clients was.

    Args:
        heights: float64 ``[n-1]``, the distances of the merges, ascending.
        groups: how many groups were found.
        aside: clients that were set aside before.

    Example:
        >>> import numpy as np
        >>> heights = np.array([1.0, 1.5, 6.0, 7.0, 7.5])
        >>> cut_notes(heights, 3)
        {}
        >>> cut_notes(heights, 3, aside=1)["grouping"]
        '3 groups found without 1 client that is far from all others'
        >>> cut_notes(np.array([7.0, 7.1, 7.2, 7.3, 7.4]), 2)["grouping"]
        '2 groups found by silhouettes: no gap between merges is 10 % of the last, 7.4 (largest: 1.4 %)'
    """
    lines = []
    if aside:
        clients = "1 client that is" if aside == 1 else f"{aside} clients that are"
        found = "one group" if groups == 1 else f"{groups} groups"
        lines.append(f"{found} found without {clients} far from all others")
    last = float(heights.max(initial=0))
    if groups == 1 or largest_gap(heights) >= last:
        lines.append(_without_gap(heights, groups, last))
    if not lines:
        return {}
    return {"grouping": "; ".join(lines)}


def _without_gap(heights: FloatArray, groups: int, last: float) -> str:
    gap = widest_gap(heights)
    if groups > 1:
        return (
            f"{groups} groups found by silhouettes: no gap between merges is "
            f"{100 * GAP:.0f} % of the last, {last:.4g} (largest: {100 * gap:.1f} %)"
        )
    return f"one group found: {_why_one(heights, last, gap)}"


def _why_one(heights: FloatArray, last: float, gap: float) -> str:
    if last == 0:
        return "all clients sent the same"
    expected = f"if you expect groups, set groups, or a threshold below {last:.4g}"
    if len(heights) + 1 < _LEAST:
        return f"an automatic threshold needs {_LEAST} clients; {expected}"
    return (
        f"the largest gap between merges is {100 * gap:.1f} % of the last, {last:.4g}, and "
        f"{100 * GAP:.0f} % is needed; {expected}"
    )
