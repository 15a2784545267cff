"""How far local SGD is from the arithmetic that it needs: each model's step beside the FLOP bound
of this machine.

The bound is the step's floating-point operations (counted by torch) over the rate of a large matrix
product on a core. "Products" of the closed form are the step's own matrix products at their sizes,
alone, over the time of the step; of networks that go through autograd, the share that products and
convolutions have of the time inside torch's operators: there what Python takes between the calls is
in neither column. Times are of the processor, best of several, on one thread, as in a worker of the
pool.

    python benchmarks/limits.py [--models mclr mlp lenet5 cnn_mnist bigru] [--repeat 5] [--json
    FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

import coterie as ct
from coterie.core.arrays import aligned_copy
from coterie.core.process import keep_freed_memory
from coterie.core.vectors import flatten
from coterie.core.work import Train
from coterie.local import LocalRunner
from coterie.local.training.stack import Stack
from coterie.models import build_model

SHAPES = {
    "mclr": (1, 28, 28),
    "mlp": (1, 28, 28),
    "lenet5": (3, 32, 32),
    "cnn_mnist": (1, 28, 28),
    "bigru": (25, 300),
}
BATCH = 10
SAMPLES = 100
PRODUCTS = (
    "mm",
    "addmm",
    "bmm",
    "mkldnn_convolution",
    "convolution_backward",
    "mkldnn_linear",
    "_slow_conv2d_forward",
)


def best(run: Callable[[], object], repeat: int) -> float:
    """The least processor seconds of some calls."""
    found = []
    for _ in range(repeat):
        begun = time.process_time()
        run()
        found.append(time.process_time() - begun)
    return min(found)


def peak(repeat: int) -> float:
    """FLOP/s of float32 products of 1,024 x 1,024, one thread."""
    a = torch.randn(1024, 1024)
    b = torch.randn(1024, 1024)
    out = torch.empty(1024, 1024)
    return 10 * 2 * 1024**3 / best(lambda: [torch.mm(a, b, out=out) for _ in range(10)], repeat)


def flop(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> int:
    """Operations of one step: forward and backward."""
    with FlopCounterMode(display=False) as counter:
        nn.functional.cross_entropy(module(x), y).backward()
    return counter.get_total_flops()


def dense_products(stack: Stack, repeat: int) -> float:
    """Seconds a step of the closed form's matrix products alone."""
    from coterie.local.kernels.dense import accumulate, multiply

    # In memory as in a step, where arrays begin a line of the cache.
    layers = [aligned_copy(np.zeros((o, i), np.float32)) for i, o in pairwise(stack.widths)]
    acts = [aligned_copy(np.ones((BATCH, i), np.float32)) for i in stack.widths]
    deltas = [aligned_copy(np.ones((BATCH, o), np.float32)) for o in stack.widths[1:]]
    biases = [np.zeros(o, np.float32) for o in stack.widths[1:]]
    times = 500

    def run() -> None:
        for _ in range(times):
            for at, kernel in enumerate(layers):
                multiply(acts[at], kernel, biases[at], acts[at + 1])
                accumulate(0.0, deltas[at], acts[at], kernel)
                if at:
                    accumulate(0.0, deltas[at].T, kernel, acts[at])

    return best(run, repeat) / times


def profiled(run: Callable[[], object]) -> tuple[float, list[tuple[str, float]]]:
    """The share of the time of all torch calls that products take, and the largest of the
    others."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        run()
    each = {event.key: event.self_cpu_time_total for event in found.key_averages()}
    total = sum(each.values())
    shares = {name.removeprefix("aten::"): spent / total for name, spent in each.items()}
    products = sum(share for name, share in shares.items() if name in PRODUCTS)
    rest = sorted(
        ((n, s) for n, s in shares.items() if n not in PRODUCTS), key=lambda pair: -pair[1]
    )
    return products, rest[:4]


def measure(model: str, rate: float, repeat: int) -> dict[str, object]:
    """One model's line."""
    generator = torch.Generator().manual_seed(0)
    shape = SHAPES[model]
    x = torch.randn(SAMPLES, *shape, generator=generator)
    y = torch.randint(10, (SAMPLES,), generator=generator)
    classes = 10
    if model == "bigru":
        classes = 2
        y = y % 2
    module = build_model(model, shape, classes, ct.Key(0).of("model"))
    operations = flop(module, x[:BATCH], y[:BATCH])
    data = ct.Population(x, y, (np.arange(SAMPLES),), (np.empty(0, np.int64),), classes)
    epochs = 5 if Stack.of(module) is not None else 1
    runner = LocalRunner(data, module, ct.Solver(epochs=epochs, batch_size=BATCH, lr=0.01))
    w0 = flatten(module)
    out = torch.empty_like(w0)
    steps = epochs * SAMPLES // BATCH

    def train() -> None:
        runner.train(Train(), 0, w0, out, ct.Key(0).at(0))

    train()
    step = best(train, repeat) / steps
    stack = Stack.of(module)
    if stack is not None:
        products = float("nan") if stack.convs else dense_products(stack, repeat) / step
        rest = []
    else:
        products, rest = profiled(train)
    return {
        "MFLOP": operations / 1e6,
        "bound_us": operations / rate * 1e6,
        "step_us": step * 1e6,
        "bound_share": operations / rate / step,
        "products_share": products,
        "rest": rest,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    with threadpool_limits(1):
        rate = peak(args.repeat)
        print(f"one core: {rate / 1e9:.1f} GFLOP/s in float32 products of 1,024 x 1,024")
        print(
            "model        MFLOP   bound      step    of the bound  products  else; the largest of it"
        )
        found: dict[str, object] = {"GFLOP/s": rate / 1e9}
        for model in args.models:
            row = found[model] = measure(model, rate, args.repeat)
            named = (
                ", ".join(f"{name} {share:.0%}" for name, share in row["rest"])
                or "compiled, not told apart"
            )
            print(
                f"{model:10} {row['MFLOP']:7.3f} {row['bound_us']:6.1f} us {row['step_us']:7.1f} us "
                f"{row['bound_share']:10.0%} {row['products_share']:11.0%} {1 - row['products_share']:7.0%}; {named}",
                flush=True,
            )
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
