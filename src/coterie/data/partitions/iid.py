"""Clients whose classes are alike: at random, of unlike sizes, or with noise in their inputs."""

from __future__ import annotations

from dataclasses import replace
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
    cut_pool,
    shuffle_and_split,
    split_train_test,
    too_many_clients,
)
from coterie.data.samples import Samples

Skew = Literal["linear", "square", "exponential", "dirichlet"]


def iid(
    samples: Samples, key: Key, /, *, clients: Count = 100, test_fraction: Fraction = 0.1
) -> Partition:
    """Random shares of equal size of the train rows and of the test rows for every client.

    Args:
        test_fraction: share of each client's samples to test on, if the source has no test rows.
    """
    train_rows = samples.train_rows
    if clients > train_rows:
        raise too_many_clients(clients, train_rows)
    train = shuffle_and_split(np.arange(train_rows), key.of("train"), clients)
    # Without a test split, each client gives up a share of its own.
    if train_rows == len(samples):
        return split_train_test(train, key, test_fraction)
    test = shuffle_and_split(np.arange(train_rows, len(samples)), key.of("test"), clients)
    return Partition(tuple(train), tuple(test))


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
    """Different numbers of random samples for each client: ``i + 1``, its square, its exponential,
    or by Dir(beta).

    Every client has at least one training sample. ``linear``, ``square`` and ``exponential`` are
    the partitioners ``LinearPartitioner``, ``SquarePartitioner`` and ``ExponentialPartitioner`` of
    flwr-datasets; ``dirichlet`` is the quantity skew of NIID-Bench. With ``exponential`` the last
    client has nearly two thirds of all samples, however many clients there are.

    Args:
        skew: how sizes differ.
        beta: concentration of ``dirichlet``; a small value gives nearly all samples to few clients.
        test_fraction: share of each client's samples to test on, if the source has no test rows.

    Source: Li et al., Federated Learning on Non-IID Data Silos: An Experimental Study (2022).
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
        return rng.dirichlet(np.full(clients, beta))
    numbers = np.arange(1.0, clients + 1)
    if skew == "exponential":
        # In proportion to the last one's, since the exponential of 710 is beyond float64.
        return np.exp(numbers - clients)
    power = 1.0 if skew == "linear" else 2.0
    return numbers**power


def _cut(rows: IntArray, shares: FloatArray, key: Key, least: int) -> list[IntArray]:
    """Shuffled rows, cut in proportion to shares, with so many for everybody at least."""
    counts = least + apportion(shares, len(rows) - least * len(shares))
    return cut_pool(key.generator().permutation(rows), counts)


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
    is drawn once, so that a sample is the same in every round, and is added to training and test
    samples. For a table it is added to the inputs after scaling.

    Args:
        noise: standard deviation of the last client's noise, in units of the inputs.
        test_fraction: share of each client's samples to test on, if the source has no test rows.

    Source: Li et al., Federated Learning on Non-IID Data Silos: An Experimental Study (2022). Its
    text calls the number a variance; its code uses it as a standard deviation, and so does Coterie.
    """
    parts = iid(samples, key, clients=clients, test_fraction=test_fraction)
    seed = int(key.of("noise").generator().integers(2**62))
    return replace(parts, noise=np.linspace(0.0, noise, clients), noise_seed=seed)
