"""Seconds of a round on a GPU, beside `pool` on all cores of the same machine.

A hundred clients of 100 samples train for five epochs in batches of ten (FedAvg, SGD, learning rate
0.01; a ResNet-18 for one epoch on 20 samples), on noise of the shape of the real samples, which takes as
long. Each network is trained by `pool`, and by `vmap` in float32, with recorded CUDA graphs where a
client takes enough steps, in TF32 and in bfloat16. A network with batch normalisation is trained client
by client, by so many streams as are named. The first round of each is left out: in it processes start,
and code is compiled.

The rate is the operations of all steps over the seconds of a round, and the bound is the rate of
products of two 8,192 x 8,192 matrices in the same precision (on a CPU 1,024 x 1,024). The gap is the
length of an update's difference from that of `pool` over the update's own, of the client in the middle and
of the farthest one. The farthest is large where rounding decides a ReLU or a maximum.

Last comes pfl-research's recipe, from the call to its result: 1,000 clients of 50 images, 50 a round.

    python -m benchmarks.gpu [--models mclr mlp lenet5 cnn_mnist resnet18 batchnorm transformer]
    [--device auto] [--clients 100] [--rounds 3] [--streams 4 16] [--recipe-rounds 100]
    [--minutes 8] [--json build/gpu.json]

Results are written after each engine, and no network is begun after so many minutes. On a CPU all of
it runs, too, without graphs.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import coterie as ct
from benchmarks.history import machine
from benchmarks.limits import flop
from benchmarks.whole.networks import pfl_cnn, resnet18
from coterie.clients.clients import Clients
from coterie.core.vectors import flatten
from coterie.core.work import Train
from coterie.engines import PoolEngine
from coterie.engines.simulation import SimulationEngine
from coterie.engines.vmap import VmapEngine
from coterie.errors import first_line
from coterie.local import LocalRunner
from coterie.local.device import Device, find_device
from coterie.models import build_model, spec

BATCH = 10
ENOUGH_STEPS = 16  # of a client, before steps are recorded
VOCABULARY = 2000
IMAGE = (3, 32, 32)


@dataclass(frozen=True)
class Case:
    """A network and its clients.

    Args:
        build: makes the network.
        shape: of a sample; whole numbers where it has one dimension of words.
        classes: how many.
        samples: of a client.
        epochs: of its training.
        alone: whether clients train by themselves, by streams.
    """

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int = 10
    samples: int = 100
    epochs: int = 5
    alone: bool = False

    @property
    def solver(self) -> ct.Solver:
        """How clients train."""
        return ct.Solver(epochs=self.epochs, batch_size=BATCH, lr=0.01)

    def population(self, clients: int) -> ct.Population:
        """Clients with samples of noise."""
        generator = torch.Generator().manual_seed(0)
        size = clients * self.samples
        if len(self.shape) == 1:
            x = torch.randint(VOCABULARY, (size, *self.shape), generator=generator)
        else:
            x = torch.randn(size, *self.shape, generator=generator)
        y = torch.randint(self.classes, (size,), generator=generator)
        rows = tuple(np.split(np.arange(size), clients))
        return ct.Population(x, y, rows, (np.empty(0, np.int64),) * clients, self.classes)


def named(name: str, shape: tuple[int, ...]) -> Callable[[], nn.Module]:
    """Makes one of Coterie's networks."""
    return lambda: build_model(name, shape, 10, ct.Key(0).of("model"))


def with_adapters() -> nn.Module:
    """A transformer whose attention has low-rank adapters; these and its head are trained."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    network = spec("transformer", vocabulary=VOCABULARY).build((25,), 2)
    adapters = LoraConfig(r=4, target_modules=["query", "value"], modules_to_save=["head"])
    return get_peft_model(network, adapters)  # type: ignore[arg-type,return-value]


CASES = {
    "mclr": Case(named("mclr", (1, 28, 28)), (1, 28, 28)),
    "mlp": Case(named("mlp", (1, 28, 28)), (1, 28, 28)),
    "lenet5": Case(named("lenet5", IMAGE), IMAGE),
    "cnn_mnist": Case(named("cnn_mnist", (1, 28, 28)), (1, 28, 28)),
    "resnet18": Case(named("resnet18", IMAGE), IMAGE, samples=20, epochs=1),
    "batchnorm": Case(lambda: resnet18(IMAGE, 10), IMAGE, samples=20, epochs=1, alone=True),
    "transformer": Case(with_adapters, (25,), classes=2),
}


def bound(device: str, precision: str, size: int = 8192) -> float:
    """Operations a second in products of two large matrices."""
    kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
    if device == "cpu":
        size = 1024
    a = torch.randn(size, size, device=device, dtype=kind)
    b = torch.randn(size, size, device=device, dtype=kind)
    found = []
    with Device(device, precision).arithmetic():  # type: ignore[arg-type]
        for _ in range(5):
            wait(device)
            begun = time.perf_counter()
            for _ in range(4):
                a @ b
            wait(device)
            found.append(time.perf_counter() - begun)
    return 4 * 2 * size**3 / min(found)


def wait(device: str) -> None:
    """Until a GPU has done what it was sent."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def engines(
    case: Case, runner: LocalRunner, device: str, streams: list[int]
) -> Iterator[tuple[str, str, Callable[[], SimulationEngine]]]:
    """The name, the precision and the maker of each engine that trains the case."""

    def vmap(**options: Any) -> Callable[[], SimulationEngine]:
        return lambda: VmapEngine(runner, device=device, **options)

    yield "pool", "float32", lambda: PoolEngine(runner)
    if case.alone:
        for count in streams:
            yield f"vmap, {count} streams", "float32", vmap(streams=count)
        return
    yield "vmap", "float32", vmap()
    if device != "cpu":
        if case.solver.count(case.samples) >= ENOUGH_STEPS:
            yield "vmap, graphs", "float32", vmap(graphs=True)
        yield "vmap, tf32", "tf32", vmap(precision="tf32")
    yield "vmap, bfloat16", "bfloat16", vmap(precision="bfloat16")


def compare(
    case: Case,
    clients: int,
    rounds: int,
    device: str,
    streams: list[int],
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Seconds of a round of each engine, its share of the bound, and its gap from `pool`. ``keep`` is
    given what was found so far."""
    data = case.population(clients)
    network = case.build()
    runner = LocalRunner(data, network, case.solver)
    start = flatten(network)[None]
    steps = int(runner.steps(Train(), np.arange(clients)).sum())
    operations = steps * flop(case.build(), data.x[:BATCH], data.y[:BATCH])
    found: dict[str, Any] = {}
    expected = None
    for name, precision, make in engines(case, runner, device, streams):
        # What the engine before left would take memory from this one.
        gc.collect()
        torch.cuda.empty_cache()
        try:
            seconds, delta = timed(make, start, clients, rounds)
        except Exception as error:  # noqa: BLE001 - the next engine may well run
            found[name] = {"failed": first_line(error)}
            print(f"  {name:18} failed: {first_line(error)}", flush=True)
            keep(found)
            continue
        median = statistics.median(seconds[1:])
        rate = operations / median
        row: dict[str, Any] = {
            "first": seconds[0],
            "seconds": median,
            "GFLOP/s": rate / 1e9,
            "of_the_bound": rate / bound("cpu" if name == "pool" else device, precision),
        }
        if name == "pool":
            expected = delta
        if expected is not None:
            gaps = np.linalg.norm(delta - expected, axis=1) / np.linalg.norm(expected, axis=1)
            row["gap"] = float(np.median(gaps))
            row["largest_gap"] = float(gaps.max())
            row["times_pool"] = found.get("pool", row)["seconds"] / median
        found[name] = row
        keep(found)
        print(
            f"  {name:18} first {row['first']:7.2f} s, then {1e3 * median:9.1f} ms, "
            f"{row.get('times_pool', np.nan):6.1f} x pool, {row['GFLOP/s']:8.1f} GFLOP/s, "
            f"{row['of_the_bound']:6.1%} of the bound, gap {row.get('gap', np.nan):.1e}, "
            f"largest {row.get('largest_gap', np.nan):.1e}",
            flush=True,
        )
    return found


def timed(
    make: Callable[[], SimulationEngine], start: torch.Tensor, clients: int, rounds: int
) -> tuple[list[float], NDArray[np.float32]]:
    """Seconds of each round of an engine, the first one included, and the updates of the last."""
    ids = np.arange(clients)
    key = ct.Key(0)
    seconds = []
    with Clients(make()) as members:
        for number in range(rounds + 1):
            begun = time.perf_counter()
            reply = members.run(Train(), ids, start, np.zeros_like(ids), key=key.at(number))
            seconds.append(time.perf_counter() - begun)
    return seconds, reply.fields["delta"]


def recipe(device: str, rounds: int) -> dict[str, float]:
    """pfl-research's recipe from the call to its result, on noise of CIFAR-10's shape."""
    case = Case(lambda: pfl_cnn(IMAGE, 10), IMAGE, samples=50)
    data = case.population(1000)
    # A test at the end, on as many samples as CIFAR-10 has for it.
    data = data.with_parts(data.train, tuple(rows[:10] for rows in data.train))
    found = {}
    for engine in ("pool", "vmap"):
        begun = time.perf_counter()
        ct.run(
            ct.fedavg(),
            data=data,
            model=case.build(),
            local=ct.Solver(epochs=1, batch_size=10, lr=0.1),
            rounds=rounds,
            clients_per_round=50,
            train={"evaluate_every": rounds},
            engine={"name": engine, "device": device if engine == "vmap" else "auto"},
        )
        found[engine] = time.perf_counter() - begun
        print(f"  {engine:18} {rounds} rounds in {found[engine]:.1f} s", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--recipe-rounds", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--json", type=Path, default=Path("build/gpu.json"))
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    device = find_device(args.device)
    card = "no GPU" if device == "cpu" else torch.cuda.get_device_name(device)
    found: dict[str, Any] = {"card": card, "machine": machine()}
    print(f"{card}; {found['machine']}", flush=True)

    def keep(name: str, figures: Any) -> None:
        found[name] = figures
        # After each, since the time on a lent machine may end.
        if args.json:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(found, indent=1) + "\n")

    for name in args.models:
        if time.monotonic() > end:
            print(f"{name}: no time is left", flush=True)
            continue
        print(name, flush=True)
        case = CASES[name]
        compare(case, args.clients, args.rounds, device, args.streams, partial(keep, name))
    if args.recipe_rounds and time.monotonic() < end:
        print("pfl-research's recipe", flush=True)
        keep("recipe", recipe(device, args.recipe_rounds))


if __name__ == "__main__":
    main()
