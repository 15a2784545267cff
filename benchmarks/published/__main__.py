"""Measure what others print, by their recipe.

    python -m benchmarks.published pfedme --seeds 0-2
    python -m benchmarks.published lg_fedavg --out runs/published --seeds 0-4
    python -m benchmarks.published pfllib --out runs/published --setting "two labels" \\
        --methods FedPer Ditto --rounds 10 --seeds 0
    python -m benchmarks.published page --out runs/published --machine "two cores" --commit 7da2de5
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.published import lg_fedavg, pages, pfedme, pfllib
from benchmarks.published.pfllib_clients import SETTINGS
from coterie.sweep.grid import read_seeds


def main() -> None:
    """Measure one of the recipes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    recipes = parser.add_subparsers(dest="recipe", required=True)
    theirs = recipes.add_parser("pfedme", help="MNIST, logistic regression")
    theirs.add_argument("--seeds", default="0-2")
    theirs.add_argument("--rounds", type=int, default=pfedme.ROUNDS)
    authors = recipes.add_parser("lg_fedavg", help="MNIST, an MLP of five layers")
    authors.add_argument("--out", type=Path, required=True, help="the folder of the runs")
    authors.add_argument("--seeds", default="0-4")
    bench = recipes.add_parser("pfllib", help="Fashion-MNIST, a convolutional network")
    bench.add_argument("--out", type=Path, required=True, help="the folder of the runs")
    bench.add_argument("--setting", choices=list(SETTINGS), default="two labels")
    bench.add_argument(
        "--methods", nargs="*", choices=list(pfllib.METHODS), default=list(pfllib.METHODS)
    )
    bench.add_argument("--rounds", type=int, default=10)
    bench.add_argument("--seeds", default="0")
    page = recipes.add_parser("page", help="make benchmarks/results/published.json")
    page.add_argument("--out", type=Path, required=True, help="the folder of the runs")
    page.add_argument("--machine")
    page.add_argument("--commit")
    arguments = parser.parse_args()
    if arguments.recipe == "page":
        pages.write(arguments.out, arguments.machine, arguments.commit)
        return
    seeds = read_seeds(arguments.seeds)
    if arguments.recipe == "pfedme":
        pfedme.compare(seeds, arguments.rounds)
        return
    if arguments.recipe == "lg_fedavg":
        lg_fedavg.measure(seeds, arguments.out)
        return
    pfllib.measure(arguments.setting, arguments.methods, seeds, arguments.rounds, arguments.out)


if __name__ == "__main__":
    main()
