"""Scoring models on clients' own samples: many clients in one pass over the pooled arrays."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.task import CORRECT, Added, Binned, CountsClasses, Task, is_classes
from coterie.core.vectors import Layout, bind
from coterie.core.work import Evaluate
from coterie.data.population import Population, Split
from coterie.local.batches import channels_last, convolves
from coterie.local.compiled import CompiledTrainer
from coterie.local.kept_scores import KeptScores
from coterie.local.scored_rows import ClientSamples, ScoredRows
from coterie.local.stack import Stack

# Samples scored at once by the network itself. Of images few, so that what convolutions put out
# stays in the processor's cache.
_CHUNK = 4096
_CHUNK_OF_IMAGES = 64


class Scorer:
    """The task's sums and the summed loss of a model on clients' own samples.

    Args:
        population: who holds what.
        module: the network; it is copied.
        decay: names of the kernels that carry L2.
        device: where models are scored.
        task: what is counted.
    """

    def __init__(
        self,
        population: Population,
        module: nn.Module,
        decay: tuple[str, ...],
        device: str,
        task: Task,
    ) -> None:
        self._task = task
        self._vector = torch.empty(Layout.of(module).d, device=device)
        self._network = bind(copy.deepcopy(module).to(device), self._vector).eval()
        self._convolves = convolves(module)
        self.rows = ScoredRows(population, self._vector.device, copies=not self._convolves)
        self._kept = KeptScores()
        self._compiled: CompiledTrainer | None = None
        stack = Stack.of(module, decay)
        if stack is not None and device == "cpu" and _of_classes(task):
            self._compiled = CompiledTrainer(stack)

    @property
    def batch_invariant(self) -> bool:
        """Whether a sample's score has the same bits whatever samples are scored beside it."""
        return self._compiled is not None

    def set_population(self, population: Population, *, samples_changed: bool) -> None:
        """Take over who holds what; see `ScoredRows.set_population`."""
        self.rows.set_population(population, samples_changed=samples_changed)
        self._kept.clear()

    def load(self) -> None:
        """Load the compiled code, where there is any."""
        if self._compiled is not None:
            self._compiled.load_scoring()

    @torch.inference_mode()
    def score(
        self, vector: Tensor, ids: IntArray, work: Evaluate, everyone: IntArray
    ) -> dict[str, FloatArray]:
        """Score one model.

        Args:
            vector: float32 ``[d]``.
            ids: int64 ``[n]``, the clients.
            work: which split, which sums, and whether the loss is asked for.
            everyone: int64, the clients that are scored in this round, on this model or another.

        Returns:
            the sums by name, float64 ``[n, *shape]`` each, and the summed ``loss``; nothing
            where the clients have no samples.
        """
        known = self._kept.find(vector, ids, work)
        if known is not None:
            return dict(known)
        added, rows = self._per_sample(vector, ids, work, everyone)
        found = {name: _summed(values, rows) for name, values in added.items()}
        self._kept.keep(vector, ids, work, found)
        return found

    @torch.inference_mode()
    def sample_losses(
        self, vector: Tensor, ids: IntArray, split: Split, everyone: IntArray
    ) -> tuple[FloatArray, IntArray]:
        """The loss of each sample under one model.

        Args:
            vector: float32 ``[d]``.
            ids: int64 ``[n]``, the clients.
            split: which of their samples.
            everyone: as in `score`.

        Returns:
            float64 ``[s]``, client after client, and int64 ``[n + 1]``, where each client's samples
            begin and end.
        """
        work = Evaluate(split, sums=())
        added, rows = self._per_sample(vector, ids, work, everyone)
        loss = added.get("loss", np.empty(0))
        assert not isinstance(loss, _Places), "a loss is a number for each sample"
        if rows.spread is not None:
            loss = loss[rows.spread]
        return loss, rows.bounds

    @torch.inference_mode()
    def score_mixture(
        self, vectors: Tensor, ids: IntArray, shares: FloatArray, work: Evaluate
    ) -> dict[str, FloatArray]:
        """Score the mixture of what several models predict, ``p(y | x) = sum_m pi_m p_m(y | x)``.

        Args:
            vectors: float32 ``[r, d]``.
            ids: int64 ``[n]``, the clients.
            shares: float64 ``[n, r]``, of each client.
            work: as in `score`.

        Returns:
            As `score`.
        """
        rows = self.rows.gathered(ids, work.split)
        if rows.spread is not None:
            # Clients that share a sample mix its predictions differently.
            place = torch.from_numpy(rows.spread)
            rows = replace(rows, x=rows.x[place], y=rows.y[place], spread=None)
        owner = np.repeat(np.arange(len(ids)), np.diff(rows.bounds))
        share = torch.from_numpy(shares[owner]).to(self._vector)
        mixed = torch.zeros(())
        for column, vector in enumerate(vectors):
            outputs = [out for out, _ in self._outputs(rows, vector)]
            if outputs:
                mixed = mixed + share[:, column, None] * torch.cat(outputs).softmax(dim=1)
        if not len(rows.y):
            return {}
        # The softmax of logarithms of probabilities is these probabilities.
        added = self._added(mixed.log(), rows.y, work)
        return {name: _summed(_on_cpu(values), rows) for name, values in added.items()}

    def _per_sample(
        self, vector: Tensor, ids: IntArray, work: Evaluate, everyone: IntArray
    ) -> tuple[dict[str, _PerSample], ClientSamples]:
        """What each sample adds to each sum, and whose samples they are."""
        population = self.rows.population
        if self._compiled is not None:
            # Compiled code reads rows where they lie, which saves a copy, unless they are made when
            # asked for.
            if population.lazy or not population.x.is_contiguous():
                rows = self.rows.gathered(ids, work.split)
            else:
                rows = self.rows.in_place(ids, work.split, everyone)
            return self._compiled_scores(self._compiled, rows, vector, work), rows
        if population.on_disk:
            # All at once they may be larger than memory.
            rows = self.rows.in_place(ids, work.split, everyone)
        else:
            rows = self.rows.gathered(ids, work.split)
        return self._forward(rows, vector, work), rows

    def _compiled_scores(
        self, compiled: CompiledTrainer, rows: ClientSamples, vector: Tensor, work: Evaluate
    ) -> dict[str, _PerSample]:
        """What each sample adds to each sum, by compiled code."""
        predicted, loss = compiled.score(rows.x, rows.y, rows.index, vector)
        labels = rows.y[torch.from_numpy(rows.index)]
        found: dict[str, _PerSample] = {"loss": loss}
        # A method that compares models asks for right answers alone, which cost the least.
        if work.sums == CORRECT or not isinstance(self._task, CountsClasses):
            correct = predicted == labels.numpy()
            return {"correct": correct.astype(np.float64), **found}
        counted = self._task.counted(torch.from_numpy(predicted), labels)
        return {name: _on_cpu(values) for name, values in counted.items()} | found

    def _forward(
        self, rows: ClientSamples, vector: Tensor, work: Evaluate
    ) -> dict[str, _PerSample]:
        """What each sample adds to each sum, by the network itself."""
        parts: dict[str, list[_PerSample]] = {}
        for outputs, y in self._outputs(rows, vector):
            for name, values in self._added(outputs, y, work).items():
                parts.setdefault(name, []).append(_on_cpu(values))
        return {name: _joined(values) for name, values in parts.items()}

    def _outputs(self, rows: ClientSamples, vector: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """What the network puts out for some samples at a time, and their targets."""
        self._vector.copy_(vector)
        images = self._convolves and self._vector.device.type == "cpu"
        if images and rows.gathered:
            rows = replace(rows, x=channels_last(rows.x))
        chunk = _CHUNK_OF_IMAGES if images else _CHUNK
        for at in range(0, len(rows.index), chunk):
            x, y = rows.part(at, at + chunk)
            if images:
                x = channels_last(x)
            yield self._network(x.to(self._vector.device)), y.to(self._vector.device)

    def _added(self, outputs: Tensor, y: Tensor, work: Evaluate) -> dict[str, Added]:
        """What each sample adds to each sum that is asked for."""
        added: dict[str, Added] = {}
        if work.sums:
            added |= self._task.added(outputs, y)
        if work.loss:
            added["loss"] = self._task.loss(outputs, y)
        return added


def _of_classes(task: Task) -> bool:
    """Whether compiled code has all that the sums of a task need."""
    return is_classes(task) and (task.sums == CORRECT or isinstance(task, CountsClasses))


@dataclass(frozen=True, slots=True)
class _Places:
    """What samples add to a histogram, on the CPU; see ``coterie.core.task.Binned``."""

    place: IntArray
    weight: FloatArray
    bins: int


_PerSample = FloatArray | _Places


def _on_cpu(added: Added) -> _PerSample:
    """What samples add, in float64: the order of sums, and so their bits, is that of samples."""
    if not isinstance(added, Binned):
        return added.cpu().double().numpy()
    weight = added.weight
    if weight is None:
        weight = torch.ones(len(added.place))
    return _Places(added.place.cpu().numpy(), weight.cpu().double().numpy(), added.bins)


def _joined(parts: list[_PerSample]) -> _PerSample:
    """Parts of the samples one after another."""
    first = parts[0]
    if isinstance(first, _Places):
        places = [part for part in parts if isinstance(part, _Places)]
        place = np.concatenate([part.place for part in places])
        weight = np.concatenate([part.weight for part in places])
        return _Places(place, weight, first.bins)
    return np.concatenate([part for part in parts if not isinstance(part, _Places)])


def _summed(added: _PerSample, rows: ClientSamples) -> FloatArray:
    """The sum of each client, ``[n, *shape]``."""
    if not isinstance(added, _Places):
        if rows.spread is not None:
            added = added[rows.spread]
        return _sums(added, rows.bounds)
    place = added.place
    weight = added.weight
    if rows.spread is not None:
        place = place[rows.spread]
        weight = weight[rows.spread]
    clients = len(rows.bounds) - 1
    owner = np.repeat(np.arange(clients), np.diff(rows.bounds))
    # Cell by cell in the order of samples, so a client's histogram has the same bits whoever is
    # counted beside it.
    cells = np.bincount(owner * added.bins + place, weight, clients * added.bins)
    return cells.astype(np.float64).reshape(clients, added.bins)


def _sums(values: FloatArray, bounds: IntArray) -> FloatArray:
    """Sums of ``values`` between consecutive bounds.

    `numpy.add.reduceat` adds each part by itself, so that a sum has the same bits whatever stands
    beside it. It cannot do empty parts, which are left out.
    """
    sums = np.zeros((len(bounds) - 1, *values.shape[1:]))
    some = np.diff(bounds) > 0
    if some.any():
        sums[some] = np.add.reduceat(values, bounds[:-1][some])
    return sums
