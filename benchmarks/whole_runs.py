"""Whole experiments of other frameworks, from the command to the result: seconds of `coterie run`.

`flute` is the recipe of FLUTE's own benchmark: MNIST, logistic regression, 1,000 clients, 10 a
round, batches of 10, learning rate 0.03, one epoch, 100 rounds, a test every 20. `pfl` is
pfl-research's: CIFAR-10, 1,000 clients of 50 images, 50 a round, a network of convolutions of 32 and
64 channels, batches of 10, learning rate 0.1, one epoch; as many rounds as are asked for, and a test
at the end. A command is a process of its own, and writes its run folder.

    python -m benchmarks.whole_runs [--recipes flute pfl] [--pfl-rounds 20] [--repeat 3] [--json FILE]

The data come from COTERIE_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tomli_w

FLUTE = {
    "data": {"source": "mnist", "partition": {"kind": "iid", "clients": 1000}},
    "model": {"name": "mclr"},
    "local": {"epochs": 1, "batch_size": 10, "lr": 0.03},
    "train": {"rounds": 100, "clients_per_round": 10, "evaluate_every": 20},
    "algorithm": {"name": "fedavg"},
}
PFL = {
    "data": {"source": "cifar10", "partition": {"kind": "iid", "clients": 1000}},
    "model": {"name": "benchmarks.whole_runs:pfl_network"},
    "local": {"epochs": 1, "batch_size": 10, "lr": 0.1},
    "train": {"clients_per_round": 50},
    "algorithm": {"name": "fedavg"},
}


def pfl_network(shape: tuple[int, ...], classes: int) -> Any:
    """The network of pfl-research's benchmark on CIFAR-10."""
    # Imported here: this file times commands, and loads no torch for it.
    from torch import nn

    channels, height, width = shape
    flat = 64 * ((height - 4) // 2) * ((width - 4) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(flat, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def whole_run(tables: dict[str, Any], folder: Path) -> dict[str, float]:
    """Wall and processor seconds of one command, and its last accuracy."""
    config = folder / "run.toml"
    config.write_text(tomli_w.dumps(tables))
    command = [sys.executable, "-m", "coterie", "run", str(config), "--out", str(folder / "run")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    summary = json.loads((folder / "run" / "summary.json").read_text())
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "processor": used, "accuracy": summary["accuracy"]["final"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipes", nargs="+", default=["flute"], choices=["flute", "pfl"])
    parser.add_argument("--pfl-rounds", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rounds = {
        "train": {**PFL["train"], "rounds": args.pfl_rounds, "evaluate_every": args.pfl_rounds}
    }
    recipes = {"flute": FLUTE, "pfl": PFL | rounds}
    found = {}
    for name in args.recipes:
        each = []
        for _ in range(args.repeat):
            with tempfile.TemporaryDirectory() as folder:
                each.append(whole_run(recipes[name], Path(folder)))
            each[-1]["load_average"] = os.getloadavg()[0]
        found[name] = each
        middle = statistics.median(one["seconds"] for one in each)
        spent = ", ".join(f"{one['seconds']:.1f}" for one in each)
        processor = statistics.median(one["processor"] for one in each)
        print(
            f"{name}: {middle:.1f} s (each: {spent}), processor {processor:.1f} s, accuracy "
            f"{each[-1]['accuracy']:.3f}, load {each[-1]['load_average']:.1f}",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
