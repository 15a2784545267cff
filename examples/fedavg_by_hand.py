"""FedAvg by hand: one model, the clients, and a loop. `coterie.fedavg()` has the same bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.core.vectors import flatten
from coterie.core.work import Evaluate
from coterie.engines import make_clients
from coterie.local import LocalRunner
from coterie.models import build_model
from coterie.objectives import plain


def fedavg(
    data: ct.Population, net: nn.Module, local: ct.Solver, rounds: int, per_round: int, seed: int
) -> Iterator[tuple[Tensor, float]]:
    """After each round: the model, float32 ``[d]``, and its accuracy on all test samples."""
    model = flatten(net)
    with_samples = np.flatnonzero(data.sizes("train") > 0)
    tested = np.flatnonzero(data.sizes("test") > 0)
    with make_clients("serial", LocalRunner(data, net, local)) as clients:
        for number in range(rounds):
            # Every random draw is named by the seed, the round and what it is for.
            key = ct.Key(seed).at(number)

            # Step 1: a cohort is sampled.
            cohort = key.of("sample").generator().choice(with_samples, per_round, replace=False)
            cohort.sort()

            # Step 2: each of its clients is sent the model, row 0 of those that are sent, and trains.
            row = np.zeros(len(cohort), np.int64)
            reply = clients.run(ct.Train(plain), cohort, model[None], row, key=key.of("train"))

            # Step 3: w <- w + sum_i n_i / n delta_i, in float64 and in the order of the clients.
            size = reply.fields["size"]
            update = torch.zeros(len(model), dtype=torch.float64)
            for delta, share in zip(reply.fields["delta"], size / size.sum(), strict=True):
                update.add_(torch.from_numpy(delta), alpha=float(share))
            model = (model.to(torch.float64) + update).to(torch.float32)

            # Step 4: all clients score the new model. To `measure` counts as no traffic.
            row = np.zeros(len(tested), np.int64)
            scored = clients.measure(
                Evaluate("test", loss=False), tested, model[None], row, key=key.of("evaluate")
            )
            accuracy = scored.fields["correct"].sum() / scored.fields["size"].sum()
            yield model, float(accuracy)


if __name__ == "__main__":
    data = ct.load("digits", partition={"kind": "dirichlet", "clients": 40, "beta": 0.5}, seed=0)
    net = build_model("mclr", data.shape, data.classes, ct.Key(0).of("model"))
    solver = ct.Solver(epochs=2, lr=0.05)
    for number, (_, accuracy) in enumerate(fedavg(data, net, solver, 10, 10, seed=0), 1):
        print(f"round {number}: accuracy {accuracy:.1%}")
