"""One-shot grouping of many clients: a sample makes the tree, and signatures are shortened.

All distances of a million clients are 10^12 numbers. Up to 10,000 clients nothing here changes
anything. Used by `coterie.rules.one_shot`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from coterie.clients.round import Round
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.math.sketch import project

# Of more clients a sample makes the tree: the distances of 10,000 clients take 0.8 GB.
MOST = 10_000
SAMPLE = 4096
# A distance of so many projected values has a standard error of 3 %.
SKETCH = 512

Ask = Literal["all", "sample"]
SampleSize = Annotated[int, Field(ge=16)] | None
SketchSize = Annotated[int, Field(ge=16)] | None


@dataclass(frozen=True, slots=True)
class LargeFederation:
    """How many clients are clustered, and what becomes of the others.

    Args:
        sample: clients that make the tree. The others join the nearest cluster by the distance of
            the linkage, or open one beyond the threshold. ``None``: all of up to 10,000 clients, of
            more 4,096.
        sketch: values that a longer signature is projected to at random where a sample makes the
            tree (``coterie.math.sketch``); ``None``: 512.
        ask: ``all`` clients send their signature before the first round, or the ``sample`` alone:
            each other client does when it is first selected.
    """

    sample: int | None = None
    sketch: int | None = None
    ask: Ask = "all"

    def tree_size(self, clients: int) -> int:
        """How many of so many clients make the tree."""
        size = self.sample
        if size is None:
            size = clients if clients <= MOST else SAMPLE
        return min(size, clients)

    def draw(self, clients: IntArray, round: Round) -> IntArray:
        """The clients that make the tree, ascending."""
        size = self.tree_size(len(clients))
        if size == len(clients):
            return clients
        rng = round.key.of("tree").generator()
        return np.sort(rng.choice(clients, size, replace=False))

    def shortened(self, rows: Tensor, round: Round) -> Tensor:
        """Signatures ``[n, d]`` as ``[n, q]``; the same projection in every round of a run."""
        values = self.sketch or SKETCH
        # A projection to half as many values or more would save nothing that its error is worth.
        if rows.shape[1] <= 2 * values:
            return rows
        return project(rows, values, Key(round.key.seed).of("sketch"))
