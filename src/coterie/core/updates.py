"""What the clients of a round made of their models."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Updates:
    """What came home: one row per client, or per chain, in ascending order of ``ids``.

    Args:
        ids: int64 ``[n]``; the client, or the last one of the chain.
        row: int64 ``[n]``, the model trained.
        delta: float32 ``[n, d]``, new minus old parameters.
        size: float64 ``[n]``, training samples behind the update.
        loss: float64 ``[n]``, mean training loss of the last local epoch.
    """

    ids: IntArray
    row: IntArray
    delta: Tensor
    size: FloatArray
    loss: FloatArray

    def __len__(self) -> int:
        return len(self.ids)

    def first(self, n: int) -> Updates:
        """The first ``n`` of them."""
        return Updates(self.ids[:n], self.row[:n], self.delta[:n], self.size[:n], self.loss[:n])
