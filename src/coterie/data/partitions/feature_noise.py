"""Feature skew: clients alike but for noise in their inputs, from none to much."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from coterie.core.keys import Key
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import Count, Fraction
from coterie.data.partitions.iid import iid
from coterie.data.samples import Samples


def feature_noise(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 100,
    noise: Annotated[float, Field(gt=0)] = 0.1,
    test_fraction: Fraction = 0.1,
) -> Partition:
    """A random share of equal size for every client, and Gaussian noise in its inputs.

    The noise of client ``i`` of ``N``, from 0, has the standard deviation ``noise i / (N - 1)``. It
    is drawn once, so that a sample looks the same in every round, and is in training and test
    samples. Inputs of a table get it after scaling.

    Args:
        samples: of a source; their labels are not read.
        key: the stream that shuffles, and that says which noise is drawn.
        clients: number of clients ``N``.
        noise: standard deviation of the last client's noise, in units of the inputs.
        test_fraction: share of each client's samples to test on, where the source has no test rows.

    Raises:
        DataError: if there are fewer training samples than clients.

    Source: Li et al., Federated Learning on Non-IID Data Silos: An Experimental Study (2022). Its
    text calls the number a variance, its code takes it for a standard deviation, and so does this.

    Example:
        >>> import torch
        >>> y = torch.zeros(20, dtype=torch.int64)
        >>> samples = Samples(torch.zeros(20, 1), y, classes=1, train_rows=16)
        >>> feature_noise(samples, Key(0), clients=3, noise=0.2).noise.tolist()
        [0.0, 0.1, 0.2]
    """
    parts = iid(samples, key, clients=clients, test_fraction=test_fraction)
    seed = int(key.of("noise").generator().integers(2**62))
    return replace(parts, noise=np.linspace(0.0, noise, clients), noise_seed=seed)
