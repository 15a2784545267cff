"""A client is sent a model to predict by, and trains nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.core.arrays import FloatArray
from coterie.core.solver import Solver


@dataclass(frozen=True, slots=True)
class Deliver:
    """A client is sent the model that serves it, to predict by it.

    A real client stores it on its own machine. One of a simulation has nothing to do: it predicts by
    the models of the run.

    Args:
        group: its group, -1 without one.
        by: how it came to it, in words for those who run the client.
    """

    group: int
    by: str

    def local_steps(self, base: Solver, number: int, sizes: FloatArray, models: int) -> int:
        """None."""
        return 0

    def fields(self, d: int, r: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
        return {"size": ((), "f")}
