"""Scoring with the network by a cluster's actors, each a part of the test samples.

A process alone would score on one thread, for which a large network takes longer than a cluster
takes to train. Test samples go into Ray's object store once, and a node reads its copy without copying
again. What is scored together in one process is scored together by an actor, so no bit depends on
how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from ray.exceptions import RayError
from torch import Tensor

from coterie.core import IntArray, Score
from coterie.data.population import Population
from coterie.engines.ray.actor import ScoreJob
from coterie.engines.ray.members import Members
from coterie.local import LocalRunner
from coterie.local.scoring.network import Scored, joined_parts, part_of
from coterie.local.scoring.samples import PerSample


class EvaluationSamples:
    """All test samples in Ray's object store."""

    def __init__(self, population: Population) -> None:
        self._population = population
        self._held: IntArray | None = None
        self._refs: tuple[Any, Any] | None = None

    def set_population(self, population: Population) -> None:
        """Follow a change of who holds what. Samples stay in the store while all clients together
        are tested on the same ones."""
        before = self._population
        same = population.x is before.x and population.y is before.y
        if self._held is not None and not (same and np.array_equal(_held(population), self._held)):
            self.clear()
        self._population = population

    def refs(self, room: float) -> tuple[Any, Any] | None:
        """References to inputs and labels, put into the store if they are not there; ``None`` if
        they take more than ``room`` bytes."""
        if self._refs is None:
            population = self._population
            held = _held(population)
            if len(held) * (_bytes_each(population.x) + _bytes_each(population.y)) > room:
                return None
            index = torch.from_numpy(held)
            x = ray.put(population.x[index].numpy())
            y = ray.put(population.y[index].numpy())
            self._held = held
            self._refs = (x, y)
        return self._refs

    def rows(self, index: IntArray) -> IntArray:
        """Where pooled samples are among those in the store."""
        assert self._held is not None, "the samples are not in the store"
        return np.searchsorted(self._held, index)

    def clear(self) -> None:
        self._held = None
        self._refs = None


def _bytes_each(values: Tensor) -> int:
    return values[0].numel() * values.element_size()


def _held(population: Population) -> IntArray:
    """The test samples of all clients, each once, in ascending order."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *population.test]))


class ActorScoring:
    """Has the actors score; it is one of ``coterie.local.scoring.network.Helpers``."""

    def __init__(self, runner: LocalRunner, members: Members) -> None:
        self._runner = runner
        self._members = members
        self.samples = EvaluationSamples(runner.population)
        self._failed = False

    def __call__(self, passes: Sequence[Scored], work: Score) -> list[dict[str, PerSample]] | None:
        """What each sample adds to each sum, found by the actors; ``None`` where they do not help,
        or one failed or was lost."""
        population = self._runner.population
        actors = [member.handle for member in self._members.all if member.coming is None]
        # The training samples of a cohort would be sent to be scored once.
        if len(actors) < 2 or work.split != "test" or population.lazy or population.on_disk:
            return None
        models_bytes = 4 * self._runner.layout.d * len(passes)
        if self._failed or models_bytes > self._members.room:
            return None
        try:
            jobs, answers = self._answers(actors, passes, work)
        except RayError:  # one was lost, or the store is full
            return None
        # What went wrong in an actor is for this process to find out, now and from now on.
        self._failed = any(answer is None for answer in answers)
        if self._failed or not answers:
            return None
        found: list[list[dict[str, PerSample]]] = [[] for _ in passes]
        for job, answer in zip(jobs, answers, strict=True):
            for number, added in zip(job.which, answer, strict=True):
                found[number].append(added)
        return [joined_parts(parts) for parts in found]

    def _answers(
        self, actors: Sequence[Any], passes: Sequence[Scored], work: Score
    ) -> tuple[list[ScoreJob], list[Any]]:
        """The calls of the actors, and what these answered; nothing where the samples take more
        room than there is."""
        refs = self.samples.refs(self._members.room)
        if refs is None:
            return [], []
        vectors: NDArray[np.float32] = torch.stack([one.vector for one in passes]).numpy()
        models = ray.put(vectors)
        jobs = self._jobs(passes, work, len(actors))
        calls = [
            actor.score.remote(job, models, *refs) for actor, job in zip(actors, jobs, strict=True)
        ]
        return jobs, ray.get(calls)

    def _jobs(self, passes: Sequence[Scored], work: Score, actors: int) -> list[ScoreJob]:
        scorer = self._runner.scorer
        samples = [scorer.rows.numbers(one.ids, work.split) for one in passes]
        jobs = []
        for number in range(actors):
            mine = part_of(samples, scorer.network.chunk, number, actors)
            which = [at for at, rows in enumerate(mine) if len(rows.index)]
            rows = [self.samples.rows(mine[at].index) for at in which]
            jobs.append(ScoreJob(work, tuple(which), tuple(rows)))
        return jobs
