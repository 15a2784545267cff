"""What all simulating engines have in common: which of their two verbs a work record asks for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.work import Describe, Evaluate, SelectGroup, Train, Work
from coterie.data.population import Population
from coterie.local import LocalRunner
from coterie.local.choose import least_loss


class SimulationEngine(ABC):
    """An engine whose clients are arrays in memory. Engines differ in how they `train`, and some in
    how they `answer`; which of the two a request needs is decided in `run`, for all of them.

    Args:
        runner: the population, the module and the solver.
    """

    def __init__(self, runner: LocalRunner) -> None:
        self.runner = runner

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        """See ``coterie.core.engine.Engine``."""
        if not isinstance(work, Train):
            return self.answer(work, ids, models, which, key)
        if work.choose is None:
            return self.train(work, ids, models, which, key)
        return self._choose_and_train(work, ids, models, which, key)

    @abstractmethod
    def train(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        """Train each client from its row of ``models``; ``which`` is ``[n]``."""

    def answer(
        self,
        work: Evaluate | Describe | SelectGroup,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
    ) -> list[Reply]:
        """Everything that is no training: in this process, unless an engine has a faster way."""
        return [self.runner.answer(work, ids, models, which, key)]

    def _choose_and_train(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        """Each client trains from the model with the least loss on its training set.

        All clients are scored first, together, by the engine's own way to score: that is as fast as
        an ``Evaluate`` request, and gives the same bits. So a method that asked for the losses and
        chose by itself finds the same choices here.
        """
        which = which[:, None] if which.ndim == 1 else which
        loss = np.zeros(which.shape)
        for scored in self.answer(Evaluate("train"), ids, models, which, key):
            loss[_places(ids, scored.ids)] = scored.fields["loss"]
        choice = least_loss(loss)
        row = which[np.arange(len(ids)), choice]
        trained = self.train(replace(work, choose=None), ids, models, row, key)
        replies = []
        for reply in trained:
            chosen = choice[_places(ids, reply.ids)].astype(np.float64)
            fields = {**reply.fields, "choice": chosen}
            replies.append(Reply(reply.round, reply.ids, fields, reply.purpose))
        return replies

    def set_population(self, population: Population) -> None:
        """See ``coterie.core.engine.Engine``."""
        self.runner.set_population(population)

    @abstractmethod
    def close(self) -> None:
        """Let go of processes and shared memory."""


def _places(ids: IntArray, some: IntArray) -> IntArray:
    """Where each of ``some`` stands in ``ids``."""
    order = np.argsort(ids)
    return order[np.searchsorted(ids[order], some)]
