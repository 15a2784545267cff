"""Scoring models on clients' own samples: many clients in one pass over the pooled arrays."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.vectors import Layout, bind
from coterie.core.work import Evaluate
from coterie.data.population import Population
from coterie.local.compiled import CompiledTrainer
from coterie.local.scored_rows import Rows, ScoredRows
from coterie.local.sgd import channels_last, convolves
from coterie.local.stack import Stack

# Samples scored at once by the network itself. Of images few, so that what convolutions put out
# stays in the processor's cache.
_CHUNK = 4096
_CHUNK_OF_IMAGES = 64


class Scorer:
    """Correct predictions and summed loss of a model on clients' own samples.

    Args:
        population: who holds what.
        module: the network; it is copied.
        decay: names of the kernels that carry L2.
        device: where models are scored.
    """

    def __init__(
        self, population: Population, module: nn.Module, decay: tuple[str, ...], device: str
    ) -> None:
        self._vector = torch.empty(Layout.of(module).d, device=device)
        self._network = bind(copy.deepcopy(module).to(device), self._vector).eval()
        self._convolves = convolves(module)
        self.rows = ScoredRows(population, self._vector.device, copies=not self._convolves)
        self._compiled: CompiledTrainer | None = None
        stack = Stack.of(module, decay)
        if stack is not None and device == "cpu":
            self._compiled = CompiledTrainer(stack)

    @property
    def batch_invariant(self) -> bool:
        """Whether a sample's score has the same bits whatever samples are scored beside it."""
        return self._compiled is not None

    @torch.inference_mode()
    def score(
        self, vector: Tensor, ids: IntArray, work: Evaluate, everyone: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Score one model.

        Args:
            vector: float32 ``[d]``.
            ids: int64 ``[n]``, the clients.
            work: which split, and whether the loss is asked for.
            everyone: int64, the clients that are scored in this round, on this model or another.

        Returns:
            correct predictions and summed loss, float64 ``[n]`` each.
        """
        population = self.rows.population
        if self._compiled is not None:
            # Compiled code reads rows where they lie, which saves a copy, unless they are made when
            # asked for.
            if population.lazy or not population.x.is_contiguous():
                rows = self.rows.gathered(ids, work.split)
            else:
                rows = self.rows.in_place(ids, work.split, everyone)
            correct, loss = self._compiled.score(rows.x, rows.y, rows.index, vector)
        else:
            rows = self.rows.gathered(ids, work.split)
            correct, loss = self._forward(rows, vector, work.loss)
        if rows.spread is not None:
            correct = correct[rows.spread]
            loss = loss[rows.spread]
        return _sums(correct, rows.bounds), _sums(loss, rows.bounds)

    def _forward(self, rows: Rows, vector: Tensor, losses: bool) -> tuple[FloatArray, FloatArray]:
        """Correct predictions and loss of one model, per sample, by the network itself."""
        self._vector.copy_(vector)
        # Sums are made on the CPU in float64: their order, and so their bits, is that of samples.
        correct = np.zeros(len(rows.y))
        loss = np.zeros(len(rows.y))
        x = rows.x
        chunk = _CHUNK
        if self._convolves and self._vector.device.type == "cpu":
            x = channels_last(x)
            chunk = _CHUNK_OF_IMAGES
        for at in range(0, len(rows.y), chunk):
            y = rows.y[at : at + chunk]
            logits = self._network(x[at : at + chunk])
            correct[at : at + chunk] = (logits.argmax(1) == y).cpu().numpy()
            if losses:
                loss[at : at + chunk] = F.cross_entropy(logits, y, reduction="none").cpu().numpy()
        return correct, loss


def _sums(values: FloatArray, bounds: IntArray) -> FloatArray:
    """Sums of ``values`` between consecutive bounds.

    `numpy.add.reduceat` adds each part by itself, so that a sum has the same bits whatever stands
    beside it. It cannot do empty parts, which are left out.
    """
    sums = np.zeros(len(bounds) - 1)
    some = np.diff(bounds) > 0
    if some.any():
        sums[some] = np.add.reduceat(values, bounds[:-1][some])
    return sums
