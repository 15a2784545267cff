"""Processor time of a round with each kind of defence, in one process, in turn.

    python -m benchmarks.defence_time --out time.json

Twenty clients of MNIST's thousand train logistic regression in a round. Every repetition runs all
kinds, so that what else the machine does falls on all of them.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import coterie as ct
from benchmarks.attacks import mnist
from coterie.rules.robust import coordinate_median, geometric_median

KINDS: dict[str, dict[str, Any]] = {
    "off": {"bounds": {"enabled": False}},
    "bounds": {},
    "coordinate median": {"weigh": coordinate_median()},
    "geometric median": {"weigh": geometric_median()},
    "geometric median that remembers": {"weigh": geometric_median(remember=True)},
}
# As in examples/mnist-mclr.toml.
LOCAL = ct.Solver(10, 10, 0.03)


def main() -> None:
    """Measure, and write milliseconds a round by kind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repetitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    data = mnist(0).data

    def milliseconds(rounds: int, **options: Any) -> float:
        settings = {
            "model": "mclr",
            "engine": "serial",
            "local": LOCAL,
            "train": {"evaluate_every": rounds},
        }
        began = time.process_time()
        ct.run(ct.fedavg(), data=data, rounds=rounds, clients_per_round=20, **settings, **options)
        return 1000 * (time.process_time() - began) / rounds

    # The first run loads what all others need.
    milliseconds(2)
    found: dict[str, list[float]] = {name: [] for name in KINDS}
    for _ in range(arguments.repetitions):
        for name, options in KINDS.items():
            found[name].append(milliseconds(arguments.rounds, **options))
        print({name: round(values[-1], 1) for name, values in found.items()}, flush=True)
    arguments.out.write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
