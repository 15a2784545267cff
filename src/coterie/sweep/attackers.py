"""A sweep over shares of attackers: its figures as points of curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.sweep.comparison import SweepTable

# The key of a grid that makes a sweep one over attackers.
ATTACKERS = "attack.share"


@dataclass(frozen=True, slots=True)
class AttackPoint:
    """A point of a curve.

    Args:
        curve: the algorithm, and the other values of the grid.
    """

    curve: str
    share: float
    mean: float
    sd: float


def attack_points(table: SweepTable) -> list[AttackPoint]:
    """The rows of a table by their share of attackers; rows without a figure are left out.

    Example:
        >>> from coterie.sweep.comparison import Row
        >>> row = Row("ifca", ("alie", "0.1"), 1, 1, 0.8, None, None, 0, None, None, None)
        >>> keys = ("attack.kind", "attack.share")
        >>> attack_points(SweepTable(keys, (0,), "ifca", None, "max", (row,)))
        [AttackPoint(curve='ifca, alie', share=0.1, mean=0.8, sd=0.0)]
    """
    found = []
    for row in table.rows:
        values: Mapping[str, str] = dict(zip(table.keys, row.values, strict=True))
        others = [value for key, value in values.items() if key != ATTACKERS]
        if row.mean is None:
            continue
        curve = ", ".join([row.algorithm, *others])
        found.append(AttackPoint(curve, float(values[ATTACKERS]), row.mean, row.sd or 0.0))
    return found
