"""Seconds per round of the engines: pool with two workers, Ray with two local nodes of one core,
vmap on the CPU.

All train the same clients from the same model in turn (FedAvg, K = 20, E = 10, B = 10), round by
round, so that what else the machine does hits them alike; medians and the best of the ratios.
Start-up is left out, and shown apart.

    python -m benchmarks.engines [--rounds 8] [--epochs 10] [--models mclr mlp] [--engines ray vmap]
    [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import coterie as ct
from benchmarks.local_sgd import SGD, population
from coterie.clients.clients import Clients
from coterie.clients.cohort import Sampler
from coterie.core.training import Epochs
from coterie.core.vectors import flatten
from coterie.core.work import Train
from coterie.engines import PoolEngine
from coterie.engines.vmap import VmapEngine
from coterie.local import LocalRunner
from coterie.models import build_model


@contextmanager
def two_nodes() -> Iterator[str]:
    """A local cluster: a head without cores, two nodes of one core; its address."""
    # Ray's workers are nicer than the pool's, which counts where others compute
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": 400 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(num_cpus=1, object_store_memory=400 * 2**20)
    ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()


def engine_of(name: str, runner: LocalRunner, address: str) -> Any:
    if name == "pool":
        return PoolEngine(runner, 2)
    if name == "vmap":
        return VmapEngine(runner, device="cpu")
    from coterie.engines.ray import Cluster, RayEngine

    return RayEngine(runner, Cluster(address, 2))


def compare(
    model: str, names: list[str], rounds: int, epochs: int, address: str
) -> dict[str, dict[str, float]]:
    """Seconds per round of each engine, and the throughput against pool's."""
    data = population(model)
    key = ct.Key(0)
    net = build_model(model, data.shape, data.classes, key.of("model"))
    sampler = Sampler("uniform", np.arange(data.clients), 20, key)
    start = flatten(net)[None]
    clients_of = {
        name: Clients(engine_of(name, LocalRunner(data, net, SGD), address))
        for name in ("pool", *names)
    }
    seconds: dict[str, list[float]] = {name: [] for name in clients_of}
    begun = {}
    gap = dict.fromkeys(clients_of, 0.0)
    for t in range(rounds + 1):
        cohort = sampler(t)
        first = None
        for name, clients in clients_of.items():
            torch.set_num_threads(2 if name == "vmap" else 1)
            at = time.perf_counter()
            reply = clients.run(
                Train(how=Epochs()), cohort, start, np.zeros_like(cohort), key=key.at(t)
            )
            seconds[name].append(time.perf_counter() - at)
            while t == 0 and name == "ray" and clients.engine.members.coming():
                clients.run(
                    Train(how=Epochs(1)), cohort[:4], start, np.zeros(4, int), key=key.at(t)
                )
            first = reply.fields["delta"] if first is None else first
            gap[name] = max(gap[name], float(np.abs(first - reply.fields["delta"]).max()))
    found = {}
    for name, clients in clients_of.items():
        begun[name] = seconds[name][0]
        ratios = [p / o for p, o in zip(seconds["pool"][1:], seconds[name][1:], strict=True)]
        found[name] = {
            "first_round": begun[name],
            "seconds": statistics.median(seconds[name][1:]),
            "least": min(seconds[name][1:]),
            "ratio": statistics.median(ratios),
            "ratio_of_least": min(seconds["pool"][1:]) / min(seconds[name][1:]),
            "gap": gap[name],
        }
        clients.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--models", nargs="+", default=["mclr", "mlp", "lenet5"])
    parser.add_argument("--engines", nargs="+", default=["ray", "vmap"], choices=["ray", "vmap"])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: dict[str, Any] = {}
    with two_nodes() if "ray" in args.engines else _nothing() as address:
        for model in args.models:
            found[model] = compare(model, args.engines, args.rounds, args.epochs, address)
            for name, row in found[model].items():
                print(
                    f"{model:8} {name:5} first {row['first_round']:6.2f} s, median {row['seconds'] * 1e3:7.1f} ms, "
                    f"least {row['least'] * 1e3:7.1f} ms, pool's time over it: median {row['ratio']:.2f}, "
                    f"of the least {row['ratio_of_least']:.2f}, largest gap {row['gap']:.1e}, "
                    f"load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


@contextmanager
def _nothing() -> Iterator[str]:
    yield ""


if __name__ == "__main__":
    main()
