"""Noise in the inputs of clients, as the partition ``feature_noise`` describes it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from coterie.core.keys import Key
from coterie.data.partitions import Partition
from coterie.errors import DataError


def with_noise(x: Tensor, parts: Partition) -> Tensor:
    """Inputs with each client's noise.

    Args:
        x: inputs ``[S, ...]``.
        parts: with ``noise``.

    Raises:
        DataError: for inputs that are no numbers, such as tokens, or made client by client.

    Example:
        >>> rows = (np.array([0]), np.array([1]))
        >>> nothing = (np.empty(0, np.int64),) * 2
        >>> parts = Partition(rows, nothing, noise=np.array([0.0, 1.0]))
        >>> (with_noise(torch.zeros(2, 3), parts) != 0).any(dim=1).tolist()
        [False, True]
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise DataError(
            "data.partition.kind: 'feature_noise' adds to numbers, got inputs that are tokens or "
            "made client by client; expected images or a table"
        )
    assert parts.noise is not None
    # A copy: the source may hand the same tensor to another partition.
    noisy = x.clone()
    key = Key(parts.noise_seed).of("feature noise")
    for client, deviation in enumerate(parts.noise.tolist()):
        rows = np.concatenate([parts.train[client], parts.test[client]])
        if deviation:
            drawn = key.client(client).generator().standard_normal((len(rows), *x.shape[1:]))
            noisy[torch.from_numpy(rows)] += torch.from_numpy(deviation * drawn).to(x.dtype)
    return noisy
