"""Scoring by compiled code: many models, each on its own clients, added up together."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray, aligned_copy, is_aligned
from coterie.core.task import CORRECT, CountsClasses, Task
from coterie.core.work import Score
from coterie.local.scoring.kept import KeptScores
from coterie.local.scoring.samples import (
    ClientSamples,
    PerSample,
    on_cpu,
    places_of_samples,
    summed,
)
from coterie.local.training.compiled import CompiledTrainer, flat_rows, flat_values

MANY = 500  # samples from which on scoring takes threads
_BLOCK = 60  # samples that pass a network together: what layers put out stays in the cache


@dataclass(eq=False, slots=True)
class ScoredSamples:
    """What models predict for the pooled samples ``rows``: ``best``, the class with the largest
    output under the model that a sample was scored on last, and ``loss``, its cross-entropy."""

    kernel: Any
    layers: Any
    x: NDArray[np.float32]
    y: IntArray
    rows: IntArray
    labels: IntArray
    best: IntArray = field(init=False)
    loss: NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        self.best = np.zeros(len(self.rows), np.int64)
        self.loss = np.zeros(len(self.rows), np.float32)

    def score(self, vector: Tensor, places: IntArray | None = None) -> None:
        """Score a model on these of the ``n`` samples, or all. A sample's figures have the same
        bits whatever samples are scored with it."""
        rows = self.rows if places is None else self.rows[places]
        best = np.empty(len(rows), np.int64)
        loss = np.empty(len(rows), np.float32)
        weights = flat_values(vector)
        # Of few samples the copy would take longer than it saves.
        if len(rows) > _BLOCK and not is_aligned(weights):
            weights = aligned_copy(weights)

        def part(at: slice) -> None:
            pooled = (self.x, self.y)
            self.kernel(weights, self.layers, *pooled, rows[at], best[at], loss[at], _BLOCK)

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


def scored_samples(trainer: CompiledTrainer, x: Tensor, y: Tensor, rows: IntArray) -> ScoredSamples:
    """Samples that models are scored on, one after another."""
    pooled = y.numpy()
    labels = pooled[rows]
    trainer.check_labels(labels)
    layers = trainer.layers(x.shape[1:])
    return ScoredSamples(trainer.kernel("score"), layers, flat_rows(x), pooled, rows, labels)


class CompiledScorer:
    """The sums of a task of classes, by compiled code."""

    def __init__(self, trainer: CompiledTrainer, task: Task, kept: KeptScores) -> None:
        self.trainer = trainer
        self._task = task
        # Asked once: of a protocol it takes as long as to score a client.
        self._counts_classes = isinstance(task, CountsClasses)
        self._kept = kept

    def per_sample(self, vector: Tensor, rows: ClientSamples, work: Score) -> dict[str, PerSample]:
        """What each sample adds to each sum under a model."""
        samples = scored_samples(self.trainer, rows.x, rows.y, rows.index)
        samples.score(vector)
        return self._added(samples, work)

    def sums(
        self, models: Tensor, ids: IntArray, models_of: IntArray, work: Score, rows: ClientSamples
    ) -> dict[str, FloatArray]:
        """The sums of each client under one model, ``[n, *shape]``.

        Samples are scored model by model, and then added up for all clients at once: with one model
        per client, adding up took longer than scoring.
        """
        samples = scored_samples(self.trainer, rows.x, rows.y, rows.index)
        known: list[tuple[IntArray, Mapping[str, FloatArray]]] = []
        new: list[tuple[Tensor, IntArray]] = []
        for row in np.unique(models_of).tolist():
            # One pass for all clients that are scored on this model.
            mine = np.flatnonzero(models_of == row)
            vector = models[row]
            kept = self._kept.find(vector, ids[mine], work)
            if kept is not None:
                known.append((mine, kept))
                continue
            samples.score(vector, places_of_samples(rows.bounds, mine))
            new.append((vector, mine))
        added = self._added(samples, work)
        names = {name for name, _ in work.sums}
        if work.loss:
            names.add("loss")
        found = {name: summed(values, rows) for name, values in added.items() if name in names}
        for vector, mine in new:
            self._kept.keep(vector, ids[mine], work, {n: v[mine] for n, v in found.items()})
        for mine, kept in known:
            for name, values in kept.items():
                found[name][mine] = values
        return found

    def _added(self, samples: ScoredSamples, work: Score) -> dict[str, PerSample]:
        """What each sample adds to each sum, by what compiled code found."""
        found: dict[str, PerSample] = {}
        if work.loss:
            found["loss"] = samples.loss.astype(np.float64)
        if not work.sums:
            return found
        # A method that compares models asks for right answers alone, which cost the least.
        if work.sums == CORRECT or not self._counts_classes:
            correct = samples.best == samples.labels
            return {"correct": correct.astype(np.float64), **found}
        assert isinstance(self._task, CountsClasses)
        labels = torch.from_numpy(samples.labels)
        counted = self._task.counted(torch.from_numpy(samples.best), labels)
        return {name: on_cpu(values) for name, values in counted.items()} | found
