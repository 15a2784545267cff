"""How good the models of an export are, on the clients' own test samples, by the task's headline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from coterie.core.arrays import IntArray
from coterie.core.task import Sums, Task, headline_of
from coterie.data import Population
from coterie.headline import ACCURACY, Headline
from coterie.tasks import headline_value, pooled_sums

# So many, since a batch of all test samples of a convolutional network may not fit in memory.
CHUNK = 1024  # samples evaluated at once


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """How good one model is, and what its clients hold.

    Args:
        clients: whom it serves; ``None`` where that is not told.
        score: the headline on their test samples; ``None`` without any.
        train: their training samples; ``None`` where only the clients know.
        mix: their training samples of each class; ``None`` where only the clients know, empty where
            targets are no classes.
    """

    name: str
    clients: int | None
    score: float | None
    train: int | None = None
    test: int | None = None
    mix: Sequence[int] | None = None

    @property
    def published(self) -> GroupFigures:
        """The name alone: of a private run single groups are not described."""
        return GroupFigures(self.name, None, None)


@dataclass(frozen=True, slots=True)
class Figures:
    """How good the models are.

    Args:
        groups: one for each model.
        score: the headline over all test samples, each client with the model that serves it;
            ``None`` without any.
        headline: what the run is measured by.
        reported_after: for real clients, the number of rounds after which they reported the
            scores; ``None`` where the models were evaluated by the export, or never.
    """

    groups: Sequence[GroupFigures]
    score: float | None
    headline: Headline = ACCURACY
    reported_after: int | None = None


def evaluate(
    population: Population, row: IntArray, modules: Mapping[str, nn.Module], task: Task
) -> Figures:
    """Evaluate every model on the test samples of the clients that it serves; ``row [N]`` says
    which."""
    train = population.sizes("train")
    mixes = population.histograms()
    groups = []
    found = []
    for at, (name, module) in enumerate(modules.items()):
        ids = np.flatnonzero(row == at)
        held = [population.test[client] for client in ids.tolist()]
        # The empty one is for a model that serves nobody: nothing cannot be concatenated.
        test = np.concatenate([*held, np.empty(0, np.int64)])
        # Sums and not scores: those of all models together give the score over all samples.
        sums = _sums(module, population, test, task)
        found += sums
        figures = GroupFigures(
            name,
            len(ids),
            headline_value(task, sums),
            train=int(train[ids].sum()),
            test=len(test),
            mix=mixes[ids].sum(axis=0).tolist(),
        )
        groups.append(figures)
    return Figures(groups, headline_value(task, found), headline_of(task))


@torch.no_grad()
def _sums(module: nn.Module, population: Population, rows: IntArray, task: Task) -> list[Sums]:
    """The sums of the task over some samples, chunk by chunk."""
    found = []
    for begin in range(0, len(rows), CHUNK):
        chunk = torch.from_numpy(rows[begin : begin + CHUNK])
        found.append(pooled_sums(task, module(population.x[chunk]), population.y[chunk]))
    return found


def reported_figures(
    names: Sequence[str],
    row: IntArray,
    rows: Sequence[Mapping[str, Any]],
    headline: Headline = ACCURACY,
) -> Figures:
    """What real clients reported at the last evaluation. If that was after the last round, the
    score of each model is known; otherwise that of the run as a whole. ``row [N]``: each client's
    model."""
    keys = headline.keys
    evaluated = [each for each in rows if each.get(headline.name) is not None]
    scores: list[float | None] = [None] * len(names)
    last: Mapping[str, Any] = {}
    if evaluated:
        last = evaluated[-1]
        # Groups of an earlier round may have been others.
        if last is rows[-1]:
            known = list(last[keys.groups])
            scores = [*known, *scores][: len(names)]
    groups = [
        GroupFigures(name, int((row == at).sum()), scores[at]) for at, name in enumerate(names)
    ]
    if not last:
        return Figures(groups, None, headline)
    return Figures(groups, last.get(keys.all), headline, last["round"] + 1)
