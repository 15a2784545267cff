"""Warnings about an automatic cut of a tree of merges."""

from __future__ import annotations

from coterie.core.arrays import FloatArray
from coterie.math.cuts import GAP, largest_gap, widest_gap

# Fewer clients have no gap to judge by.
_LEAST = 4


def cut_notes(heights: FloatArray, groups: int) -> dict[str, str]:
    """The line of a round's notes that explains why no gap was cut; empty where one was.

    Args:
        heights: float64 ``[n-1]``, the distances of the merges, ascending.
        groups: how many groups were found.

    Example:
        >>> import numpy as np
        >>> cut_notes(np.array([1.0, 1.5, 6.0, 7.0, 7.5]), 3)
        {}
        >>> cut_notes(np.array([7.0, 7.1, 7.2, 7.3, 7.4]), 2)["grouping"]
        '2 groups found by silhouettes: no gap between merges is 10 % of the last, 7.4 (largest: 1.4 %)'
    """
    last = float(heights.max(initial=0))
    if groups > 1 and largest_gap(heights) < last:
        return {}
    gap = widest_gap(heights)
    if groups > 1:
        return {
            "grouping": f"{groups} groups found by silhouettes: no gap between merges is "
            f"{100 * GAP:.0f} % of the last, {last:.4g} (largest: {100 * gap:.1f} %)"
        }
    return {"grouping": f"one group found: {_why_one(heights, last, gap)}"}


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
