"""How good the models of an export are, on the clients' own test samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from coterie.core.arrays import IntArray
from coterie.data import Population

# So many, since a batch of all test samples of a convolutional network may not fit in memory.
CHUNK = 1024  # samples evaluated at once


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """How good one model is, and what its clients hold.

    Args:
        name: of the model.
        clients: how many it serves.
        accuracy: on their test samples; ``None`` without any.
        train: their training samples; ``None`` where only the clients know.
        test: their test samples; ``None`` where only the clients know.
        mix: their training samples of each class; ``None`` where only the clients know.
    """

    name: str
    clients: int
    accuracy: float | None
    train: int | None = None
    test: int | None = None
    mix: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """How good the models are.

    Args:
        groups: one for each model.
        accuracy: over all test samples, each client with the model that serves it; ``None`` without
            any.
        reported_after: for real clients, the number of rounds after which they reported the
            accuracies; ``None`` where the models were evaluated by the export, or never.
    """

    groups: Sequence[GroupFigures]
    accuracy: float | None
    reported_after: int | None = None


def evaluate(population: Population, row: IntArray, modules: Mapping[str, nn.Module]) -> Figures:
    """Evaluate every model on the test samples of the clients that it serves.

    Args:
        population: who holds what.
        row: int64 ``[N]``, which of the models serves each client.
        modules: name -> model.
    """
    train = population.sizes("train")
    mixes = population.histograms()
    groups = []
    tested = 0
    correct = 0
    for at, (name, module) in enumerate(modules.items()):
        ids = np.flatnonzero(row == at)
        held = [population.test[client] for client in ids.tolist()]
        # The empty one is for a model that serves nobody: nothing cannot be concatenated.
        test = np.concatenate([*held, np.empty(0, np.int64)])
        group_correct = _count_correct(module, population, test)
        accuracy = None
        if len(test):
            accuracy = group_correct / len(test)
        figures = GroupFigures(
            name,
            len(ids),
            accuracy,
            train=int(train[ids].sum()),
            test=len(test),
            mix=mixes[ids].sum(axis=0).tolist(),
        )
        groups.append(figures)
        tested += len(test)
        correct += group_correct
    if not tested:
        return Figures(groups, None)
    return Figures(groups, correct / tested)


@torch.no_grad()
def _count_correct(module: nn.Module, population: Population, rows: IntArray) -> int:
    """How many of some samples a model classifies correctly."""
    correct = 0
    for begin in range(0, len(rows), CHUNK):
        chunk = torch.from_numpy(rows[begin : begin + CHUNK])
        predicted = module(population.x[chunk]).argmax(dim=1)
        correct += int((predicted == population.y[chunk]).sum())
    return correct


def reported_figures(
    names: Sequence[str], row: IntArray, rows: Sequence[Mapping[str, Any]]
) -> Figures:
    """What real clients reported at the last evaluation.

    If that was after the last round, the accuracy of each model is known; otherwise that of the run
    as a whole.

    Args:
        names: of the models.
        row: int64 ``[N]``, which of the models serves each client.
        rows: of ``rounds.jsonl``, up to the round of the models.
    """
    evaluated = [each for each in rows if each.get("accuracy") is not None]
    accuracies: list[float | None] = [None] * len(names)
    last: Mapping[str, Any] = {}
    if evaluated:
        last = evaluated[-1]
        # Groups of an earlier round may have been others.
        if last is rows[-1]:
            known = list(last["accuracy_groups"])
            accuracies = [*known, *accuracies][: len(names)]
    groups = [
        GroupFigures(name, int((row == at).sum()), accuracies[at]) for at, name in enumerate(names)
    ]
    if not last:
        return Figures(groups, None)
    return Figures(groups, last.get("accuracy_all"), last["round"] + 1)
