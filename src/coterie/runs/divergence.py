"""A warning where local training diverges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from coterie.terminal import warn

# Times the loss of the first round, from which on a loss grows out of bounds. Honest losses end
# below the first one, or rise to some times it where clients' data change.
_GROWN = 10.0
# By which such replies are refused, see `coterie.clients.validation`.
_REASONS = ("not finite", "magnitude")


class DivergenceWatch:
    """Says once that a run diverges.

    Args:
        honest: whether no client attacks; else nothing is said.
    """

    def __init__(self, lr: float, honest: bool = True) -> None:
        self.lr = lr
        self.honest = honest
        self.first: float | None = None
        self.said = False

    def warn_of(self, row: Mapping[str, Any]) -> None:
        """Warn of a round that diverges, by its row."""
        line = self.line(row)
        if line is not None and self.honest:
            warn(line)

    def line(self, row: Mapping[str, Any]) -> str | None:
        """What to tell the user of a round, by its row; ``None`` for nothing.

        Updates that are not finite are refused, so that the losses of a round are those of the
        other clients.
        """
        what = self._what(row)
        if what is None or self.said:
            return None
        self.said = True
        return f"local training diverges: {what}; lower local.lr, now {self.lr:g}"

    def _what(self, row: Mapping[str, Any]) -> str | None:
        """What is out of bounds in a round."""
        number = row["round"] + 1
        refused = sum(row["refused"].get(reason, 0) for reason in _REASONS)
        if refused:
            return f"replies of round {number} are not finite or too large ({refused} in all)"
        loss = row["loss"]
        if loss is None:
            return None
        if not math.isfinite(loss):
            return f"the loss of round {number} is not finite"
        if self.first is None:
            self.first = loss
        if loss > _GROWN * self.first:
            return (
                f"the loss of round {number} is {loss:.3g}, that of the first was {self.first:.3g}"
            )
        return None
