"""A client's part of a round: plain, in phases, on weighted samples, or by a rule of
`coterie.core.own_model` with what the client stores.

What a client is sent and what it stores lie in one row, ``r`` vectors of ``d`` values and then the
stored values. So engines carry both as they carry a model, and know nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor, nn

from coterie.core import Objective, Solver, Train
from coterie.core.keys import Key, keyed_torch
from coterie.core.own_model import Batch, OwnTrained, checked_vector, join_own, split_own
from coterie.core.training import Phases, WeightedSamples, WithOwnModel
from coterie.core.vectors import Layout, bind, copy_module
from coterie.errors import ConfigError
from coterie.local.training.batches import TrainingSamples, channels_last, minibatches
from coterie.local.training.compiled import CompiledTrainer
from coterie.local.training.sgd import Autograd, Pull, Trained, Trainer
from coterie.local.training.trainers import Trainers
from coterie.objectives.weighted import weighted, with_weights


def train_client(
    trainers: Trainers,
    work: Train,
    base: Solver,
    samples: TrainingSamples,
    start: Tensor,
    out: Tensor,
    key: Key,
) -> Trained:
    """Carry out a training, phase by phase.

    ``start [d]`` is the model that the client trains from; for a client with its own model, ``[r d
    + s]`` are the ``r`` vectors that it is sent, and what it stored. ``out`` gets the update, and
    what the client stores from now on, at the same places.
    """
    objective = work.objective
    if isinstance(work.how, WeightedSamples):
        # Here and not in the runner: actors of Ray have the trainers alone.
        weights = work.how.weights.of(key.id)
        samples = TrainingSamples(samples.x, with_weights(samples.y, weights))
        objective = weighted(objective)
    if isinstance(work.how, WithOwnModel):
        return train_own_model(trainers, work, base, samples, start, out, key)
    solvers = work.solvers(base, key.round)
    if not isinstance(work.how, Phases):
        trainer = trainers.of(objective, solvers[0])
        return trainer.train(samples, start, out, solvers[0], key)
    vector = start.clone()
    # A later phase starts where the one before has ended, and was sent the same model.
    pull = Pull(anchor=start, received=start)
    trained = Trained(len(samples.y), 0.0)
    for number, (phase, solver) in enumerate(zip(work.how.parts, solvers, strict=True)):
        # The first phase has the stream of a training without phases.
        stream = key.of(f"phase{number}") if number else key
        trainer = trainers.of_phase(objective, phase.moves, solver)
        trained = trainer.train(samples, vector, out, solver, stream, pull)
        vector += out
    torch.sub(vector, start, out=out)
    return trained


def train_own_model(
    trainers: Trainers,
    work: Train,
    base: Solver,
    samples: TrainingSamples,
    row: Tensor,
    out: Tensor,
    key: Key,
) -> Trained:
    """Carry out the training of a client that has its own model, see `train_client` for ``row``,
    its start."""
    rule = work.own_model
    assert rule is not None, "the work has no rule for the client's own model"
    d = trainers.layout.d
    lengths = rule.lengths(d)
    sent = len(row) - sum(lengths.values())
    received = row[:sent].view(-1, d)
    training = OwnTraining(trainers, work, base, samples, received, key)
    found = rule.train(training, split_own(row[sent:], lengths))
    source = f"{type(rule).__name__}.train"
    if not isinstance(found, OwnTrained):
        got = type(found).__name__
        what = f"{source} returned the wrong type"
        raise ConfigError("does-not-fit", "own_model", what, found=got, allowed="an OwnTrained")
    out[:d] = checked_vector(found.update, d, source, "the update")
    out[d:sent] = 0
    out[sent:] = torch.cat([row[:0], *join_own(found.own, lengths, source)])
    return Trained(len(samples[1]), found.loss)


class OwnTraining:
    """See `coterie.core.own_model.LocalTraining`."""

    def __init__(
        self,
        trainers: Trainers,
        work: Train,
        base: Solver,
        samples: TrainingSamples,
        received: Tensor,
        key: Key,
    ) -> None:
        self.trainers = trainers
        self.objective = work.objective
        self.samples = samples
        self.received = received
        self.key = key
        (self.solver,) = work.solvers(base, key.round)
        self.steps = self.solver.count(len(samples[1]))
        self._gradients = 0
        self._other: Autograd | None = None

    @property
    def start(self) -> Tensor:
        return self.received[0]

    @property
    def layout(self) -> Layout:
        return self.trainers.layout

    def run(
        self,
        start: Tensor,
        *,
        anchor: Tensor | None = None,
        mu: float = 0.0,
        constant: Tensor | None = None,
        objective: Objective | None = None,
    ) -> tuple[Tensor, float]:
        # To add zeros costs time and changes nothing.
        if constant is not None and not constant.any():
            constant = None
        weight = None if anchor is None else mu
        trainer: Trainer
        if objective is not None:
            trainer = self._trainer_of(objective)
        else:
            trainer = self.trainers.of(self.objective, self.solver, weight)
        update = torch.empty_like(start)
        # A rule may start elsewhere, as FedALA and Ditto do. The terms of an objective are about the
        # model that the server sent, whatever the start is.
        pull = Pull(self.start if anchor is None else anchor, constant, self.start)
        trained = trainer.train(self.samples, start, update, self.solver, self.key, pull)
        return update, trained.loss

    def go_on(self, start: Tensor, memory: Tensor) -> tuple[Tensor, float, Tensor]:
        # Compiled steps begin with moments of zero.
        trainer = self.trainers.autograd(self.objective, self.solver)
        update = torch.empty_like(start)
        memory = memory.clone()
        pull = Pull(self.start, received=self.start, memory=memory)
        trained = trainer.train(self.samples, start, update, self.solver, self.key, pull)
        return update, trained.loss, memory

    def batches(self, stream: str = "") -> Iterator[Batch]:
        key = self.key.of(stream) if stream else self.key
        return minibatches(self.samples, self.solver, key, self.trainers.convolves)

    def everything(self) -> Batch:
        x, y = self.samples
        if self.trainers.convolves:
            x = channels_last(x)
        return Batch(x, y)

    def gradient(
        self, at: Tensor, batch: Batch, *, objective: Objective | None = None
    ) -> tuple[Tensor, float]:
        self._gradients += 1
        trainer = self._trainer if objective is None else self._trainer_of(objective)
        if isinstance(trainer, CompiledTrainer):  # of networks that draw nothing
            return trainer.gradient(at, self.start, batch.x, batch.y, self.solver.l2)
        # Each gradient has a stream of its own for what the module draws, as dropout does.
        with keyed_torch(self.key.of(f"noise-{self._gradients}")):
            return trainer.gradient(at, self.start, batch.x, batch.y, self.solver.l2)

    def network(self, vector: Tensor) -> nn.Module:
        module = bind(copy_module(self.trainers.module), vector.clone())
        return module.eval().requires_grad_(False)

    @cached_property
    def _trainer(self) -> Trainer:
        """What trains by the method's objective; asked once, since a step may take no longer than
        to find out."""
        return self.trainers.of(self.objective, self.solver)

    def _trainer_of(self, objective: Objective) -> Autograd:
        """The trainer for another objective than the method's. Only the last one is kept: the
        objective holds what belongs to this client."""
        if self._other is None or self._other.objective is not objective:
            module = copy_module(self.trainers.module)
            self._other = Autograd(module, objective, self.trainers.decay)
        return self._other
