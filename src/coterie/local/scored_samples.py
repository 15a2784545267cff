"""Samples that models are scored on by compiled code."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.local import aligned

MANY = 500  # samples from which on scoring takes threads
_BLOCK = 60  # samples that pass a network together: what layers put out stays in the cache


def flat_values(vector: Tensor) -> NDArray[np.float32]:
    """A model as the kernels take it. They are compiled for arrays whose values are side by side,
    and for nothing else."""
    return vector.contiguous().numpy()


class ScoredSamples:
    """What models predict for some samples, and their cross-entropy.

    Args:
        kernel: scores.
        layers: the network as kernels know it.
        x: pooled inputs ``[S, i]``.
        y: int64 ``[S]``, their labels.
        rows: int64 ``[n]``, which of them to score.
        labels: int64 ``[n]``, the labels of these.

    Attributes:
        best: int64 ``[n]``, the class with the largest output under the model that a sample was
            scored on last.
        loss: float32 ``[n]``, its cross-entropy.
    """

    def __init__(
        self,
        kernel: Any,
        layers: Any,
        x: NDArray[np.float32],
        y: IntArray,
        rows: IntArray,
        labels: IntArray,
    ) -> None:
        self._kernel = kernel
        self._layers = layers
        self._x = x
        self._y = y
        self._rows = rows
        self.labels = labels
        self.best = np.zeros(len(rows), np.int64)
        self.loss = np.zeros(len(rows), np.float32)

    def score(self, vector: Tensor, places: IntArray | None = None) -> None:
        """Score a model.

        A sample's figures have the same bits whatever samples are scored beside it.

        Args:
            vector: float32 ``[d]``, the model.
            places: int64, which of the ``n`` samples; ``None``: all of them.
        """
        rows = self._rows if places is None else self._rows[places]
        best = np.empty(len(rows), np.int64)
        loss = np.empty(len(rows), np.float32)
        weights = flat_values(vector)
        # Of few samples the copy would take longer than it saves.
        if len(rows) > _BLOCK and not aligned.is_aligned(weights):
            weights = aligned.copy(weights)

        def part(at: slice) -> None:
            pooled = (self._x, self._y)
            self._kernel(weights, self._layers, *pooled, rows[at], best[at], loss[at], _BLOCK)

        threads = 1
        if len(rows) > MANY:
            threads = torch.get_num_threads()
        if threads == 1:
            part(slice(None))
        else:
            ends = np.linspace(0, len(rows), threads + 1).astype(int).tolist()
            parts = [slice(first, last) for first, last in pairwise(ends)]
            # Compiled code runs without the interpreter's lock, so threads do run side by side.
            # A list, since what a thread raised is raised only where its result is taken.
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(part, parts))
        if places is None:
            self.best = best
            self.loss = loss
        else:
            self.best[places] = best
            self.loss[places] = loss
