"""How busy the pool's workers are while chains of clients train: FedGSP's pattern, waves with a
barrier.

FEMNIST writers (repeated where there are too few), a small network, batch 5, one epoch. Prints the
share of the wall time of all workers that they spent computing, which other programs on the machine
lower, and beside it the share that an undisturbed machine would reach: for each wave, the work over
the workers times the longest of them when clients are dealt longest first, from each client's own
CPU seconds.

    python benchmarks/chains.py [--chains 16] [--length 30] [--model cnn_mnist] [--workers 2]
"""

from __future__ import annotations

import argparse
import heapq
import os
import time

import numpy as np
import torch

import coterie as ct
from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.vectors import flatten
from coterie.core.work import Train
from coterie.engines import make_clients
from coterie.models import build_model
from coterie.rules.training import train

SOLVER = ct.Solver(epochs=1, batch_size=5, lr=0.01)


def population(clients: int) -> ct.Population:
    """FEMNIST by writer; writers come again as further clients where more are asked for."""
    data = ct.load("femnist", partition={"kind": "natural", "column": "writer_id"})
    able = [i for i in np.random.default_rng(0).permutation(data.clients) if len(data.train[i])]
    drawn = [able[i % len(able)] for i in range(clients)]
    return ct.Population(
        data.x,
        data.y,
        tuple(data.train[i] for i in drawn),
        tuple(data.test[i] for i in drawn),
        data.classes,
    )


def used(pids: list[int]) -> float:
    """CPU seconds of some processes."""
    tick = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for pid in pids:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            total += sum(map(int, file.read().rpartition(")")[2].split()[11:13])) / tick
    return total


def makespan(costs: np.ndarray, workers: int) -> float:
    """The longest worker when tasks are taken longest first."""
    ends = [0.0] * workers
    for cost in sorted(costs, reverse=True):
        heapq.heapreplace(ends, ends[0] + cost)
    return max(ends)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chains", type=int, default=16)
    parser.add_argument("--length", type=int, default=30)
    parser.add_argument("--model", default="cnn_mnist")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    data = population(args.chains * args.length)
    net = build_model(args.model, data.shape, data.classes, Key(0).of("model"))
    groups = Groups(flatten(net)[None], np.zeros(data.clients, np.int64))
    ids = np.random.default_rng(1).permutation(data.clients)
    zeros = np.zeros(len(ids), np.int64)
    plan = Plan(ids, zeros, np.arange(len(ids)) % args.chains)
    with make_clients(data, net, SOLVER, "pool", workers=args.workers) as clients:
        first = np.arange(args.chains)  # makes the pool, with memory for a wave
        clients.run(
            Train(), ids[first], groups.models.repeat(args.chains, 1), first, key=Key(0).at(0)
        )
        pids = [process.pid for process in clients.engine.engine.processes]
        before = used(pids)
        own = time.process_time()
        begun = time.perf_counter()
        train(Train(), groups, plan, Round(1, Key(0).at(1), plan.ids, clients))
        wall = time.perf_counter() - begun
        own = time.process_time() - own
        busy = used(pids) - before
    each = data.sizes("train")[ids].astype(float)
    waves = [each[at : at + args.chains] for at in range(0, len(ids), args.chains)]
    packed = each.sum() / args.workers / sum(makespan(wave, args.workers) for wave in waves)
    quiet = busy / args.workers / packed + own
    print(
        f"torch {torch.__version__}, {args.workers} workers, {args.chains} chains of {args.length}, {args.model}"
    )
    print(f"wall {wall:.1f} s, workers {busy:.1f} s of CPU, this process {own:.2f} s")
    own_too = busy / args.workers / quiet
    print(f"workers busy {busy / args.workers / wall:.1%} as measured")
    print(
        f"undisturbed: {packed:.1%} by the packing of the waves, {own_too:.1%} with this process's own seconds"
    )


if __name__ == "__main__":
    main()
