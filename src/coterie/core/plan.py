"""Who trains from which model, and after whom; mixtures of models, and clients' shares of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray, empty_mapping, places_of
from coterie.core.groups import Groups


@dataclass(frozen=True, slots=True, eq=False)
class ClientShares:
    """How much of each model some clients are.

    Args:
        shares: float64 ``[n, r]``, rows that sum to 1.
        label_prior: float64 ``[r, c]``, how often each model's samples have each class over all
            clients, rows that sum to 1; ``None``: it plays no part.
    """

    ids: IntArray
    shares: FloatArray
    label_prior: FloatArray | None = None

    def of(self, ids: IntArray) -> FloatArray:
        """The shares of some of these clients, in their order."""
        return self.shares[places_of(ids, self.ids)]


@dataclass(frozen=True, slots=True, eq=False)
class SampleWeights:
    """How much each training sample of some clients counts in a local training.

    Args:
        weights: for each client one number for each of its samples, 1 for a sample that counts as
            ever.
    """

    ids: IntArray
    weights: tuple[FloatArray, ...]

    def of(self, client: int) -> FloatArray:
        """The weights of a client's samples."""
        return self.weights[int((self.ids == client).argmax())]


def with_mixtures(models: Tensor, mixtures: FloatArray | None) -> Tensor:
    """The models, and after them the mixtures of them.

    The sums run in float64, so that a mixture of equal models is that model to the bit.

    Args:
        models: float32 ``[k, d]``.
        mixtures: float64 ``[m, k]``, each row a share of every model; ``None``: none.

    Returns:
        float32 ``[k + m, d]``; the very same tensor where there are no mixtures.

    Example:
        >>> import numpy as np
        >>> with_mixtures(torch.tensor([[0.0], [4.0]]), np.array([[0.75, 0.25]])).ravel().tolist()
        [0.0, 4.0, 1.0]
    """
    if mixtures is None or not len(mixtures):
        return models
    # Shares relative to the largest, divided at the end: an even mixture is then the mean to the
    # bit, where a rounded 1 / k would break ties of the float32 result.
    relative = torch.from_numpy(mixtures / mixtures.max(axis=1, keepdims=True))
    mixed = torch.zeros(len(mixtures), models.shape[1], dtype=torch.float64)
    # One model after another: a matrix product may sum in another order on another processor.
    for j, model in enumerate(models.to(torch.float64)):
        mixed += relative[:, j, None] * model
    mixed /= relative.sum(dim=1, keepdim=True)
    return torch.cat([models, mixed.to(torch.float32)])


@dataclass(frozen=True, slots=True)
class Plan:
    """Which clients train, from which model, and in which order.

    The plan is a matrix ``M [n, k]``: client ``i`` starts from ``M_i @ models``. A client of one
    group has a single 1 in its row of ``M``, so only the number of that column is stored.

    Args:
        ids: int64 ``[n]``, distinct clients.
        row: int64 ``[n]``, the model each one trains (clients of one chain share it). Numbers from
            ``k`` on name the rows of ``mixtures``. If clients choose a model themselves
            (``Train.choose``), int64 ``[n, r]``: the models that each client is sent.
        chain: int64 ``[n]``, clients with the same number train one after another, in the order
            listed. ``None``: all clients train in parallel.
        spent: int64 ``[n]``, local epochs already spent in this round (in a cold start), ``None``:
            none.
        notes: what the rule did, as counts (newcomers, cold start, fallbacks).
        mixtures: float64 ``[m, k]``, rows of ``M`` with several models in them, ``None``: there are
            none. Each sums to 1.
        shares: float64 ``[n, k]``, the shares that are sent to clients that train all models
            (``Mixture``); ``None``: each client trains one model.
        answers: after the training, reads the replies to requests that were sent together with it,
            and stores them in the groups and the notes; ``None``: there are none. No training may
            depend on them.
        label_prior: float64 ``[k, c]``, with ``shares``: how often each model's samples have each
            class (``ClientShares.label_prior``).
    """

    ids: IntArray
    row: IntArray
    chain: IntArray | None = None
    spent: IntArray | None = None
    notes: Mapping[str, Any] = field(default_factory=empty_mapping)
    mixtures: FloatArray | None = None
    shares: FloatArray | None = None
    label_prior: FloatArray | None = None
    answers: Callable[[Groups], tuple[Groups, Mapping[str, Any]]] | None = None

    def answered(self, groups: Groups) -> tuple[Groups, Plan]:
        """The groups and the plan, updated by the replies to requests sent together with the
        training."""
        if self.answers is None:
            return groups, self
        groups, notes = self.answers(groups)
        return groups, replace(self, notes={**self.notes, **notes}, answers=None)

    def start_models(self, models: Tensor) -> Tensor:
        """The vectors ``[k + m, d]`` to which ``row`` refers: the models, then their mixtures."""
        return with_mixtures(models, self.mixtures)
