"""A client's work on pooled data, in this process: what every simulating engine runs."""

from __future__ import annotations

import math
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core import ClientShares, Describe, FloatArray, IntArray, Key, Layout, Reply, Solver
from coterie.core.arrays import rows_of_each
from coterie.core.task import Task, has_squared_error, is_classes, with_smoothing
from coterie.core.work import Deliver, Score, SelectGroup, Train
from coterie.data.population import Population, Split
from coterie.local.describe import describe, reported_sizes
from coterie.local.moves import Moves
from coterie.local.scoring.by_loss import least_loss, responsibilities
from coterie.local.scoring.network import Helpers
from coterie.local.scoring.scorer import Scorer
from coterie.local.training.batches import TrainingSamples
from coterie.local.training.client import train_client
from coterie.local.training.gru import compile_gru
from coterie.local.training.sgd import Trained
from coterie.local.training.trainers import Trainers
from coterie.math.similarity import nearest_direction
from coterie.models import decay_for
from coterie.tasks import CLASSIFICATION

_FEW = 2**24  # bytes of all clients' training samples that are kept side by side


class LocalRunner:
    """Pooled data, a module and a solver; trains one client, or answers for many in one pass. Work
    records may override the solver's budget. Models are scored on ``device``; training is on the
    CPU. ``decay`` names the weights that have the L2 penalty, all kernels by default."""

    def __init__(
        self,
        population: Population,
        module: nn.Module,
        solver: Solver,
        decay: tuple[str, ...] | None = None,
        device: str = "cpu",
        task: Task = CLASSIFICATION,
    ) -> None:
        self.population = population
        self.module = module
        self.solver = solver
        if decay is None:
            decay = decay_for(None, module, solver.l2)
        self.decay = decay
        self.task = task
        self.layout = Layout.of(module)
        self.sizes = population.sizes("train")
        self.scorer = Scorer(population, module, decay, device, task)
        # What is trained may be another loss than the task measures.
        self.trained_task = with_smoothing(task, solver.label_smoothing)
        self._trainers = Trainers(module, decay)
        self._begin_gathering()

    def copy(self, device: str = "cpu") -> LocalRunner:
        """A runner of the same work that keeps nothing yet."""
        return LocalRunner(self.population, self.module, self.solver, self.decay, device, self.task)

    def __reduce__(self) -> tuple[type[LocalRunner], tuple[Any, ...]]:
        """As its arguments: what it makes of them holds views of whole models, and each small view
        would be sent with all of its model."""
        made_of = (self.population, self.module, self.solver, self.decay)
        return (LocalRunner, (*made_of, str(self.scorer.network.device), self.task))

    @property
    def batch_invariant(self) -> bool:
        """Whether a sample's score has the same bits whatever samples are scored with it."""
        return self.scorer.batch_invariant

    def load_kernels(self, *, forks: bool = False) -> None:
        """Load the compiled code that this work usually needs, or compile it, so that processes
        that fork later find it loaded. ``forks``: a process may be forked that compiles at the same
        time."""
        compile_gru(self.module)
        squared = has_squared_error(self.trained_task)
        trainer = None
        if is_classes(self.trained_task) or squared:
            trainer = self._trainers.compiled(self.solver, squared=squared)
        if trainer is None:
            self.scorer.load()
            return
        train = partial(trainer.load_training, self.solver)
        with ExitStack() as stack:
            if forks and self.scorer.batch_invariant and trainer.is_new(self.solver):
                stack.enter_context(in_background(train))
            self.scorer.load()
        train()

    # --- who holds what ---------------------------------------------------------------------------

    def set_population(self, population: Population) -> Moves:
        """Take over who holds what from now on; returns what changed, for runners in other
        processes."""
        moves = Moves.between(self.population, population)
        # Arrays are never changed in place, so the same objects hold the same samples.
        same = population.x is self.population.x and population.y is self.population.y
        self._take_over(population, samples_changed=not same)
        return moves

    def move(self, moves: Moves) -> None:
        """Apply what changed in another process."""
        self._take_over(moves.applied_to(self.population), samples_changed=len(moves.rows) > 0)

    def _take_over(self, population: Population, *, samples_changed: bool) -> None:
        self.population = population
        self.sizes = population.sizes("train")
        self.scorer.set_population(population, samples_changed=samples_changed)
        self._begin_gathering()

    def _begin_gathering(self) -> None:
        """Forget what was gathered of a population before."""
        self._gathered: dict[int, TrainingSamples] = {}
        population = self.population
        # To gather a small client takes a twentieth of its training. Larger ones gain nothing.
        size = 4 * math.prod(population.shape) * int(self.sizes.sum())
        self._gathers = not population.lazy and not population.on_disk and size <= _FEW

    # --- training ---------------------------------------------------------------------------------

    def steps(self, work: Train, ids: IntArray) -> IntArray:
        """Steps that each client will take, int64 ``[n]``: what its training costs."""
        solvers = work.solvers(self.solver, 0)
        steps = [sum(one.count(int(n)) for one in solvers) for n in self.sizes[ids]]
        return np.array(steps, np.int64)

    def train(self, work: Train, client: int, start: Tensor, out: Tensor, key: Key) -> Trained:
        """Train a client from ``start [d]`` and write its update into ``out [d]``."""
        samples = self.training_samples(client)
        return train_client(
            self._trainers, work, self.solver, samples, start, out, key.client(client)
        )

    def training_samples(self, client: int) -> TrainingSamples:
        """The training samples of a client, gathered once where all of them are few."""
        kept = self._gathered.get(client)
        if kept is not None:
            return kept
        population = self.population
        held = torch.from_numpy(population.train[client])
        # Not by an index in brackets, which takes twice as long.
        x = population.x.index_select(0, held)
        samples = TrainingSamples(x, population.y.index_select(0, held))
        if self._gathers:
            self._gathered[client] = samples
        return samples

    # --- everything else --------------------------------------------------------------------------

    def answer(
        self,
        work: Score | Describe | SelectGroup | Deliver,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
        helpers: Helpers | None = None,
    ) -> Reply:
        """Evaluate or describe many clients in one pass over the pooled arrays, or let each select
        its group; the arguments are those of ``coterie.core.engine.Engine.run``."""
        match work:
            case Score():
                return self._evaluate(work, ids, models, which, key, helpers)
            case Describe():
                reported = describe(work, self.population, ids, key, self.module, models, which)
                size = reported_sizes(work, self.sizes[ids])
                fields = {work.statistic: reported, "size": size}
                return Reply(key.round, ids, fields, key.purpose)
            case SelectGroup():
                choice = [
                    self.select_group(work, client, models[rows], key)
                    for client, rows in zip(ids.tolist(), which, strict=True)
                ]
                fields = {"choice": np.array(choice), "size": self.sizes[ids].astype(np.float64)}
                return Reply(key.round, ids, fields, key.purpose)
            case Deliver():
                size = self.sizes[ids].astype(np.float64)
                return Reply(key.round, ids, {"size": size}, key.purpose)

    def _evaluate(
        self,
        work: Score,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        key: Key,
        helpers: Helpers | None,
    ) -> Reply:
        which = rows_of_each(which)
        size = self.population.sizes(work.split)[ids].astype(np.float64)
        if work.per == "sample_winner":
            # On how many of its samples each of a client's models has the least loss, [n, r].
            wins = np.zeros(which.shape)
            scored = self._sample_losses(work.split, ids, models, which, helpers)
            for mine, losses, bounds in scored:
                owner = np.repeat(mine, np.diff(bounds))
                np.add.at(wins, (owner, least_loss(losses)), 1.0)
            fields = {"wins": wins, "size": size}
            return Reply(key.round, ids, fields, key.purpose)
        if work.shares is not None:
            found = self._evaluate_mixtures(work, work.shares, ids, models, which)
            return Reply(key.round, ids, {**found, "size": size}, key.purpose)
        found = self.scorer.score(models, ids, which, work, helpers)
        return Reply(key.round, ids, {**found, "size": size}, key.purpose)

    def _sample_losses(
        self,
        split: Split,
        ids: IntArray,
        models: Tensor,
        which: IntArray,
        helpers: Helpers | None = None,
    ) -> Iterator[tuple[IntArray, FloatArray, IntArray]]:
        """The losses of all samples of clients that are sent the same models, in one pass: the
        places of these clients in ``ids``, losses ``[s, r]``, and where each client's samples begin
        and end."""
        for rows in np.unique(which, axis=0):
            mine = np.flatnonzero((which == rows).all(axis=1))
            losses, bounds = self.scorer.sample_losses(
                models[torch.from_numpy(rows)], ids[mine], split, ids, helpers
            )
            yield mine, losses, bounds

    def explained(
        self, ids: IntArray, models: Tensor, which: IntArray, known: ClientShares
    ) -> tuple[FloatArray, ...]:
        """How likely each of its models explains each training sample, ``[n_i, r]`` of each client."""
        shares = known.of(ids)
        found = [np.empty((0, which.shape[1]))] * len(ids)
        for mine, losses, bounds in self._sample_losses("train", ids, models, which):
            for place, own in zip(mine, np.split(losses, bounds[1:-1]), strict=True):
                prior = None
                if known.label_prior is not None:
                    labels = self._train_labels(int(ids[place]))
                    prior = known.label_prior.T[labels]
                found[place] = responsibilities(own, shares[place], prior)
        return tuple(found)

    def label_sums(
        self, ids: IntArray, explained: Sequence[FloatArray], classes: int
    ) -> list[FloatArray]:
        """The weights of each model's samples by class, of each client ``[r, c]``."""
        found = []
        for client, weights in zip(ids.tolist(), explained, strict=True):
            sums = np.zeros((classes, weights.shape[1]))
            np.add.at(sums, self._train_labels(client), weights)
            found.append(sums.T)
        return found

    def _train_labels(self, client: int) -> IntArray:
        return self.population.labels[self.population.train[client]]

    def _evaluate_mixtures(
        self, work: Score, shares: ClientShares, ids: IntArray, models: Tensor, which: IntArray
    ) -> dict[str, FloatArray]:
        """The sums of each client under the mixture of its models' predictions, ``[n, 1, ...]``."""
        shapes = dict(work.sums)
        if work.loss:
            shapes["loss"] = ()
        found = {name: np.zeros((len(ids), 1, *shape)) for name, shape in shapes.items()}
        for rows in np.unique(which, axis=0):
            mine = np.flatnonzero((which == rows).all(axis=1))
            sums = self.scorer.score_mixture(
                models[torch.from_numpy(rows)], ids[mine], shares.of(ids[mine]), work
            )
            for name, values in found.items():
                values[mine, 0] = sums.get(name, 0.0)
        return found

    def select_group(self, work: SelectGroup, client: int, models: Tensor, key: Key) -> float:
        """The direction of ``models[1:]`` that a client is nearest to when it trains from row 0; -1
        for none."""
        delta = torch.empty(1, models.shape[1])
        self.train(work.train, client, models[0], delta[0], key)
        # The directions of the groups have zeros there, since these coordinates do not move.
        if work.train.stays is not None:
            delta[0, torch.from_numpy(work.train.stays.kept())] = 0
        # An update of zeros has no direction either.
        if not torch.isfinite(delta).all() or not (delta != 0).any():
            return -1.0
        return float(nearest_direction(delta, models[1:])[0])


_LONGEST_WAIT = 120  # seconds


@contextmanager
def in_background(action: Callable[[], None]) -> Iterator[None]:
    """Do something in a forked process while this one does what is inside; leaving waits for it, two
    minutes at most.

    What it leaves on disk is there then, as compiled code is. If it fails, nothing is said: this
    process does it again, and sees why.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> folder = Path(tempfile.mkdtemp())
        >>> with in_background((folder / "other").touch):
        ...     (folder / "mine").touch()
        >>> sorted(file.name for file in folder.iterdir())
        ['mine', 'other']
    """
    # A daemon: it ends with this process, whatever happens here.
    process = multiprocessing.get_context("fork").Process(
        target=_quietly, args=(action,), daemon=True
    )
    process.start()
    try:
        yield
        # A fork may find a lock taken by a thread that it does not have.
        process.join(_LONGEST_WAIT)
    finally:
        process.kill()
        process.join()


def _quietly(action: Callable[[], None]) -> None:
    # An interrupt from the terminal goes to all processes; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A fork inherits the parent's handler, which is about what only the parent can save.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(Exception):
        action()
