"""A client's work on pooled data, in this process: what every simulating engine runs."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.objective import Objective, is_cross_entropy
from coterie.core.solver import Solver
from coterie.core.vectors import Layout, bind
from coterie.core.work import Describe, Evaluate, SelectGroup, Train
from coterie.data.lazy import KEEP
from coterie.data.population import Population, Split
from coterie.local.compiled import CompiledTrainer, Stack
from coterie.local.describe import describe, told_sizes
from coterie.local.sgd import Autograd, Trained, Trainer, channels_last, convolves
from coterie.math.similarity import nearest

_KEPT = 16  # sets of clients whose places are kept
# samples scored at once; fewer for convolutions, whose outputs then stay in the cache
_CHUNK = 4096
_IMAGES = 64


def _sums(values: FloatArray, bounds: IntArray) -> FloatArray:
    """Sums of ``values`` between consecutive bounds; each has the same bits whatever stands beside
    it."""
    sums = np.zeros(len(bounds) - 1)
    some = np.diff(bounds) > 0
    if some.any():
        sums[some] = np.add.reduceat(values, bounds[:-1][some])
    return sums


def _changed(before: Sequence[IntArray], after: Sequence[IntArray]) -> dict[int, IntArray]:
    """The indices of clients that have other ones now."""
    return {
        i: new for i, (old, new) in enumerate(zip(before, after, strict=True)) if old is not new
    }


def make_trainer(
    module: nn.Module, objective: Objective, solver: Solver, decay: tuple[str, ...]
) -> Trainer:
    """Local training of a copy of a network: in closed form where its shape allows it, else through
    autograd."""
    stack = Stack.of(module, decay)
    if stack is not None and is_cross_entropy(objective):
        return CompiledTrainer(stack)
    return Autograd(copy.deepcopy(module), objective, decay)


@dataclass(frozen=True)
class Rows:
    """The samples of some clients, in client order, with each one's bounds: ``held`` of ``x`` and
    ``y``.

    Where clients share samples, each is here once, and ``at`` says which one stands at each place.
    """

    x: Tensor
    y: Tensor
    held: IntArray
    bounds: IntArray
    at: IntArray | None


@dataclass(frozen=True)
class Copied:
    """Pooled samples side by side, and the place of each pooled sample among them, -1 for none."""

    x: Tensor
    y: Tensor
    place: IntArray


@dataclass(frozen=True)
class Moves:
    """What changed hands: new indices of some clients, new labels of some pooled samples."""

    train: Mapping[int, IntArray]
    test: Mapping[int, IntArray]
    rows: IntArray
    labels: IntArray


class LocalRunner:
    """Pooled data, a module and a solver; trains one client, or answers for many in one pass.

    Args:
        population: who holds what.
        module: the network; it is copied, never changed.
        solver: the run's local SGD; work records may override its budget.
        decay: names of the kernels that carry L2.
        device: where models are scored; training is on the CPU.
    """

    def __init__(
        self,
        population: Population,
        module: nn.Module,
        solver: Solver,
        decay: tuple[str, ...] = (),
        device: str = "cpu",
    ) -> None:
        self.population = population
        self.module = module
        self.solver = solver
        self.decay = decay
        self.layout = Layout.of(module)
        self.sizes = population.sizes("train")
        self._trainers: dict[Objective, Trainer] = {}
        self._vector = torch.empty(self.layout.d, device=device)
        self._scorer = bind(copy.deepcopy(module).to(device), self._vector).eval()
        self._convolves = convolves(module)
        stack = Stack.of(module, decay)
        self._closed = (
            CompiledTrainer(stack) if stack and device == "cpu" else None
        )  # compiled before worker processes fork
        self._copied: Copied | None = None
        self._rows: dict[Split, OrderedDict[bytes, Rows]] = {
            "train": OrderedDict(),
            "test": OrderedDict(),
        }

    @property
    def alone(self) -> bool:
        """Whether a sample's score has the same bits whatever samples are scored beside it."""
        return self._closed is not None

    def set_population(self, population: Population) -> Moves:
        """Take over who holds what from now on; returns what changed, for benches in other
        processes."""
        before = self.population
        train = _changed(before.train, population.train)
        test = _changed(before.test, population.test)
        rows = (
            np.flatnonzero(before.labels != population.labels)
            if before.y is not population.y
            else np.empty(0, int)
        )
        self.population, self.sizes = population, population.sizes("train")
        self._forget(population.x is not before.x or population.y is not before.y)
        return Moves(train, test, rows, population.labels[rows])

    def move(self, moves: Moves) -> None:
        """Apply what changed elsewhere."""
        self._forget(len(moves.rows) > 0)
        if len(moves.rows):
            y = self.population.y.clone()
            y[torch.from_numpy(moves.rows)] = torch.from_numpy(moves.labels)
            self.population = replace(self.population, y=y)
        if moves.train or moves.test:
            train = tuple(moves.train.get(i, held) for i, held in enumerate(self.population.train))
            test = tuple(moves.test.get(i, held) for i, held in enumerate(self.population.test))
            self.population = self.population.with_parts(train, test)
            self.sizes = self.population.sizes("train")

    def _forget(self, changed: bool) -> None:
        """Let go of what was kept of who holds what, and of samples that changed."""
        for kept in self._rows.values():
            kept.clear()
        if changed:
            self._copied = None

    def steps(self, work: Train, ids: IntArray) -> IntArray:
        """SGD steps that each client will take, to deal the longest first."""
        solver = work.solver(self.solver)
        return np.array([solver.count(int(n)) for n in self.sizes[ids]], np.int64)

    def train(self, work: Train, id: int, start: Tensor, out: Tensor, key: Key) -> Trained:
        """Train client ``id`` from ``start [d]`` and write its update into ``out [d]``."""
        held = torch.from_numpy(self.population.train[id])
        x = self.population.x[held]
        y = self.population.y[held]
        trainer = self._trainer(work.objective)
        return trainer.train(
            x, y, start, out, work.solver(self.solver), work.objective.mu, key.client(id)
        )

    def place(self, work: SelectGroup, id: int, models: Tensor, key: Key) -> float:
        """The direction of ``models[1:]`` that client ``id`` is nearest to when it trains from row
        0; -1 for none."""
        delta = torch.empty(1, models.shape[1])
        self.train(work.train, id, models[0], delta[0], key)
        usable = bool(torch.isfinite(delta).all() and (delta != 0).any())
        if usable:
            return float(nearest(delta, models[1:])[0])
        return -1.0

    def _trainer(self, objective: Objective) -> Trainer:
        if objective not in self._trainers:
            self._trainers[objective] = make_trainer(
                self.module, objective, self.solver, self.decay
            )
        return self._trainers[objective]

    def answer(
        self,
        work: Evaluate | Describe | SelectGroup,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
    ) -> Reply:
        """Evaluate or describe many clients in one vectorised pass over the pooled arrays; let each
        place itself."""
        if isinstance(work, SelectGroup):
            choice = np.array(
                [
                    self.place(work, i, models[rows], key)
                    for i, rows in zip(ids.tolist(), which, strict=True)
                ]
            )
            return Reply(
                key.round,
                ids,
                {"choice": choice, "size": self.sizes[ids].astype(np.float64)},
                key.purpose,
            )
        if isinstance(work, Describe):
            told = describe(work, self.population, ids, key)
            size = told_sizes(work, self.sizes[ids])
            return Reply(key.round, ids, {work.statistic: told, "size": size}, key.purpose)
        which = which[:, None] if which.ndim == 1 else which
        correct = np.zeros(which.shape)
        loss = np.zeros(which.shape)
        for column in range(which.shape[1]):
            for row in np.unique(which[:, column]):
                mine = np.flatnonzero(which[:, column] == row)
                correct[mine, column], loss[mine, column] = self._score(
                    models[row], ids[mine], work, ids
                )
        size = self.population.sizes(work.split)[ids].astype(np.float64)
        fields = {"correct": correct, "size": size, **({"loss": loss} if work.loss else {})}
        return Reply(key.round, ids, fields, key.purpose)

    @torch.inference_mode()
    def _score(
        self, vector: Tensor, ids: IntArray, work: Evaluate, everyone: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Correct predictions and summed loss of one model, per client; ``everyone``: who is scored
        in this round."""
        if self._closed is not None:
            pooled = not self.population.drawn and self.population.x.is_contiguous()
            rows = (
                self._pooled(ids, work.split, everyone) if pooled else self._gather(ids, work.split)
            )
            correct, loss = self._closed.score(rows.x, rows.y, rows.held, vector)
        else:
            rows = self._gather(ids, work.split)
            correct, loss = self._forward(rows, vector, work.loss)
        if rows.at is not None:
            correct = correct[rows.at]
            loss = loss[rows.at]
        return _sums(correct, rows.bounds), _sums(loss, rows.bounds)

    def _forward(self, rows: Rows, vector: Tensor, losses: bool) -> tuple[FloatArray, FloatArray]:
        """Correct predictions and loss of one model, per sample, by the network itself."""
        self._vector.copy_(vector)
        correct = np.zeros(len(rows.y))
        loss = np.zeros(len(rows.y))
        small = self._convolves and self._vector.device.type == "cpu"
        x, chunk = (channels_last(rows.x), _IMAGES) if small else (rows.x, _CHUNK)
        for at in range(0, len(rows.y), chunk):
            y = rows.y[at : at + chunk]
            logits = self._scorer(x[at : at + chunk])
            correct[at : at + chunk] = (logits.argmax(1) == y).cpu().numpy()
            if losses:
                loss[at : at + chunk] = F.cross_entropy(logits, y, reduction="none").cpu().numpy()
        return correct, loss

    def _held(self, ids: IntArray, split: Split) -> tuple[IntArray, IntArray, IntArray | None]:
        """Clients' samples side by side: bounds, samples, and which of them is at each place where
        some are shared."""
        parts = [self.population.parts(split)[i] for i in ids]
        bounds = np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int64)
        held = np.concatenate(parts) if parts else np.empty(0, np.int64)
        once, places = np.unique(held, return_inverse=True)
        if len(once) < len(
            held
        ):  # several clients share samples, as with a test set of all that has a client's labels
            return bounds, once, places
        return bounds, held, None

    def _pooled(self, ids: IntArray, split: Split, everyone: IntArray) -> Rows:
        """The samples of these clients where they lie.

        Test samples are scored round after round, and a dense network computes faster than memory
        is read at random: those of ``everyone`` are copied once, side by side. Whoever holds them
        later, their places stay.
        """
        kept = self._rows[split]
        name = ids.tobytes()
        if split == "test" and name in kept:
            kept.move_to_end(name)
            return kept[name]
        bounds, held, at = self._held(ids, split)
        if split == "train" or self._convolves:
            return Rows(self.population.x, self.population.y, held, bounds, at)
        copied = self._copied
        if copied is None or (copied.place[held] < 0).any():
            kept.clear()
            copied = self._copied = self._copy(everyone, split)
        kept[name] = Rows(copied.x, copied.y, copied.place[held], bounds, at)
        if len(kept) > _KEPT:
            kept.popitem(last=False)
        return kept[name]

    def _copy(self, ids: IntArray, split: Split) -> Copied:
        """The samples of these clients side by side, and those copied before while they are few
        (``KEEP`` bytes)."""
        x = self.population.x
        y = self.population.y
        held = np.concatenate([self.population.parts(split)[i] for i in ids])
        before = (
            np.empty(0, np.int64)
            if self._copied is None
            else np.flatnonzero(self._copied.place >= 0)
        )
        most = max(2 * len(held), KEEP // (4 * math.prod(self.population.shape)))
        samples = np.concatenate([held, before]) if len(held) + len(before) <= most else held
        samples = samples[
            np.sort(np.unique(samples, return_index=True)[1])
        ]  # each once, in this order
        place = np.full(len(y), -1)
        place[samples] = np.arange(len(samples))
        index = torch.from_numpy(samples)
        return Copied(x[index], y[index], place)

    def _gather(self, ids: IntArray, split: Split) -> Rows:
        """The samples of these clients side by side.

        Test samples are kept, since memberships change little from round to round (of those made
        when they are asked for, a quarter of ``KEEP`` bytes); of training samples, which a cohort
        is asked for once, only the last.
        """
        kept = self._rows[split]
        name = ids.tobytes()
        if name in kept:
            kept.move_to_end(name)
            return kept[name]
        bounds, held, where = self._held(ids, split)
        device = self._vector.device
        index = torch.from_numpy(held)
        x = self.population.x[index].to(device)
        y = self.population.y[index].to(device)
        rows = Rows(x, y, np.arange(len(held)), bounds, where)
        kept[name] = rows
        most = 1.2 * self.population.sizes("test").sum() if split == "test" else 0
        if self.population.drawn:  # all test samples would not fit
            most = min(most, KEEP // 4 // (4 * math.prod(self.population.shape)))
        while len(kept) > 1 and sum(len(r.y) for r in kept.values()) > most:
            kept.popitem(last=False)
        return rows
