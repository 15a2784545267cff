"""The models before the first round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.errors import ConfigError

# j -> the j-th initialisation of the network, float32 [d].
InitialModels = Callable[[int], Tensor]


@dataclass(frozen=True, slots=True)
class FirstModels:
    """The models before the first round.

    Args:
        groups: number of models.
        distinct: whether they start from different initialisations, and not all from ``w_0``.
        at_most_clients: whether to start with one model per client if there are fewer clients than
            ``groups``; otherwise that is an error.
    """

    groups: int = 1
    distinct: bool = False
    at_most_clients: bool = False

    def make(self, initial_models: InitialModels, clients: int) -> Tensor:
        """The models, float32 ``[k, d]``.

        Args:
            initial_models: ``j -> [d]``, the ``j``-th initialisation of the network.
            clients: number of clients.

        Raises:
            ConfigError: for fewer clients than groups.
        """
        k = self.groups
        if self.at_most_clients:
            k = min(k, clients)
        if clients < k:
            expected = f"1 to {clients}"
            what = "more groups than clients"
            raise ConfigError("out-of-range", "algorithm.groups", what, got=k, allowed=expected)
        which = [0] * k
        if self.distinct:
            which = list(range(k))
        return torch.stack([initial_models(j).to(torch.float32) for j in which])
