"""How the weighted update of its participants changes a model.

All rules work on the rows of ``[k, d]`` at once. A row that no client trained neither moves nor
decays. With ``D`` the weighted mean of the updates, the adaptive rules are those of Reddi et al.,
Adaptive Federated Optimization (2021), Alg. 2:

    m <- beta1 m + (1 - beta1) D,   v <- (by rule),   w <- w + lr m / (sqrt(v) + tau)

with ``m = 0`` and ``v = tau^2`` at the start, and no bias correction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from coterie.config.arguments import validated
from coterie.core.groups import Groups

# Groups, their weighted updates [k, d] and which of them were trained [k] -> the groups moved.
Server = Callable[[Groups, Tensor, Tensor], Groups]
Rate = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0, lt=1)]


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


@validated
def momentum(lr: Rate = 1.0, beta: Decay = 0.9) -> Server:
    """FedAvgM: ``m <- beta m + D``, ``w <- w + lr m``.

    Args:
        lr: server learning rate.
        beta: decay of the momentum; 0 is ``sgd``.

    Source: Hsu et al., Measuring the Effects of Non-Identical Data Distribution (2019).

    Example:
        >>> import numpy as np
        >>> groups, update, trained = Groups(torch.zeros(1, 1), np.zeros(1)), torch.ones(1, 1), torch.tensor([True])
        >>> step = momentum(beta=0.5)
        >>> step(step(groups, update, trained), update, trained).models.tolist()
        [[2.5]]
    """

    def step(groups: Groups, update: Tensor, trained: Tensor) -> Groups:
        m = beta * _rows(groups, "m", 0.0) + update
        return _moved(groups, lr * m, trained, m=(m, 0.0))

    return step


@validated
def adagrad(lr: Rate = 0.1, beta1: Decay = 0.0, tau: Rate = 1e-3) -> Server:
    """FedAdagrad: ``v <- v + D^2``.

    Args:
        lr: server learning rate.
        beta1: decay of the first moment.
        tau: adaptivity; smaller values adapt more.

    Example:
        >>> import numpy as np
        >>> groups = Groups(torch.ones(1, 2), np.zeros(1, np.int64))
        >>> adagrad()(groups, torch.tensor([[0.1, -0.2]], dtype=torch.float64), torch.tensor([True])).models
        tensor([[1.0990, 0.9005]])
    """
    return _adaptive(lr, beta1, tau, lambda v, square: v + square)


@validated
def adam(lr: Rate = 10**-2.5, beta1: Decay = 0.9, beta2: Decay = 0.99, tau: Rate = 1e-3) -> Server:
    """FedAdam: ``v <- beta2 v + (1 - beta2) D^2``.

    Args:
        lr: server learning rate.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        tau: adaptivity; smaller values adapt more.

    Example:
        >>> import numpy as np
        >>> groups = Groups(torch.ones(1, 2), np.zeros(1, np.int64))
        >>> adam(0.1)(groups, torch.tensor([[0.1, -0.2]], dtype=torch.float64), torch.tensor([True])).models
        tensor([[1.0905, 0.9049]])
    """
    return _adaptive(lr, beta1, tau, lambda v, square: beta2 * v + (1 - beta2) * square)


@validated
def yogi(lr: Rate = 10**-2.5, beta1: Decay = 0.9, beta2: Decay = 0.99, tau: Rate = 1e-3) -> Server:
    """FedYogi: ``v <- v - (1 - beta2) D^2 sign(v - D^2)``.

    Args:
        lr: server learning rate.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        tau: adaptivity; smaller values adapt more.

    Example:
        >>> import numpy as np
        >>> groups = Groups(torch.ones(1, 2), np.zeros(1, np.int64))
        >>> yogi(0.1)(groups, torch.tensor([[0.1, -0.2]], dtype=torch.float64), torch.tensor([True])).models
        tensor([[1.0905, 0.9049]])
    """
    return _adaptive(
        lr, beta1, tau, lambda v, square: v - (1 - beta2) * square * torch.sign(v - square)
    )


SERVERS: Mapping[str, Callable[..., Server]] = MappingProxyType(
    {"sgd": sgd, "fedavgm": momentum, "fedadagrad": adagrad, "fedadam": adam, "fedyogi": yogi}
)


def _adaptive(
    lr: float, beta1: float, tau: float, second: Callable[[Tensor, Tensor], Tensor]
) -> Server:
    def step(groups: Groups, update: Tensor, trained: Tensor) -> Groups:
        m = beta1 * _rows(groups, "m", 0.0) + (1 - beta1) * update
        v = second(_rows(groups, "v", tau**2), update.square())
        return _moved(groups, lr * m / (v.sqrt() + tau), trained, m=(m, 0.0), v=(v, tau**2))

    return step


def _rows(groups: Groups, name: str, start: float) -> Tensor:
    """The optimiser's rows, float64 ``[k, d]``; models that have none begin with ``start``.

    A rule that splits groups takes their rows along (``Groups.select``); new models have none.
    Where there are more rows than models, it is unknown which belong to which, and all are reset.
    """
    shape = groups.models.shape
    kept = groups.optimiser.get(name, torch.empty(0, shape[1]))
    kept = kept[:0] if len(kept) > shape[0] else kept
    fresh = torch.full((shape[0] - len(kept), shape[1]), start, dtype=torch.float32)
    return torch.cat([kept, fresh]).to(torch.float64)


def _moved(groups: Groups, by: Tensor, trained: Tensor, **rows: tuple[Tensor, float]) -> Groups:
    """Models ``by`` further and the optimiser's new rows, each with its start, where a client
    trained."""
    optimiser = {
        name: torch.where(trained[:, None], new, _rows(groups, name, start)).to(torch.float32)
        for name, (new, start) in rows.items()
    }
    return replace(
        groups,
        models=moved_models(groups, by, trained),
        optimiser=MappingProxyType({**groups.optimiser, **optimiser}),
    )
