"""Memory of a round of FedAvg with a large model: its updates are never held together.

    python -m benchmarks.large_model [--values 100000000] [--clients 8] [--only full adapters]

``full`` trains all of a network of two dense layers with so many values; ``adapters`` trains two low-rank matrices
beside its frozen layers. Engine `serial`, one step a client, no evaluation. Each runs in a process of
its own. Peak memory is given in GB and as a multiple of the model's own bytes: the updates of a round
held together would be another multiple of as many as there are clients.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time

import numpy as np
import torch
from torch import Tensor, nn

import coterie as ct
from coterie.core.vectors import Layout

INPUTS = 64
RANK = 8


class Dense(nn.Module):
    """Inputs to a wide layer, that layer, and two classes; all but the middle is small."""

    def __init__(self, values: int, adapters: bool) -> None:
        super().__init__()
        width = math.isqrt(values)
        self.first = nn.Linear(INPUTS, width)
        self.middle = nn.Linear(width, width)
        self.last = nn.Linear(width, 2)
        self.down: nn.Module | None = None
        self.up: nn.Module | None = None
        if adapters:
            self.requires_grad_(False)
            self.down = nn.Linear(width, RANK, bias=False)
            self.up = nn.Linear(RANK, width, bias=False)
            nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        out = self.middle(hidden)
        if self.down is not None and self.up is not None:
            out = out + self.up(self.down(hidden))
        found: Tensor = self.last(out.relu())
        return found


def one(values: int, clients: int, adapters: bool) -> dict[str, float]:
    """Seconds and peak memory of two rounds."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((4 * clients, INPUTS), np.float32))
    y = torch.from_numpy(rng.integers(2, size=len(x)))
    held = np.split(np.arange(len(x)), clients)
    data = ct.Population(x, y, tuple(held), tuple(part[:1] for part in held), 2)
    network = Dense(values, adapters)
    all_values = sum(parameter.numel() for parameter in network.parameters())
    begun = time.perf_counter()
    ct.run(
        ct.fedavg(),
        data=data,
        model=network,
        local=ct.Solver(epochs=1, batch_size=4, lr=0.01),
        rounds=2,
        clients_per_round=clients,
        engine="serial",
        train={"evaluate_every": 10**6, "evaluate_clients": 1},
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "moved_values": Layout.of(network).d,
        "model_GB": 4 * all_values / 2**30,
        "peak_GB": peak / 2**30,
        "models": peak / (4 * all_values),
        "seconds": time.perf_counter() - begun,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--values", type=int, default=10**8)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument(
        "--only", nargs="+", choices=["full", "adapters"], default=["full", "adapters"]
    )
    parser.add_argument("--one", choices=["full", "adapters"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.values, args.clients, args.one == "adapters")))
        return
    for name in args.only:
        call = [sys.executable, "-m", "benchmarks.large_model", "--one", name]
        call += ["--values", str(args.values), "--clients", str(args.clients)]
        output = subprocess.run(call, check=True, capture_output=True, text=True).stdout
        found = json.loads(output.splitlines()[-1])
        print(
            f"{name:8} {found['moved_values']:>11,} values move, model {found['model_GB']:.2f} GB, "
            f"peak {found['peak_GB']:.2f} GB = {found['models']:.1f} models, "
            f"{found['seconds']:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
