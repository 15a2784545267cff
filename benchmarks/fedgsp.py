"""FedGSP's Table I on this machine: one local epoch, B = 5, lr 0.01, a share kappa = 0.3 of groups
or clients a round.

    python benchmarks/fedgsp.py femnist --rounds 60 --methods fedavg,fedgsp
    python benchmarks/fedgsp.py one_class --rounds 40

``femnist``: 300 writers; ``one_class``: MNIST, 300 clients with one class each. The network is
``cnn_small``. Prints per method the accuracy (best, mean of the last ten, last), the loss, and the
first round that reaches FedAvg's last accuracy.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import coterie as ct
from coterie.measures.costs import rounds_to_target

CLIENTS = 300
KAPPA = 0.3
LOCAL = ct.Solver(epochs=1, batch_size=5, lr=0.01)
METHODS = {
    "fedavg": lambda: ct.fedavg(),
    "fedgsp": lambda: ct.fedgsp(kappa=KAPPA),
    "naive_gsp": lambda: ct.naive_gsp(groups=10, kappa=KAPPA),
    "naive_gsp_icg": lambda: ct.naive_gsp(groups=10, kappa=KAPPA, icg=True),
    "naive_gsp_52": lambda: ct.naive_gsp(groups=52, kappa=KAPPA),
    "naive_gsp_icg_52": lambda: ct.naive_gsp(groups=52, kappa=KAPPA, icg=True),
    "fedprox": lambda: ct.fedprox(mu=0.01),
    "fedadagrad": lambda: ct.fedadagrad(),
    "fedadam": lambda: ct.fedadam(),
    "fedyogi": lambda: ct.fedyogi(),
    "ida": lambda: ct.ida(),
    "fedmmd": lambda: ct.fedmmd(),
    "fedfusion": lambda: ct.fedfusion(),
}


def population(name: str, seed: int) -> ct.Population:
    if name == "femnist":
        return ct.load("femnist", partition={"kind": "natural", "column": "writer_id"}, seed=seed)
    table = {"kind": "classes", "clients": CLIENTS, "classes_per_client": 1}
    return ct.load("mnist", partition=table, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", choices=("femnist", "one_class"))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--target",
        type=float,
        help="accuracy to reach; default FedAvg's last, which then runs first",
    )
    parser.add_argument("--engine", default="pool", choices=("pool", "serial"))
    options = parser.parse_args()
    data = population(options.data, options.seed)
    target = options.target
    sizes = data.sizes("train")
    print(
        f"{options.data}: {data.clients} clients, {sizes.sum()} samples, median {np.median(sizes):.0f}",
        flush=True,
    )
    for name in options.methods.split(","):
        begun = time.time()
        result = ct.run(
            METHODS[name](),
            data=data,
            model="cnn_small",
            local=LOCAL,
            rounds=options.rounds,
            clients_per_round=round(KAPPA * CLIENTS),
            seed=options.seed,
            engine=options.engine,
            train={"sampler": "uniform"},
        )
        accuracy = np.array(result.accuracy)
        target = accuracy[-1] if target is None and name == "fedavg" else target
        reached = None if target is None else rounds_to_target(result.rows, target)
        course = [f"{a:.0%}" for a in accuracy[9::10]]
        goal = "no target" if target is None else f"{target:.1%} in round {reached}"
        print(
            f"{options.data} {name} seed {options.seed}: best {accuracy.max():.1%}, "
            f"last ten {accuracy[-10:].mean():.1%}, last {accuracy[-1]:.1%}, loss {result.rows[-1]['loss']:.3f}, "
            f"{goal}, every tenth {course}, {time.time() - begun:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
