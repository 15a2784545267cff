"""pFedMe on MNIST, by the recipe of a run whose accuracies its authors keep beside their code.

Their repository (CharlieDinh/pFedMe) has the test accuracy of each of 800 rounds of a run on MNIST:
20 clients with two labels each, logistic regression, 20 local steps with batches of 20, rate 0.005,
``lambda`` 15, five inner steps with rate 0.1. There all clients train in every round, and five of them
count for the new model; here all count.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

import coterie as ct
from coterie.core.arrays import IntArray
from coterie.data import Population

CLIENTS = 20
LABELS = 2
TRAINED_ON = 0.75
ROUNDS = 800
# The last value of `rs_glob_acc` in results/Mnist_pFedMe_p_0.005_1_15_5u_20b_20_5_0.1_avg.h5.
PRINTED = 0.9454
SOLVER = ct.Solver(steps=20, batch_size=20, lr=0.005)


def parts_of_labels(total: int, parts: int, rng: np.random.Generator) -> list[int]:
    """A label's samples in parts of random sizes, as the authors' `ram_dom_gen` draws them."""
    found = []
    for _ in range(parts - 1):
        found.append(int(rng.integers(total // (parts + 1), total // 2)))
        total -= found[-1]
    return [*found, total]


def two_labels(data: Population, seed: int) -> Population:
    """Client ``u`` has the labels ``u`` and ``u + 1``, modulo ten, in random amounts."""
    rng = np.random.default_rng(seed)
    by_label = [np.flatnonzero(data.y.numpy() == label) for label in range(10)]
    each = CLIENTS * LABELS // 10
    # As the authors number them: the first part of every label, then the second of every label, ...
    sizes = np.array([parts_of_labels(len(rows), each, rng) for rows in by_label]).T.ravel()
    left = [list(rng.permutation(rows)) for rows in by_label]
    train = []
    test = []
    for client in range(CLIENTS):
        held: list[int] = []
        for j in range(LABELS):
            label = (client + j) % 10
            size = int(sizes[LABELS * client + j])
            # The authors leave out what is more than a label has left.
            if size < len(left[label]):
                held += left[label][:size]
                left[label] = left[label][size:]
        rows: IntArray = rng.permutation(np.array(held, np.int64))
        cut = int(TRAINED_ON * len(rows))
        train.append(rows[:cut])
        test.append(rows[cut:])
    return replace(
        data, train=tuple(train), test=tuple(test), names=tuple(map(str, range(CLIENTS)))
    )


def standardised(data: Population) -> Population:
    """Each pixel with mean 0 and deviation 1 over all images."""
    x = data.x.to(torch.float32).flatten(1)
    scaled = (x - x.mean(dim=0)) / (x.std(dim=0) + 0.001)
    return replace(data, x=scaled.reshape(data.x.shape))


def measure(seed: int, rounds: int) -> float:
    """The accuracy of the clients' own models, the mean of the last ten rounds."""
    data = ct.load("mnist", partition={"kind": "iid", "clients": CLIENTS}, pixels="unit")
    result = ct.run(
        ct.pfedme(lam=15.0, inner_steps=5, inner_lr=0.1),
        data=two_labels(standardised(data), seed),
        model="mclr",
        local=SOLVER,
        rounds=rounds,
        clients_per_round=CLIENTS,
        seed=seed,
        engine="serial",
        train={"evaluate_every": 10},
    )
    known = [row["accuracy"] for row in result.rows if row["accuracy"] is not None]
    return statistics.fmean(known[-10:])


def compare(seeds: Sequence[int], rounds: int) -> None:
    """Measure and print beside what the authors have."""
    for seed in seeds:
        found = measure(seed, rounds)
        print(f"pFedMe, seed {seed}: {100 * found:.2f} %, theirs {100 * PRINTED:.2f} %", flush=True)
