"""Seconds per round: Coterie's pool engine against a bare PyTorch loop, interleaved in one run.

Both train the same clients from the same model on the same batches and average the results: FedAvg
with 20 clients, by SGD with E = 10 and B = 10, or by Adam with E = 4, B = 128 and 500 samples a
client (``adam``, an MLP 784-200-10), or by AdamW with E = 1 and B = 32 (``resnet8`` on CIFAR-10,
``transformer`` on 100 texts of 25 tokens a client), or by SGD with E = 1 and B = 10 (``bigru`` and
``bilstm`` on 100 texts of 25 word vectors of 300 a client). The bare loop is what one writes by hand:
an ``nn.Module``, autograd, an optimiser object (Adam with ``foreach=True``), one process. It runs with one and with
two threads each round, and its better median counts. Evaluation is in neither; the share of a round
that is not local SGD is measured apart, with FedGroup and an evaluation in every round. Memory is the
most that this process and the workers of the pool had of their own at the end of a round, the loop's
tensors and the data included; what workers share with it is counted once.

    python -m benchmarks.local_sgd [--rounds 12] [--models mclr mlp lenet5 adam] [--workers 2]
    [--json FILE] [--keep] [--no-shares]

``--keep`` writes the figures with machine and commit into `benchmarks/history`, as `make bench` does.

MNIST and CIFAR-10 come from COTERIE_DATA where it is set; without it, noise of the same shape and
sizes, which takes as long.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import statistics
import time
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import coterie as ct
from benchmarks.history import ROOT, keep, machine, record
from benchmarks.memory import processor
from coterie.clients.cohort import Sampler
from coterie.core.vectors import flatten
from coterie.engines import make_clients
from coterie.local.training.batches import batches
from coterie.methods.algorithm import as_algorithm
from coterie.models import build_model
from coterie.runs.loop import simulate
from coterie.runs.schedule import Schedule

ASKED = {
    "mclr": 18.0,
    "mlp": 9.0,
    "lenet5": 3.6,
    "adam": 4.0,
    "resnet8": 1.8,
    "transformer": 1.8,
    "bigru": 1.8,
    "bilstm": 1.8,
}
ADAMW_MODELS = ("resnet8", "transformer")
RECURRENT = ("bigru", "bilstm")
VOCABULARY = 2000
SHARES = {"mclr": 0.25, "mlp": 0.15}
SGD = ct.Solver(epochs=10, batch_size=10, lr=0.03)
ONE_EPOCH = ct.Solver(epochs=1, batch_size=10, lr=0.03)
ADAMW = ct.Solver(epochs=1, batch_size=32, lr=0.001, optimizer="adamw")
ADAM = ct.Solver(epochs=4, batch_size=128, lr=0.001, optimizer="adam")


def solver_of(model: str) -> ct.Solver:
    """How clients train."""
    if model in ADAMW_MODELS:
        return ADAMW
    if model in RECURRENT:
        return ONE_EPOCH
    return ADAM if model == "adam" else SGD


def network(model: str, data: ct.Population) -> nn.Module:
    """The network of a case, with its first weights."""
    key = ct.Key(0).of("model")
    if model == "adam":
        return build_model("mlp", data.shape, data.classes, key, hidden=200)
    if model == "transformer":
        return build_model(model, data.shape, data.classes, key, vocabulary=VOCABULARY)
    return build_model(model, data.shape, data.classes, key)


def bare_optimiser(solver: ct.Solver, net: nn.Module) -> torch.optim.Optimizer:
    """What one takes by hand."""
    if solver.optimizer == "adam":
        return torch.optim.Adam(net.parameters(), lr=solver.lr, foreach=True)
    if solver.optimizer == "adamw":
        return torch.optim.AdamW(net.parameters(), lr=solver.lr, foreach=True)
    return torch.optim.SGD(net.parameters(), lr=solver.lr)


def population(model: str) -> ct.Population:
    """MNIST in FedProx's partition for the dense models, CIFAR-10 over 500 clients for LeNet-5 and
    ResNet-8, random tokens for the transformer."""
    if model == "transformer":
        return texts()
    if model in RECURRENT:
        return word_vectors()
    root = os.environ.get("COTERIE_DATA")
    source = "mnist"
    partition = {"kind": "power_law", "clients": 1000}
    images = model in ("lenet5", "resnet8")
    if images:
        source = "cifar10"
        partition = {"kind": "iid", "clients": 500}
    if model == "adam":
        # MNIST's 60,000 training samples: 500 a client.
        partition = {"kind": "iid", "clients": 120}
    if root and (Path(root) / source).exists():
        return ct.load(source, partition=partition)
    rng = np.random.default_rng(0)
    shape = (3, 32, 32) if images else (1, 28, 28)
    sizes = np.minimum(rng.lognormal(3.2, 1.2, 1000).astype(int) + 9, 2500)
    if images:
        sizes = np.full(500, 108)
    if model == "adam":
        sizes = np.full(120, 500)
    x = torch.from_numpy(rng.standard_normal((int(sizes.sum()), *shape), np.float32))
    parts = np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])
    y = torch.from_numpy(rng.integers(10, size=len(x)))
    return ct.Population(x, y, tuple(parts), tuple(p[:1] for p in parts), 10)


def texts() -> ct.Population:
    """Random tokens: what they mean changes no time."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.integers(VOCABULARY, size=(100 * 100, 25)))
    parts = np.split(np.arange(len(x)), 100)
    y = torch.from_numpy(rng.integers(2, size=len(x)))
    return ct.Population(x, y, tuple(parts), tuple(p[:1] for p in parts), 2)


def word_vectors() -> ct.Population:
    """Texts of random word vectors, 100 a client."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((40 * 100, 25, 300), np.float32))
    parts = np.split(np.arange(len(x)), 40)
    y = torch.from_numpy(rng.integers(2, size=len(x)))
    return ct.Population(x, y, tuple(parts), tuple(p[:1] for p in parts), 2)


def bare_round(
    net: nn.Module,
    data: ct.Population,
    cohort: np.ndarray,
    key: ct.Key,
    threads: int,
    solver: ct.Solver,
) -> Tensor:
    """One round of FedAvg as written by hand."""
    torch.set_num_threads(threads)
    start = copy.deepcopy(net.state_dict())
    total = torch.zeros(0)
    size = 0
    loss_of = nn.CrossEntropyLoss()
    for id in cohort.tolist():
        net.load_state_dict(start)
        optimiser = bare_optimiser(solver, net)
        held = torch.from_numpy(data.train[id])
        x = data.x[held]
        y = data.y[held]
        for part in batches(len(y), solver, key.client(id).of("shuffle").generator()):
            order = torch.from_numpy(part.order)
            for at in range(0, len(y), solver.batch_size):
                rows = order[at : at + solver.batch_size]
                optimiser.zero_grad()
                loss_of(net(x[rows]), y[rows]).backward()
                optimiser.step()
        mine = flatten(net) * len(y)
        total = mine if size == 0 else total + mine
        size = size + len(y)
    net.load_state_dict(start)
    return total / size


def memory() -> float:
    """MiB that this process and its workers have of their own, shared pages split between them."""
    total = 0
    for process in [os.getpid(), *(child.pid for child in active_children())]:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def compare(model: str, rounds: int, workers: int) -> dict[str, float]:
    """Median seconds per round of both, their ratio, and processor seconds of Coterie's rounds."""
    data = population(model)
    key = ct.Key(0)
    net = network(model, data)
    solver = solver_of(model)
    sampler = Sampler("uniform", np.arange(data.clients), 20, key)
    times: dict[str, list[float]] = {"bare1": [], "bare2": [], "coterie": []}
    busy: list[float] = []
    cores = len(os.sched_getaffinity(0))
    most = 0.0
    with make_clients(data, net, solver, "pool", workers=workers) as clients:
        run = simulate(
            as_algorithm(ct.fedavg()),
            clients,
            data,
            flatten(net),
            Schedule(sampler, ct.Training(rounds + 2, evaluate_every=10**9), key),
        )
        w = flatten(net)
        gap = 0.0
        for t in range(rounds + 1):
            nn.utils.vector_to_parameters(w, net.parameters())
            cohort = sampler(t)
            at = key.of("train").at(t)
            expected = w
            for name, threads in (("bare1", 1), ("bare2", cores)):
                begun = time.perf_counter()
                expected = bare_round(net, data, cohort, at, threads, solver)
                times[name].append(time.perf_counter() - begun)
            torch.set_num_threads(cores)
            before = processor()
            begun = time.perf_counter()
            w = next(run).groups.models[0]
            times["coterie"].append(time.perf_counter() - begun)
            busy.append(processor() - before)
            gap = max(gap, float((w - expected).abs().max()))
            most = max(most, memory())
    found = {name: statistics.median(values[1:]) for name, values in times.items()}
    bare = min(found["bare1"], found["bare2"])
    each = [min(a, b) / c for a, b, c in zip(*(times[n][1:] for n in times), strict=True)]
    return {
        **found,
        "processor": statistics.fmean(busy[1:]),
        "ratio": bare / found["coterie"],
        "ratio_median": statistics.median(each),
        "largest_gap": gap,
        "memory_mib": most,
    }


def share(model: str, rounds: int, workers: int) -> float:
    """Share of a FedGroup round, evaluation included, that is not local SGD (steady state:
    everybody has a group)."""
    data = population(model)
    method = ct.fedgroup(assign_time="upfront", alpha=20)
    result = ct.run(
        method,
        data=data,
        model=model,
        local=solver_of(model),
        rounds=rounds + 5,
        train={"sampler": "uniform"},
        engine={"name": "pool", "workers": workers},
    )
    seconds = [row["seconds"] for row in result.rows[5:]]
    return 1 - sum(s["training"] for s in seconds) / sum(s["total"] for s in seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--models", nargs="+", default=list(ASKED), choices=list(ASKED))
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", action="store_true", help="a file in benchmarks/history, too")
    parser.add_argument("--no-shares", action="store_true", help="rounds of FedAvg alone")
    args = parser.parse_args()
    host = machine()
    print(
        f"torch {torch.__version__}, {platform.processor() or platform.machine()}, {args.workers} workers"
    )
    print(
        "model    bare 1 thread  bare all  coterie  ratio  asked  largest gap   memory  not local SGD"
    )
    found = {}
    for model in args.models:
        row = compare(model, args.rounds, args.workers)
        if model in SHARES and not args.no_shares:
            row["not_local_sgd"] = share(model, 40, args.workers)
        found[model] = row
        extra = "-"
        if "not_local_sgd" in row:
            extra = f"{row['not_local_sgd']:.0%} (asked {SHARES[model]:.0%})"
        print(
            f"{model:8} {row['bare1'] * 1e3:10.1f} ms {row['bare2'] * 1e3:6.1f} ms {row['coterie'] * 1e3:5.1f} ms "
            f"{row['ratio']:5.1f}x {ASKED[model]:5.1f}x {row['largest_gap']:11.1e} {row['memory_mib']:4.0f} MiB  {extra}",
            flush=True,
        )
    made = record(found, host)
    if args.json:
        args.json.write_text(json.dumps(made, indent=1) + "\n")
    if args.keep:
        print(keep(made).relative_to(ROOT))


if __name__ == "__main__":
    main()
