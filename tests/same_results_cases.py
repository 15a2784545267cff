"""The cases of ``same_results.py``, and the process that runs them in one of the two trees.

Modules move and internal names change between the two trees. So this file uses only what both of
them offer to users: the methods, ``coterie.run`` and ``coterie.load``. It makes its data by itself.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import coterie as ct
from tests.contract.cases import contract_cases

GROUPS = 2
SEED = 3
SERIAL = {"engine": "serial", "seed": SEED}

# The cases of the contract suite; test_same_results.py checks it.
CONTRACT: dict[str, Callable[[], Any]] = {
    **{name: partial(make, GROUPS) for name, make in contract_cases().items()},
    "ifca-yogi-prox": lambda: ct.ifca(groups=GROUPS),  # and what REPLACED says
}
REPLACED = {"ifca-yogi-prox": {"server": "fedyogi", "objective": "proximal"}}

MNIST: dict[str, Callable[[], Any]] = {
    "mnist-fedavg": lambda: ct.fedavg(),
    "mnist-fedgroup-edc": lambda: ct.fedgroup(groups=3, alpha=20, measure="edc"),
    "mnist-fedgroup-madc": lambda: ct.fedgroup(groups=3, alpha=20, measure="madc"),
    "mnist-flexcfl-swap_all": lambda: ct.flexcfl(groups=3, alpha=20),
    "mnist-ifca": lambda: ct.ifca(groups=3),
    "mnist-fesem": lambda: ct.fesem(groups=3),
    "mnist-fedclust": lambda: ct.fedclust(groups=3),
    # With the defaults nothing would split within 20 rounds.
    "mnist-cfl": lambda: ct.cfl(eps1=9.0, eps2=0.0, after=10),
    "mnist-rfedavg": lambda: ct.rfedavg(),
    "mnist-fedgsp": lambda: ct.fedgsp(),
}


def planted_population() -> ct.Population:
    """Twelve clients of two planted groups: those of group ``g`` see labels shifted by ``g``."""
    clients = 12
    classes = 4
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(classes, 6)) * 2
    planted = np.arange(clients) % GROUPS
    inputs, labels, train, test = [], [], [], []
    start = 0
    for client in range(clients):
        samples = 24 + int(rng.integers(0, 24))
        truth = rng.integers(classes, size=samples)
        inputs.append(centres[truth] + rng.normal(size=(samples, 6)))
        labels.append((truth + planted[client]) % classes)
        index = start + rng.permutation(samples)
        train.append(index[: samples * 3 // 4])
        test.append(index[samples * 3 // 4 :])
        start += samples
    x = torch.tensor(np.concatenate(inputs), dtype=torch.float32)
    y = torch.tensor(np.concatenate(labels))
    return ct.Population(x, y, tuple(train), tuple(test), classes, planted=planted)


def small_network() -> nn.Module:
    """A network of two layers with the same first weights in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))


@cache
def mnist_population() -> ct.Population:
    """MNIST over 1,000 clients with two digits each, as in ``examples/mnist-mclr.toml``."""
    partition = {"kind": "power_law", "clients": 1000, "classes_per_client": 2}
    return ct.load("mnist", partition=partition, pixels="standardised")


def swaps(**options: Any) -> Any:
    """The shift ``swap_all``, imported late because its module waits for torch."""
    from coterie.data.shifts import swap_all

    return swap_all(**options)


def run_contract(name: str, **options: Any) -> ct.Result:
    """A contract case on the suite's population and network."""
    return ct.run(
        CONTRACT[name](),
        data=planted_population(),
        model=small_network(),
        local=ct.Solver(epochs=2, batch_size=5, lr=0.1),
        clients_per_round=4,
        **{**SERIAL, **REPLACED.get(name, {}), **options},
    )


def run_mnist(name: str) -> ct.Result:
    """Twenty rounds of multinomial logistic regression on MNIST."""
    epochs = 1 if name == "mnist-fedgsp" else 10  # FedGSP trains most clients, one epoch each
    shift = swaps() if name.endswith("swap_all") else None
    return ct.run(
        MNIST[name](),
        data=mnist_population(),
        model="mclr",
        local=ct.Solver(epochs=epochs),
        rounds=20,
        clients_per_round=20,
        shift=shift,
        **SERIAL,
    )


def run_case(name: str) -> ct.Result:
    """One case by its name; ``NAME@swap_all`` is contract case ``NAME`` while clients swap data."""
    if name in MNIST:
        return run_mnist(name)
    contract, _, shifted = name.partition("@")
    if shifted:
        return run_contract(contract, rounds=6, shift=swaps(p=0.5, pool="all"))
    return run_contract(contract, rounds=4)


def case_names(quick: bool, only: list[str]) -> list[str]:
    """The cases to run: all, those without MNIST, or those that match a name or pattern."""
    names = [*CONTRACT, *(f"{name}@swap_all" for name in CONTRACT)]
    if not quick:
        names += MNIST
    unknown = [one for one in only if not any(fnmatch(name, one) for name in names)]
    if unknown:
        raise SystemExit(f"--only: no such case, got {', '.join(unknown)}; expected {names}")
    return [name for name in names if not only or any(fnmatch(name, one) for one in only)]


def plain_value(value: Any) -> Any:
    """A NumPy or torch value of a row as JSON can hold it."""
    return value.tolist()


def store(path: Path, result: ct.Result) -> None:
    """Keep what is compared; written beside its place and moved, so that no half file is kept."""
    rows = json.dumps(list(result.rows), default=plain_value)
    beside = path.with_suffix(".partial.npz")
    models = result.state.models.numpy()
    np.savez_compressed(beside, models=models, members=result.groups, rows=np.array(rows))
    beside.replace(path)


def run_and_store(name: str, folder: Path) -> None:
    """Run a case unless its result is kept; one that fails leaves its error, and others go on."""
    path = folder / f"{name}.npz"
    failure = folder / f"{name}.failed"
    if path.exists():
        return
    failure.unlink(missing_ok=True)
    begun = time.perf_counter()
    try:
        store(path, run_case(name))
    except Exception as error:  # noqa: BLE001
        failure.write_text(f"{type(error).__name__}: {error}")
    print(f"{name}: {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)


def main() -> None:
    """Run the cases in the tree whose ``src`` is on the path, and print the names of the cases."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    imported = Path(ct.__file__).resolve()
    # An installed copy that came first on the path would be compared with itself.
    if not imported.is_relative_to(options.src.resolve()):
        raise SystemExit(f"coterie was imported from {imported}, not from {options.src}")
    names = case_names(options.quick, options.only)
    for name in names:
        run_and_store(name, options.folder)
    print(json.dumps(names))


if __name__ == "__main__":
    main()
