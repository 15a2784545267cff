"""FedAvg by hand: one model, the clients, and a loop. `coterie.fedavg()` has the same bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

import coterie as ct


def fedavg(
    data: ct.Population, net: nn.Module, local: ct.Solver, rounds: int, per_round: int, seed: int
) -> Iterator[tuple[Tensor, float]]:
    """After each round: the model, float32 ``[d]``, and its accuracy on all test samples."""
    model = ct.flatten(net)
    with_samples = np.flatnonzero(data.sizes("train") > 0)
    tested = np.flatnonzero(data.sizes("test") > 0)
    sample = ct.Sampler("uniform", with_samples, per_round, ct.Key(seed))
    with ct.make_clients(data, net, local, "serial") as clients:
        for number in range(rounds):
            # Every random draw is named by the seed, the round and what it is for.
            key = ct.Key(seed).at(number)

            # Step 1: some clients are sampled, sent the model, and train it.
            reply = clients.run(ct.Train(), sample(number), model, key=key.of("train"))

            # Step 2: w <- w + sum_i n_i / n delta_i, in float64 and in the order of the clients.
            update = torch.zeros(len(model), dtype=torch.float64)
            for delta, share in zip(reply.delta, reply.size / reply.size.sum(), strict=True):
                update.add_(delta, alpha=float(share))
            model = (model.to(torch.float64) + update).to(torch.float32)

            # Step 3: all clients score the new model, which the traffic of the method leaves out.
            scored = clients.run(
                ct.Score("test"), tested, model, key=key.of("evaluate"), counts=False
            )
            yield model, float(scored.correct.sum() / scored.size.sum())


if __name__ == "__main__":
    data = ct.load("digits", partition={"kind": "dirichlet", "clients": 40, "beta": 0.5}, seed=0)
    net = nn.Linear(64, 10)
    solver = ct.Solver(epochs=2, lr=0.05)
    for number, (_, accuracy) in enumerate(fedavg(data, net, solver, 10, 10, seed=0), 1):
        print(f"round {number}: accuracy {accuracy:.1%}")
