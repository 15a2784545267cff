"""How a model moves on the weighted update of its participants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from coterie.similarity import Matrix
from coterie.types import Groups

Server = Callable[[Groups, Tensor, Tensor], Groups]


def combine(weights: Matrix, delta: Tensor) -> tuple[Tensor, Tensor]:
    """``W @ delta`` in float64 and in client order.

    Returns:
        float64 ``[k, d]`` and bool ``[k]``, which rows anybody trained.
    """
    total = torch.zeros(len(weights), delta.shape[1], dtype=torch.float64)
    for j, row in enumerate(weights):
        for i in row.nonzero()[0]:
            total[j].add_(delta[i], alpha=float(row[i]))
    return total, torch.from_numpy((weights != 0).any(axis=1))


def sgd(lr: float = 1.0) -> Server:
    """``w_j <- w_j + lr * (W delta)_j``; a model nobody trained stays (FedAvg with ``lr = 1``)."""

    def step(groups: Groups, update: Tensor, trained: Tensor) -> Groups:
        moved = (groups.models.to(torch.float64) + lr * update).to(torch.float32)
        return replace(groups, models=torch.where(trained[:, None], moved, groups.models))

    return step
