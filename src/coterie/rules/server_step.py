"""How a model moves on the weighted update of its participants: FedAvg's rule.

`coterie.rules.server` has the rules that remember earlier rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from coterie.config.arguments import validated
from coterie.core.groups import Groups

# Groups, their weighted updates [k, d] and which of them were trained [k] -> the groups moved.
Server = Callable[[Groups, Tensor, Tensor], Groups]
Rate = Annotated[float, Field(gt=0)]


@validated
def sgd(lr: Rate = 1.0) -> Server:
    """``w_j <- w_j + lr * (W delta)_j``, FedAvg with ``lr = 1``.

    Args:
        lr: server learning rate.

    Example:
        >>> import numpy as np
        >>> groups = Groups(torch.ones(2, 1), np.zeros(3, np.int64))
        >>> sgd(0.5)(groups, torch.full((2, 1), 2.0), torch.tensor([True, False])).models.ravel().tolist()
        [2.0, 1.0]
    """

    def step(groups: Groups, update: Tensor, trained: Tensor) -> Groups:
        return replace(groups, models=moved_models(groups, lr * update, trained))

    return step


def moved_models(groups: Groups, by: Tensor, trained: Tensor) -> Tensor:
    """The models ``by`` further, float32 ``[k, d]``; those that no client trained stay."""
    models = groups.models.to(torch.float64, copy=True).add_(by).to(torch.float32)
    # A group without replies has an update of zero, on which momentum alone would move it.
    if not bool(trained.all()):
        models = torch.where(trained[:, None], models, groups.models)
    return models
