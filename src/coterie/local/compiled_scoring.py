"""Scoring by compiled code: many models, each on its own clients, added up together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.task import CORRECT, CountsClasses, Task
from coterie.core.work import Evaluate
from coterie.local.compiled import CompiledTrainer
from coterie.local.kept_scores import KeptScores
from coterie.local.sample_sums import PerSample, on_cpu, places_of_samples, summed
from coterie.local.scored_rows import ClientSamples
from coterie.local.scored_samples import ScoredSamples


class CompiledScorer:
    """The sums of a task of classes, by compiled code.

    Args:
        trainer: of the network.
        task: what is counted.
        kept: scores of models that did not change.
    """

    def __init__(self, trainer: CompiledTrainer, task: Task, kept: KeptScores) -> None:
        self.trainer = trainer
        self._task = task
        # Asked once: of a protocol it takes as long as to score a client.
        self._counts_classes = isinstance(task, CountsClasses)
        self._kept = kept

    def per_sample(
        self, vector: Tensor, rows: ClientSamples, work: Evaluate
    ) -> dict[str, PerSample]:
        """What each sample adds to each sum under a model.

        Args:
            vector: float32 ``[d]``.
            rows: the samples.
            work: which sums, and whether the loss is asked for.
        """
        samples = self.trainer.samples(rows.x, rows.y, rows.index)
        samples.score(vector)
        return self._added(samples, work)

    def sums(
        self,
        models: Tensor,
        ids: IntArray,
        models_of: IntArray,
        work: Evaluate,
        rows: ClientSamples,
    ) -> dict[str, FloatArray]:
        """The sums of each client under one model, ``[n, *shape]``.

        Samples are scored model by model, and then added up for all clients at once: where each
        client has a model of its own, adding up took longer than scoring. A sample's score and a
        client's sum have the same bits whatever is beside them.

        Args:
            models: float32 ``[k, d]``.
            ids: int64 ``[n]``, the clients.
            models_of: int64 ``[n]``, the model of each.
            work: which sums, and whether the loss is asked for.
            rows: the samples of all of them, in their order.
        """
        samples = self.trainer.samples(rows.x, rows.y, rows.index)
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
        found = self._of_clients(samples, rows, work)
        for vector, mine in new:
            self._kept.keep(vector, ids[mine], work, {n: v[mine] for n, v in found.items()})
        for mine, kept in known:
            for name, values in kept.items():
                found[name][mine] = values
        return found

    def _of_clients(
        self, samples: ScoredSamples, rows: ClientSamples, work: Evaluate
    ) -> dict[str, FloatArray]:
        """The sums of each client that are asked for, by what compiled code found."""
        added = self._added(samples, work)
        names = {name for name, _ in work.sums}
        if work.loss:
            names.add("loss")
        return {name: summed(values, rows) for name, values in added.items() if name in names}

    def _added(self, samples: ScoredSamples, work: Evaluate) -> dict[str, PerSample]:
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
