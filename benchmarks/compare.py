"""Whether a change costs time: rounds of an earlier commit and of the working tree, in turn.

    python -m benchmarks.compare [--base main] [--models mclr mlp] [--repeat 5] [--rounds 12]
    [--limit 5]

Each tree runs its own `benchmarks/local_sgd.py` in a process of its own, one after the other, several
times; the base is checked out next to the working tree. A benchmark imports modules by name, so that of
one commit may not run with the package of another: look at what changed in it before you believe a
figure. What counts is the median over the pairs
of the time of a round, and that of its processor time, which other programs disturb less. A network
whose rounds take more than ``limit`` percent longer by both is named, and the command ends with 1. On
an idle machine single runs differ by up to 17 %, so fewer than five pairs say little about 5 %.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.history import ROOT

Figures = Mapping[str, Mapping[str, float]]
MEASURES = {"coterie": "time", "processor": "processor time"}


def run(tree: Path, models: Sequence[str], rounds: int, scratch: Path) -> Figures:
    """The figures of one run of a tree's benchmark with the tree's package."""
    out = scratch / "figures.json"
    command = [sys.executable, "-m", "benchmarks.local_sgd", "--models", *models]
    command += ["--rounds", str(rounds), "--json", str(out), "--no-shares"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(tree)])}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment, cwd=tree)
    found: Figures = json.loads(out.read_text(encoding="utf-8"))["figures"]
    return found


def changes(pairs: Sequence[tuple[Figures, Figures]], model: str) -> dict[str, float]:
    """By how many percent rounds of a network take longer than before, by each measure: the median
    over the pairs.

    Example:
        >>> base = {"mlp": {"coterie": 2.0, "processor": 4.0}}
        >>> now = {"mlp": {"coterie": 2.2, "processor": 4.0}}
        >>> {name: round(value) for name, value in changes([(base, now)], "mlp").items()}
        {'coterie': 10, 'processor': 0}
    """
    found = {}
    for measure in MEASURES:
        each = [now[model][measure] / base[model][measure] for base, now in pairs]
        found[measure] = 100 * (statistics.median(each) - 1)
    return found


def slower(found: Mapping[str, float], limit: float) -> bool:
    """Whether rounds take longer by all measures: by one alone another program may have run."""
    return all(change > limit for change in found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="main", help="commit to compare with")
    parser.add_argument("--models", nargs="+", default=["mclr", "mlp", "lenet5"])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--limit", type=float, default=5.0, help="percent")
    args = parser.parse_args()
    pairs = []
    with tempfile.TemporaryDirectory(prefix="coterie-compare-") as place:
        base = Path(place) / "base"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(base), args.base], check=True)
        try:
            for number in range(args.repeat):
                # The order changes, so that what a machine does over time falls on both.
                trees = (base, ROOT) if number % 2 == 0 else (ROOT, base)
                runs = {tree: run(tree, args.models, args.rounds, Path(place)) for tree in trees}
                pairs.append((runs[base], runs[ROOT]))
        finally:
            subprocess.run([*git, "remove", "--force", str(base)], check=True)
    worse = []
    for model in args.models:
        found = changes(pairs, model)
        text = ", ".join(f"{MEASURES[name]} {change:+.1f} %" for name, change in found.items())
        print(f"{model}: {text}, {len(pairs)} pairs, load {os.getloadavg()[0]:.1f}")
        if slower(found, args.limit):
            worse.append(model)
    if worse:
        print(f"slower than {args.base} by more than {args.limit:g} %: {', '.join(worse)}")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
