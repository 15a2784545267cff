"""The clients of PFLlib's benchmark on Fashion-MNIST, drawn as its scripts draw them.

All 70,000 images are shared among 20 clients, and of each client's images three quarters, drawn at
random, are for training.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

import coterie as ct
from coterie.core.arrays import IntArray
from coterie.data import Population

CLIENTS = 20
CLASSES = 10
LABELS = 2
BETA = 0.1
TRAINED_ON = 0.75
# A client has at least a batch of 10 to test on.
FEWEST = 40


def two_labels(labels: IntArray, rng: np.random.Generator) -> list[IntArray]:
    """Two labels for each client, in random amounts.

    The classes are dealt out one by one to the first clients that still need one. So four clients
    share the labels 0 and 1, the next four 2 and 3, and so on.

    Args:
        labels: int64 ``[n]``.
        rng: of the amounts.
    """
    needed = np.full(CLIENTS, LABELS)
    sharing = math.ceil(CLIENTS / CLASSES * LABELS)
    found: list[list[IntArray]] = [[] for _ in range(CLIENTS)]
    for label in range(CLASSES):
        rows = np.flatnonzero(labels == label)
        chosen = np.flatnonzero(needed > 0)[:sharing]
        even = len(rows) / len(chosen)
        fewest = max(even / 10, FEWEST / CLASSES)
        sizes = rng.integers(int(fewest), int(even), len(chosen) - 1)
        # The last client has what is left, which is the most.
        for client, part in zip(chosen, np.split(rows, np.cumsum(sizes)), strict=True):
            found[client].append(part)
        needed[chosen] -= 1
    return [np.concatenate(parts) for parts in found]


def dirichlet(labels: IntArray, rng: np.random.Generator) -> list[IntArray]:
    """A share of each label for each client, drawn from Dir(0.1). A client that has its even share of
    all images already gets no more.

    Args:
        labels: int64 ``[n]``.
        rng: of the shares; they are drawn again until every client has enough.
    """
    while True:
        found: list[IntArray] = [np.empty(0, np.int64) for _ in range(CLIENTS)]
        for label in range(CLASSES):
            rows = rng.permutation(np.flatnonzero(labels == label))
            shares = rng.dirichlet(np.full(CLIENTS, BETA))
            full = np.array([len(held) >= len(labels) / CLIENTS for held in found])
            shares[full] = 0
            cuts = (np.cumsum(shares / shares.sum()) * len(rows)).astype(np.int64)[:-1]
            parts = np.split(rows, cuts)
            found = [np.concatenate(pair) for pair in zip(found, parts, strict=True)]
        if min(len(held) for held in found) >= FEWEST:
            return found


SETTINGS = {"two labels": two_labels, "Dir(0.1)": dirichlet}


def clients(setting: str, seed: int) -> Population:
    """The clients of a seed.

    Args:
        setting: of `SETTINGS`.
        seed: of who holds what, and of the samples to test on.
    """
    # The partition is replaced below; pixels are between -1 and 1.
    data = ct.load("fashion_mnist", partition={"kind": "iid", "clients": CLIENTS}, pixels="unit")
    data = replace(data, x=(data.x - 0.5) / 0.5)
    rng = np.random.default_rng(seed)
    train = []
    test = []
    for held in SETTINGS[setting](data.y.numpy(), rng):
        rows: IntArray = rng.permutation(held)
        cut = int(TRAINED_ON * len(rows))
        train.append(rows[:cut])
        test.append(rows[cut:])
    names = tuple(map(str, range(CLIENTS)))
    return replace(data, train=tuple(train), test=tuple(test), names=names)
