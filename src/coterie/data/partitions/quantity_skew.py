"""Quantity skew: clients with like data and unlike numbers of samples."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import (
    Count,
    Fraction,
    apportion,
    split_train_test,
    too_many_clients,
)
from coterie.data.samples import Samples

Skew = Literal["linear", "square", "exponential", "dirichlet"]


def quantity_skew(
    samples: Samples,
    key: Key,
    /,
    *,
    clients: Count = 100,
    skew: Skew = "dirichlet",
    beta: Annotated[float, Field(gt=0)] = 0.5,
    test_fraction: Fraction = 0.1,
) -> Partition:
    """Random samples for every client, of unlike numbers: ``i + 1``, its square, its exponential, or
    by Dir(beta).

    Every client has a training sample at least. ``linear``, ``square`` and ``exponential`` are the
    partitioners ``LinearPartitioner``, ``SquarePartitioner`` and ``ExponentialPartitioner`` of
    flwr-datasets; ``dirichlet`` is the quantity skew of NIID-Bench. By ``exponential`` the last
    client has nearly two thirds of all samples, however many clients there are.

    Args:
        samples: of a source; their inputs and labels are not read.
        key: the stream that draws.
        clients: number of clients ``N``.
        skew: how sizes differ.
        beta: concentration of ``dirichlet``; a small one gives few clients nearly everything.
        test_fraction: share of each client's samples to test on, where the source has no test rows.

    Raises:
        DataError: if there are fewer training samples than clients.

    Source: Li et al., Federated Learning on Non-IID Data Silos: An Experimental Study (2022).

    Example:
        >>> import torch
        >>> y = torch.zeros(23, dtype=torch.int64)
        >>> samples = Samples(torch.zeros(23, 1), y, classes=1, train_rows=20)
        >>> parts = quantity_skew(samples, Key(0), clients=3, skew="linear")
        >>> [len(rows) for rows in parts.train], sum(len(rows) for rows in parts.test)
        ([4, 6, 10], 3)
    """
    train_rows = samples.train_rows
    if clients > train_rows:
        raise too_many_clients(clients, train_rows)
    shares = _shares(skew, clients, beta, key.of("shares").generator())
    train = _cut(np.arange(train_rows), shares, key.of("train"), least=1)
    # Without a test split, each client gives up a share of its own.
    if train_rows == len(samples):
        return split_train_test(train, key, test_fraction)
    test = _cut(np.arange(train_rows, len(samples)), shares, key.of("test"), least=0)
    return Partition(tuple(train), tuple(test))


def _shares(skew: Skew, clients: int, beta: float, rng: np.random.Generator) -> FloatArray:
    """What each client gets, in proportion."""
    if skew == "dirichlet":
        drawn: FloatArray = rng.dirichlet(np.full(clients, beta))
        return drawn
    numbers = np.arange(1.0, clients + 1)
    if skew == "exponential":
        # In proportion to the last one's, since the exponential of 710 is beyond float64.
        return np.exp(numbers - clients)
    power = 1.0 if skew == "linear" else 2.0
    return numbers**power


def _cut(rows: IntArray, shares: FloatArray, key: Key, least: int) -> list[IntArray]:
    """Shuffled rows, cut in proportion to shares, with so many for everybody at least."""
    counts = least + apportion(shares, len(rows) - least * len(shares))
    shuffled = key.generator().permutation(rows)
    return np.split(shuffled, np.cumsum(counts)[:-1])
