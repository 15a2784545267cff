"""Which model serves which client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.plan import ClientShares, with_mixtures
from coterie.core.work import Train
from coterie.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Served:
    """The matrix ``S [N, m]`` of the design: client ``i`` is served by ``S_i @ models``.

    A client with one model has a single 1 in its row of ``S``, so the matrix is kept as the number
    of that column.

    Args:
        models: float32 ``[m, d]``.
        row: int64 ``[N]``, the model of each client; numbers from ``m`` on name rows of
            ``mixtures``.
        mixtures: float64 ``[s, m]``, rows of ``S`` with several models in them, ``None``: there are
            none. Each sums to 1.
        personal: the training of a method whose clients have a model of their own, whose rule makes
            of the model here the one that a client predicts by; ``None``: they predict by it as it
            is.
        shares: float64 ``[N, m]``, where clients are served by no single model: they predict with the
            mean of what all models predict, weighted by their shares. ``row`` says nothing then.

    Example:
        >>> import torch
        >>> served = Served(torch.tensor([[0.0], [4.0]]), np.array([1, 2]), np.array([[0.5, 0.5]]))
        >>> served.vector(0).tolist(), served.vector(1).tolist()
        ([4.0], [2.0])
    """

    models: Tensor
    row: IntArray
    mixtures: FloatArray | None = None
    personal: Train | None = None
    shares: FloatArray | None = None

    def to_score(self, ids: IntArray) -> tuple[Tensor, IntArray, ClientShares | None]:
        """The vectors ``[p, d]`` that some clients are scored on, which of them each one, and their
        shares of them where they predict with several: then ``[n, p]`` instead of ``[n]``."""
        if self.shares is None:
            return *self.for_clients(ids), None
        every_model = np.tile(np.arange(len(self.models)), (len(ids), 1))
        return self.models, every_model, ClientShares(ids, self.shares[ids])

    def for_clients(self, ids: IntArray) -> tuple[Tensor, IntArray]:
        """The vectors ``[p, d]`` that serve some clients, and which of them serves each. Only the
        mixtures of these clients are computed, so that a million clients cost no more than those
        that are asked.

        Raises:
            ConfigError: where no single model serves a client.
        """
        if self.shares is not None:
            what = "clients predict with the mean of several models' predictions"
            got = f"{len(self.models)} models for each client"
            expected = "a method with one model for each client"
            raise ConfigError("does-not-fit", "algorithm.name", what, found=got, allowed=expected)
        row = self.row[ids]
        if self.mixtures is None:
            return self.models, row
        mixed = row >= len(self.models)
        used, place = np.unique(row[mixed] - len(self.models), return_inverse=True)
        row = row.copy()
        row[mixed] = len(self.models) + place
        return with_mixtures(self.models, self.mixtures[used]), row

    def vector(self, client: int) -> Tensor:
        """The flat parameters ``[d]`` that serve a client, without what it has of its own."""
        models, row = self.for_clients(np.array([client]))
        return models[row[0]]
