"""Scoring models on clients' own samples: many clients in one pass over the pooled arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from coterie.core import FloatArray, IntArray, Score
from coterie.core.task import CORRECT, CountsClasses, Task, is_classes
from coterie.data.population import Population, Split
from coterie.local.scoring.compiled import CompiledScorer
from coterie.local.scoring.kept import KeptScores
from coterie.local.scoring.network import Helpers, NetworkScorer, Scored
from coterie.local.scoring.samples import (
    ClientSamples,
    PerSample,
    Places,
    ScoredRows,
    on_cpu,
    summed,
)
from coterie.local.training.batches import convolves
from coterie.local.training.compiled import CompiledTrainer
from coterie.local.training.stack import Stack


class Scorer:
    """The task's sums and the summed loss of a model on clients' own samples."""

    def __init__(
        self,
        population: Population,
        module: nn.Module,
        decay: tuple[str, ...],
        device: str,
        task: Task,
    ) -> None:
        self.network = NetworkScorer(module, task, device)
        self.rows = ScoredRows(population, self.network.device, copies=not convolves(module))
        self._kept = KeptScores()
        self._compiled: CompiledScorer | None = None
        stack = Stack.of(module, decay)
        of_classes = is_classes(task) and (task.sums == CORRECT or isinstance(task, CountsClasses))
        if stack is not None and device == "cpu" and of_classes:
            self._compiled = CompiledScorer(CompiledTrainer(stack), task, self._kept)

    @property
    def batch_invariant(self) -> bool:
        """Whether a sample's score has the same bits whatever samples are scored with it."""
        return self._compiled is not None

    def set_population(self, population: Population, *, samples_changed: bool) -> None:
        """Take over who holds what; see `ScoredRows.set_population`."""
        self.rows.set_population(population, samples_changed=samples_changed)
        self._kept.clear()

    def load(self) -> None:
        """Load the compiled code, where there is any, and compile it where this machine never did:
        before worker processes fork, so that each of them finds it loaded."""
        if self._compiled is not None:
            self._compiled.trainer.kernel("score")

    @torch.inference_mode()
    def score(
        self,
        models: Tensor,
        ids: IntArray,
        which: IntArray,
        work: Score,
        helpers: Helpers | None = None,
    ) -> dict[str, FloatArray]:
        """The sums of each client on its models, float64 ``[n, r, *shape]`` each, and the summed
        ``loss``; zeros for clients without a sample. ``helpers`` score where this process has no
        compiled code."""
        shapes = dict(work.sums)
        if work.loss:
            shapes["loss"] = ()
        found = {name: np.zeros((*which.shape, *shape)) for name, shape in shapes.items()}
        if not len(ids):
            # All clients attack, for example, so that no honest one is left to score.
            return found
        rows = self._rows_side_by_side(ids, work.split)
        for column, models_of in enumerate(which.T):
            if self._compiled is not None and rows is not None:
                sums = self._compiled.sums(models, ids, models_of, work, rows)
            else:
                sums = self._column_by_models(models, ids, models_of, work, helpers)
            for name, values in found.items():
                if name in sums:
                    values[:, column] = sums[name]
        return found

    def _rows_side_by_side(self, ids: IntArray, split: Split) -> ClientSamples | None:
        """The samples of all these clients for compiled code; ``None`` where there is none, or where
        clients share samples, each of which is scored once then."""
        if not self._reads_in_place:
            return None
        rows = self.rows.in_place(ids, split, ids)
        return rows if rows.spread is None else None

    @property
    def _reads_in_place(self) -> bool:
        """Whether compiled code reads samples where they lie, which saves a copy."""
        population = self.rows.population
        return self._compiled is not None and not population.lazy and population.x.is_contiguous()

    def _column_by_models(
        self,
        models: Tensor,
        ids: IntArray,
        models_of: IntArray,
        work: Score,
        helpers: Helpers | None,
    ) -> dict[str, FloatArray]:
        """The same where samples of different clients cannot be scored side by side."""
        found: dict[str, FloatArray] = {}

        def put(mine: IntArray, sums: Mapping[str, FloatArray]) -> None:
            for name, values in sums.items():
                if name not in found:
                    found[name] = np.zeros((len(ids), *values.shape[1:]))
                found[name][mine] = values

        passes = []
        places = []
        for row in np.unique(models_of).tolist():
            mine = np.flatnonzero(models_of == row)
            known = self._kept.find(models[row], ids[mine], work)
            if known is not None:
                put(mine, known)
            else:
                passes.append(Scored(models[row], ids[mine]))
                places.append(mine)
        scored = self._each(passes, work, ids, helpers)
        for one, mine, (added, rows) in zip(passes, places, scored, strict=True):
            sums = {name: summed(values, rows) for name, values in added.items()}
            self._kept.keep(one.vector, one.ids, work, sums)
            put(mine, sums)
        return found

    def _each(
        self, passes: Sequence[Scored], work: Score, everyone: IntArray, helpers: Helpers | None
    ) -> Iterator[tuple[dict[str, PerSample], ClientSamples]]:
        """Score one model after another; yields what each sample adds to each sum in a pass, and
        whose samples they are. ``everyone``: the clients that are scored in this round, on these
        models or others."""
        by_helpers = self._ask(helpers, passes, work)
        for number, one in enumerate(passes):
            if by_helpers is not None:
                yield by_helpers[number], self.rows.numbers(one.ids, work.split)
            else:
                yield self._per_sample(one, work, everyone)

    def _ask(
        self, helpers: Helpers | None, passes: Sequence[Scored], work: Score
    ) -> list[dict[str, PerSample]] | None:
        """What helpers found, ``None`` where there are none, they do not help, or compiled code is
        faster."""
        if helpers is None or self._compiled is not None or not passes:
            return None
        sizes = self.rows.population.sizes(work.split)
        # A single chunk is a single process's work.
        if sum(int(sizes[one.ids].sum()) for one in passes) <= self.network.chunk:
            return None
        return helpers(passes, work)

    @torch.inference_mode()
    def sample_losses(
        self,
        vectors: Tensor,
        ids: IntArray,
        split: Split,
        everyone: IntArray,
        helpers: Helpers | None = None,
    ) -> tuple[FloatArray, IntArray]:
        """The loss of each sample under some models, float64 ``[s, r]``, client after client, and
        where each client's samples begin and end, ``[n + 1]``."""
        work = Score(split, sums=())
        passes = [Scored(vector, ids) for vector in vectors]
        found = []
        bounds = np.zeros(len(ids) + 1, np.int64)
        for added, rows in self._each(passes, work, everyone, helpers):
            loss = added.get("loss", np.empty(0))
            assert not isinstance(loss, Places), "a loss is a number for each sample"
            if rows.spread is not None:
                loss = loss[rows.spread]
            found.append(loss)
            bounds = rows.bounds
        return np.stack(found, axis=1), bounds

    @torch.inference_mode()
    def score_mixture(
        self, vectors: Tensor, ids: IntArray, shares: FloatArray, work: Score
    ) -> dict[str, FloatArray]:
        """Score the mixture of what several models predict, ``p(y | x) = sum_m pi_m p_m(y | x)``."""
        rows = self.rows.gathered(ids, work.split)
        if rows.spread is not None:
            # Clients that share a sample mix its predictions differently.
            place = torch.from_numpy(rows.spread)
            rows = replace(rows, x=rows.x[place], y=rows.y[place], spread=None)
        owner = np.repeat(np.arange(len(ids)), np.diff(rows.bounds))
        share = torch.from_numpy(shares[owner]).to(self.network.device, torch.float32)
        mixed = torch.zeros(())
        for column, vector in enumerate(vectors):
            outputs = [out for out, _ in self.network.outputs(vector, rows)]
            if outputs:
                mixed = mixed + share[:, column, None] * torch.cat(outputs).softmax(dim=1)
        if not len(rows.y):
            return {}
        # The softmax of logarithms of probabilities is these probabilities.
        added = self.network.added(mixed.log(), rows.y, work)
        return {name: summed(on_cpu(values), rows) for name, values in added.items()}

    def _per_sample(
        self, one: Scored, work: Score, everyone: IntArray
    ) -> tuple[dict[str, PerSample], ClientSamples]:
        """What each sample adds to each sum, and whose samples they are."""
        in_place = self._reads_in_place
        # On disk all samples at once may be larger than memory.
        if self._compiled is None and self.rows.population.on_disk:
            in_place = True
        if in_place:
            rows = self.rows.in_place(one.ids, work.split, everyone)
        else:
            rows = self.rows.gathered(one.ids, work.split)
        scorer = self._compiled or self.network
        return scorer.per_sample(one.vector, rows, work), rows
