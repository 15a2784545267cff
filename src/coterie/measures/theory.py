"""The quantities of FedGroup's convergence analysis, to see in a run how grouping shrinks them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.clients.clients import Clients
from coterie.core.arrays import BoolArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.core.training import FullGradient
from coterie.core.work import Train
from coterie.data.population import Population


def gradient_divergence(
    clients: Clients, groups: Groups, key: Key, can_train: BoolArray | None = None
) -> float | None:
    """Intra-group gradient divergence at the current models (Definition 2); ``None`` if no client
    answers. It does not count as traffic.

    Eq. 12 is the same in both papers. Eq. 13 is FlexCFL's, ``delta = sum_g sum_k p_g p_k
    delta_{k,g}`` with the share ``p_g`` of a group; FedGroup's leaves out ``p_g``, so that its sum
    grows with the number of groups.

    ``delta_{k,g} = |grad F_k(w_g) - grad F_g(w_g)|``, where the paper takes the maximum over ``w``,
    ``p_k = n_k / sum of n over the group`` and ``p_g`` is the group's share of all samples. So
    ``delta`` of one group and of many can be compared.
    """
    ids = np.flatnonzero(groups.member >= 0)
    # Clients that are not there, or have no training data, have no gradient.
    if can_train is not None:
        ids = ids[can_train[ids]]
    work = Train(how=FullGradient())
    reply = clients.run(work, ids, groups.models, groups.member[ids], key=key, counts=False)
    if not len(reply):
        return None
    # The update of one full-batch step of size 1 is the negative gradient.
    gradient = -reply.delta.to(torch.float64)
    size = reply.size
    member = groups.member[reply.ids]
    total = 0.0
    for j in np.unique(member):
        mine = np.flatnonzero(member == j)
        rows = gradient[torch.from_numpy(mine)]
        n = torch.from_numpy(size[mine])
        mean = (n[:, None] * rows).sum(dim=0) / n.sum()
        total += float((n * (rows - mean).norm(dim=1)).sum())
    return total / float(size.sum())


@dataclass(frozen=True, slots=True)
class Constants:
    """Smoothness ``L`` and Lipschitz constant ``M`` of multinomial logistic regression.

    With ``x`` extended by a 1 for the bias, ``L <= lambda_max(mean x x^T) / 2`` (the softmax
    Hessian is at most 1/2), ``M <= sqrt(2) mean |x|``.
    """

    smoothness: float
    lipschitz: float

    @classmethod
    def of(cls, population: Population) -> Constants:
        """From all training samples of a population.

        Example:
            >>> x = torch.tensor([[3.0], [4.0]])
            >>> p = Population(x, torch.tensor([0, 1]), ([0], [1]), ([], []), classes=2)
            >>> round(Constants.of(p).smoothness, 3)
            6.741
        """
        held = torch.from_numpy(np.concatenate(population.train))
        x = with_bias(population.x[held])
        largest = float(torch.linalg.eigvalsh(x.T @ x / len(x))[-1])
        length = float(x.norm(dim=1).mean())
        return cls(smoothness=largest / 2, lipschitz=math.sqrt(2) * length)


def with_bias(x: Tensor) -> Tensor:
    """Flat inputs with a 1 at the end, float64 ``[n, f + 1]``."""
    flat = x.reshape(len(x), -1).to(torch.float64)
    return torch.cat([flat, torch.ones(len(flat), 1, dtype=torch.float64)], dim=1)


def bound(delta: float, constants: Constants, solver: Solver, shift: float = 0.0) -> float:
    """How far a group's loss may be from centralised training: FedGroup's eq. 19, and eq. 22 where
    groups aggregate with each other.

    ``delta M / L ((eta L + 1)^E - 1) + M shift``. The printed eq. 22 has ``shift = eta_g (|G| -
    1)``, and forgets its ``M`` (erratum P16). That is how far the rules ``normalized_difference``
    and ``normalized_model`` can move a model; ``InterGroupStep.largest_shift`` has a bound for each
    rule. It holds for convex models and full-batch steps, of which ``E`` counts one an epoch.

    Example:
        >>> round(bound(1.0, Constants(2.0, 4.0), Solver(epochs=2, lr=0.5), shift=0.2), 6)
        6.8
    """
    # (eta L + 1)^E - 1, through logarithms: exact for small eta L, and cut off before it overflows.
    exponent = solver.epochs * math.log1p(solver.lr * constants.smoothness)
    growth = math.expm1(min(700.0, exponent))
    within_groups = delta * constants.lipschitz / constants.smoothness * growth
    between_groups = constants.lipschitz * shift
    return within_groups + between_groups
