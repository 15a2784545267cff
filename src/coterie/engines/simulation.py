"""Engines whose clients are arrays in memory: what all of them have in common, and the reference, which
trains one client after another in this process."""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core import BoolArray, Describe, FloatArray, IntArray, Key, Reply, places_of
from coterie.core.arrays import rows_of_each
from coterie.core.plan import SampleWeights
from coterie.core.process import threads
from coterie.core.training import Mixture, WeightedSamples
from coterie.core.work import Deliver, Score, SelectGroup, Train, Work, work_for_task
from coterie.crashes import kind_and_place
from coterie.data.population import Population
from coterie.engines.silence import say_who_was_late
from coterie.errors import CoterieError
from coterie.local import LocalRunner
from coterie.local.scoring.by_loss import least_loss
from coterie.local.scoring.network import Helpers
from coterie.local.training.sgd import Trained

# What batch normalisation says of a batch of one sample, whose variance is unknown.
_ONE_SAMPLE = "Expected more than 1 value per channel"
_NO_BATCH_OF_ONE = (
    "batch normalisation cannot train on a single sample, and the last batch of a client may "
    "have only one; "
    "expected another local.batch_size, or GroupNorm, which supports any batch size"
)


class ClientError(CoterieError):
    """A client's own code raised: which client, at what, in which round."""

    # That of a configuration: the network that raised is part of it.
    code = 2
    of_lines = "failed"


def failure_line(client: int, key: Key, error: Exception) -> str:
    """The line that says which client failed in which round, and where in the user's own code. A
    `CoterieError` keeps its message."""
    if isinstance(error, CoterieError):
        return f"{error} (client {client}, round {key.round})"
    line = f"client {client}: training failed in round {key.round}: {error}"
    line = f"{line} ({kind_and_place(error)})"
    if _ONE_SAMPLE in str(error):
        return f"{line}; {_NO_BATCH_OF_ONE}"
    return line


def ending(code: int) -> str:
    """How a process ended, in words; the code is minus the number of the signal that ended it.

    Example:
        >>> ending(-9)
        'was ended by SIGKILL, as the system does when memory runs out'
        >>> ending(1)
        'ended with code 1'
    """
    if code >= 0:
        return f"ended with code {code}"
    names = {one.value: one.name for one in signal.Signals}
    # Some signals have no name.
    name = names.get(-code, f"signal {-code}")
    found = f"was ended by {name}"
    if name == "SIGKILL":
        found += ", as the system does when memory runs out"
    return found


@dataclass(frozen=True, slots=True)
class CohortUpdates:
    """What the clients of a request send, by their places in it. A loss is the mean of a client's
    last pass.

    Args:
        delta: float32 ``[n, d]``.
    """

    delta: Tensor
    size: FloatArray
    loss: FloatArray
    done: BoolArray

    @classmethod
    def room(cls, n: int, d: int) -> CohortUpdates:
        """Room for the updates of ``n`` clients, none of which is done."""
        return cls(torch.empty(n, d), np.zeros(n), np.zeros(n), np.zeros(n, bool))

    def put(self, place: int, trained: Trained) -> None:
        """Note that a client is done, whose update is in its row already."""
        self.size[place] = trained.size
        self.loss[place] = trained.loss
        self.done[place] = True

    def reply(self, work: Train, ids: IntArray, key: Key) -> Reply:
        """What those sent who are done."""
        fields = {
            "delta": work.uploaded(self.delta.numpy()[self.done]),
            "size": self.size[self.done],
            "loss": self.loss[self.done],
        }
        return Reply(key.round, ids[self.done], fields, key.purpose)


class SimulationEngine(ABC):
    """An engine whose clients are arrays in memory. Engines differ in how they `train`, and some in
    how they `answer` what is no training; which of the two a request needs is decided in `run`.

    Args:
        round_timeout: seconds after which clients that are not done are left out, ``None``: wait
            for all.
        threads: number of threads for the training of one client.
    """

    def __init__(
        self, runner: LocalRunner, round_timeout: float | None = None, threads: int = 1
    ) -> None:
        self.runner = runner
        self.round_timeout = round_timeout
        self.threads = threads
        # Other processes that score in addition to this one, where an engine has them.
        self.helpers: Helpers | None = None

    def deadline(self) -> float | None:
        """When a request that begins now is closed, on the monotonic clock; ``None``: never."""
        if self.round_timeout is None:
            return None
        return time.monotonic() + self.round_timeout

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        # The one place where what a method adds to the loss meets the loss of the run's task.
        work = work_for_task(work, self.runner.trained_task)
        if not isinstance(work, Train):
            return self.answer(work, ids, models, which, key)
        if work.mixture is not None:
            replies = self._train_mixtures(work, work.mixture, ids, models, which, key)
        elif work.choose is not None:
            replies = self._choose_and_train(work, ids, models, which, key)
        else:
            replies = self.train(work, ids, models, which, key)
        say_who_was_late(ids, replies, key, self.round_timeout)
        return replies

    @abstractmethod
    def train(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        """Train each client from its row of ``models``; ``which`` is ``[n]``."""

    def answer(
        self,
        work: Score | Describe | SelectGroup | Deliver,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
    ) -> list[Reply]:
        """Everything that is no training: in this process, unless an engine has a faster way."""
        if isinstance(work, SelectGroup):
            # A client trains for it, on as many threads as it always does.
            with threads(self.threads):
                return [self.runner.answer(work, ids, models, which, key)]
        return [self.runner.answer(work, ids, models, which, key, self.helpers)]

    def _choose_and_train(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        """Each client trains from the model with the least loss on its training set.

        All clients are scored first, together, as for a ``Score`` request and with the same bits.
        So a method that requests the losses and chooses by itself finds the same choices.
        """
        which = rows_of_each(which)
        scored = self.answer(Score("train", sums=()), ids, models, which, key)
        choice = least_loss_choices(scored, ids, which)
        row = which[np.arange(len(ids)), choice]
        trained = self.train(replace(work, choose=None), ids, models, row, key)
        replies = []
        for reply in trained:
            chosen = choice[places_of(reply.ids, ids)].astype(np.float64)
            replies.append(reply.with_fields(choice=chosen))
        return replies

    def _train_mixtures(
        self,
        work: Train,
        mixture: Mixture,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
    ) -> list[Reply]:
        """Each client trains all its models, each on its samples weighted by how likely that model
        explains them. All models of a client draw from the same stream, so that they see the same
        batches."""
        assert mixture.shares is not None, "clients of mixtures know their shares"
        explained = self.runner.explained(ids, models, which, mixture.shares)
        parts = []
        for column in range(which.shape[1]):
            weights = SampleWeights(ids, tuple(q[:, column] for q in explained))
            one = replace(work, how=WeightedSamples(weights, mixture.budget))
            if which.shape[1] == 1:
                # All weights are 1. Without them the training is the plain one, to the bit.
                one = replace(work, how=mixture.budget)
            parts.append(_by_client(self.train(one, ids, models, which[:, column], key)))
        # A deadline may leave out a client in the middle of its models.
        done = [client for client in ids.tolist() if all(client in part for part in parts)]
        if not done:
            return []
        replied = np.array(done, np.int64)
        new = [explained[place].mean(axis=0) for place in places_of(replied, ids)]
        delta = [[part[client]["delta"] for part in parts] for client in done]
        fields: dict[str, NDArray[Any]] = {
            "delta": np.array(delta, np.float32).reshape(len(done), *which.shape[1:], -1),
            "size": self.runner.sizes[replied].astype(np.float64),
            # The weights of a sample sum to 1, so its losses add up to one mean.
            "loss": np.array([sum(part[client]["loss"] for part in parts) for client in done]),
            "shares": np.array(new).reshape(len(done), which.shape[1]),
        }
        prior = mixture.shares.label_prior
        if prior is not None:
            own = [explained[place] for place in places_of(replied, ids)]
            fields["label_sums"] = np.array(self.runner.label_sums(replied, own, prior.shape[1]))
        return [Reply(key.round, replied, fields, key.purpose)]

    def set_population(self, population: Population) -> None:
        self.runner.set_population(population)

    @abstractmethod
    def close(self) -> None:
        """Let go of processes and shared memory."""


def least_loss_choices(scored: Sequence[Reply], ids: IntArray, which: IntArray) -> IntArray:
    """The model with the least loss for each client, as a column of ``which``, int64 ``[n]``."""
    loss = np.zeros(which.shape)
    # Placed by client: an engine may answer in several parts, in any order.
    for reply in scored:
        loss[places_of(reply.ids, ids)] = reply.loss
    return least_loss(loss)


def _by_client(replies: Sequence[Reply]) -> dict[int, dict[str, Any]]:
    return {
        client: {name: values[place] for name, values in reply.fields.items()}
        for reply in replies
        for place, client in enumerate(reply.ids.tolist())
    }


class SerialEngine(SimulationEngine):
    """Trains clients one after another; stops asking at the deadline."""

    def train(
        self, work: Train, ids: IntArray, models: Tensor, which: IntArray, key: Key
    ) -> list[Reply]:
        end = self.deadline()
        updates = CohortUpdates.room(len(ids), models.shape[1])
        # As many as in the other engines' processes: with more or fewer, sums have other bits.
        with threads(self.threads):
            for at, (client, row) in enumerate(zip(ids.tolist(), which.tolist(), strict=True)):
                if end is not None and time.monotonic() > end:
                    break
                try:
                    trained = self.runner.train(work, client, models[row], updates.delta[at], key)
                except Exception as error:
                    raise ClientError(failure_line(client, key, error)) from error
                updates.put(at, trained)
        return [updates.reply(work, ids, key)]

    def close(self) -> None:
        """Nothing: there are no processes."""
