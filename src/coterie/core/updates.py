"""What the clients of a round made of their models."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.plan import ClientShares, with_mixtures


@dataclass(frozen=True, slots=True)
class Updates:
    """The replies of a round: one row per client, or per chain, in ascending order of ``ids``.

    Clients that train all models have a row for each of them.

    Args:
        ids: int64 ``[n]``; the client, or the last one of the chain.
        row: int64 ``[n]``, the model that the reply counts for. Numbers from ``k`` on name the
            mixture that it started from: such a reply counts for several models.
        delta: float32 ``[n, d]``, new minus old parameters; ``[n, 0]`` if only their sums are
            stored, in ``summed``.
        size: float64 ``[n]``, number of training samples behind the update.
        loss: float64 ``[n]``, mean training loss of the last local epoch.
        started: int64 ``[n]``, the row of ``starts`` from which each client trained; ``None``: the
            model of ``row``.
        starts: float32 ``[s, d]``, the models, then the mixtures, to which ``started`` refers.
        clipped: float64 ``[n]``, 1 if a client clipped its own update, otherwise 0; ``None``:
            clients do not clip.
        shares: the shares computed by clients that train all models.
        label_sums: float64 ``[m, k, c]``, for each of these clients, the weights of each model's
            samples by class; ``None``: they were not requested.
        claimed: float64 ``[n]``, the number of training samples that clients report, if bounds
            lowered it in ``size``; ``None``: both are the same.
        summed: float64 ``[k, d]``, the weighted mean update of each group, if the updates
            themselves are too large to be stored; ``None``: they are stored.
    """

    ids: IntArray
    row: IntArray
    delta: Tensor
    size: FloatArray
    loss: FloatArray
    started: IntArray | None = None
    starts: Tensor | None = None
    clipped: FloatArray | None = None
    shares: ClientShares | None = None
    label_sums: FloatArray | None = None
    claimed: FloatArray | None = None
    summed: Tensor | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def replies(self) -> int:
        """The number of clients, or chains, that replied."""
        return len(np.unique(self.ids))

    def without_values(self) -> Updates:
        """The replies without the updates themselves."""
        # An empty tensor of its own: a view of the updates would keep all of them in memory.
        nothing = torch.empty(len(self), 0)
        return Updates(self.ids, self.row, nothing, self.size, self.loss)

    def first(self, n: int) -> Updates:
        """The first ``n`` replies."""
        return replace(
            self,
            ids=self.ids[:n],
            row=self.row[:n],
            delta=self.delta[:n],
            size=self.size[:n],
            loss=self.loss[:n],
            started=None if self.started is None else self.started[:n],
            clipped=None if self.clipped is None else self.clipped[:n],
            claimed=None if self.claimed is None else self.claimed[:n],
        )

    def solutions(self, models: Tensor) -> Tensor:
        """Where each client ended, float32 ``[n, d]``: its start plus its update.

        Args:
            models: float32 ``[k, d]``, the models of the round.
        """
        if self.started is None or self.starts is None:
            return models[torch.from_numpy(self.row)] + self.delta
        return self.starts[torch.from_numpy(self.started)] + self.delta

    def counted_for(self, models: Tensor) -> Tensor:
        """The vectors ``[k + m, d]`` to which ``row`` refers: the models, then their mixtures.

        Args:
            models: float32 ``[k, d]``, the models before aggregation.
        """
        if self.starts is None:
            return models
        return torch.cat([models, self.starts[len(models) :]])

    def relative_to(self, models: Tensor) -> Tensor:
        """Where each client ended, relative to the model or mixture for which it counts.

        If a client started from the model or mixture for which it counts, as clients of soft groups
        do, this is its update. A client of FeSEM may count for a centre other than the one it
        started from.

        Args:
            models: float32 ``[k, d]``, the models before aggregation.

        Returns:
            float32 ``[n, d]``.
        """
        # The update itself and not solution minus model: that subtraction would round twice.
        if self.started is None:
            return self.delta
        row = torch.from_numpy(self.row)
        relative = self.solutions(models) - self.counted_for(models)[row]
        from_mixture = row >= len(models)
        relative[from_mixture] = self.delta[from_mixture]
        return relative


def mean_discrepancy(
    before: Tensor, after: Tensor, updates: Updates, mixtures: FloatArray | None
) -> float:
    """Mean of ``|w_i - w|`` over a round's participants, ``w`` the group's model after aggregation
    (FedGroup eq. 4) and the inter-group step, or the client's mixture of the models."""
    # From the update and the step of the model, both small, and not from two large vectors.
    moved = with_mixtures(after[: len(before)] - before, mixtures)
    replies = zip(updates.relative_to(before), updates.row, strict=True)
    # One client after another: all differences at once would be another copy of the updates.
    gaps = [torch.linalg.vector_norm(delta - moved[row]) for delta, row in replies]
    return float(torch.stack(gaps).double().mean())
