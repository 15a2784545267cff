"""Whole experiments of other frameworks, from the command to the result, with Coterie and with them.

The recipes are in ``recipes.py``: ``flute`` is that of FLUTE's own benchmark, ``pfl`` that of
pfl-research, ``blazefl`` that of BlazeFL. Coterie runs `coterie run` from the data's own files, and
writes its run folder. Each peer has its own environment, as `benchmarks.peers.run` makes it, and a
program of this folder, written as the peer's documentation has it done; it reads one file with the
samples and who holds which, and tests as often. All draw their own cohorts and batches. Programs
take turns; figures are medians. Where the machine tells how much energy its processors took, so does
this.

    python -m benchmarks.whole.run [--recipes flute pfl blazefl] [--programs coterie flower ...]
        [--repeat 3] [--rounds 20] [--minutes 30] [--json FILE]

Needs COTERIE_DATA, and a package index, or the wheels, for the environments. BlazeFL needs Python
3.12 or later (``--python``).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from benchmarks.memory import processor, proportional
from benchmarks.peers.run import BUILD, CORES, ENVIRONMENTS, TORCH, python
from benchmarks.whole.recipes import RECIPES, write_recipe

HERE = Path(__file__).parent
BLAZEFL = (TORCH, ("blazefl[contrib,reproducibility]==2.0.3",))
# Program -> its environment, its file, and its own variables.
PROGRAMS: dict[str, tuple[str, str, dict[str, str]]] = {
    "coterie": ("coterie", "", {}),
    "bare, 1 thread": ("bare", "bare.py", {"THREADS": "1"}),
    "bare, all threads": ("bare", "bare.py", {"THREADS": str(CORES)}),
    "flower": ("flower", "flower.py", {}),
    "fedjax": ("fedjax", "fedjax_quickstart.py", {}),
    "pfl, 1 thread": ("pfl", "pfl_research.py", {"THREADS": "1"}),
    "pfl, all threads": ("pfl", "pfl_research.py", {"THREADS": str(CORES)}),
    "blazefl, processes": ("blazefl", "blazefl_quickstart.py", {"MODE": "processes"}),
    "blazefl, threads": ("blazefl", "blazefl_quickstart.py", {"MODE": "threads"}),
}
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # by default Flower's actors would yield to all others
}
_COUNTERS = Path("/sys/class/powercap")  # of the energy that processors took, on some machines


@dataclass(slots=True)
class WholeRun:
    """One run of a program.

    Args:
        seconds: from its start to its end.
        processor: seconds of the processors, of all its processes.
        memory: the most that these held, in GB; shared pages count once.
        accuracy: of the last test.
        joules: of the processors; ``None`` where the machine does not tell.
        load: average of the machine at its end.
        megabytes: that clients were sent and sent back; ``None`` where the program does not say.
    """

    seconds: float
    processor: float
    memory: float
    accuracy: float
    joules: float | None
    load: float
    megabytes: float | None = None


def joules() -> float | None:
    """What the processors took since some time; ``None`` where the machine does not tell."""
    files = sorted(_COUNTERS.glob("intel-rapl:[0-9]*/energy_uj"))
    try:
        found = [int(file.read_text()) for file in files if file.parent.name.count(":") == 1]
    except OSError:
        return None
    return sum(found) / 1e6 if found else None


def watch_processes(process: subprocess.Popen[str], log: Path, limit: float) -> WholeRun:
    """Wait for a program, and look at its processes meanwhile.

    Raises:
        RuntimeError: if it fails or takes too long, with the end of what it wrote.
    """
    begun = time.perf_counter()
    before = joules()
    ended_before = _ended()
    peak = 0.0
    busy = 0.0
    while True:
        # The memory is looked at seldom: to count the pages of a large process takes milliseconds.
        try:
            process.wait(0.5)
            break
        except subprocess.TimeoutExpired:
            busy = max(busy, processor(process.pid))
            peak = max(peak, proportional(process.pid))
        if time.perf_counter() - begun > limit:
            process.kill()
    seconds = time.perf_counter() - begun
    # Programs wait for most of their processes, and the system counts these. Others were seen above.
    busy = max(busy, _ended() - ended_before)
    if process.returncode != 0:
        raise RuntimeError(f"ended with {process.returncode}: {log.read_text()[-1500:]}")
    after = joules()
    energy = None
    if before is not None and after is not None:
        energy = after - before
    return WholeRun(seconds, busy, peak, 0.0, energy, os.getloadavg()[0])


def run_coterie(tables: dict[str, Any], folder: Path, limit: float) -> WholeRun:
    """The command `coterie run`."""
    config = folder / "run.toml"
    config.write_text(tomli_w.dumps(tables))
    out = folder / "run"
    command = [sys.executable, "-m", "coterie", "run", str(config), "--out", str(out)]
    found = _timed(command, dict(os.environ), folder / "coterie.log", limit)
    summary = json.loads((out / "summary.json").read_text())
    found.accuracy = summary["accuracy"]["final"]
    moved = summary["transfers"]
    found.megabytes = (moved["down_bytes"] + moved["up_bytes"]) / 1e6
    return found


def run_program(name: str, interpreter: str, recipe: Path, folder: Path, limit: float) -> WholeRun:
    """A peer's program."""
    _, file, own = PROGRAMS[name]
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, **QUIET, **own, "CORES": str(CORES), "PYTHONPATH": path}
    env.pop("OMP_NUM_THREADS", None)
    log = folder / f"{name}.log"
    found = _timed([interpreter, str(HERE / file), str(recipe)], env, log, limit)
    said = [line for line in log.read_text().splitlines() if line.startswith("## accuracy ")]
    found.accuracy = float(said[-1].split()[-1])
    return found


def _ended() -> float:
    """Seconds of the processors that processes took which were started here, and ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _timed(command: Sequence[str], env: dict[str, str], log: Path, limit: float) -> WholeRun:
    with log.open("w") as out:
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, text=True
        )
        return watch_processes(process, log, limit)


def interpreters(names: Sequence[str], newer: str) -> dict[str, str]:
    """The Python of each program, whose environment is made where it is not there.

    Args:
        names: of the programs.
        newer: a Python for BlazeFL, which is left out where it does not run.
    """
    found = {}
    for name in names:
        environment = PROGRAMS[name][0]
        if environment == "blazefl":
            made = (BUILD / "blazefl" / ".done").exists()
            if not made and not _runs(newer):
                print(f"{name}: left out, {newer} does not run; name one with --python", flush=True)
                continue
            ENVIRONMENTS["blazefl"] = BLAZEFL
            found[name] = python("blazefl", newer)
        elif environment == "coterie":
            found[name] = sys.executable
        else:
            found[name] = python(environment)
    return found


def _runs(interpreter: str) -> bool:
    """Whether there is such a Python."""
    try:
        done = subprocess.run([interpreter, "--version"], check=False, capture_output=True)
    except OSError:
        return False
    return done.returncode == 0


def compare(
    recipe: str, tables: dict[str, Any], pythons: dict[str, str], repeat: int, limit: float
) -> dict[str, list[dict[str, Any]]]:
    """All programs on one recipe, in turns; one that fails says why, and is left out."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in pythons}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        file = folder / "recipe.npz"
        write_recipe(file, tables)
        for _ in range(repeat):
            for name in list(found):
                run = folder / "one"
                run.mkdir()
                try:
                    if name == "coterie":
                        one = run_coterie(tables, run, limit)
                    else:
                        one = run_program(name, pythons[name], file, run, limit)
                except RuntimeError as error:
                    print(f"{recipe}, {name}: did not run: {error}", flush=True)
                    del found[name]
                    continue
                finally:
                    shutil.rmtree(run)
                found[name].append(asdict(one))
                print(f"{recipe}, {name}: {one}", file=sys.stderr, flush=True)
    return found


def print_table(recipe: str, found: dict[str, list[dict[str, Any]]]) -> None:
    """Medians, and how many times as long as Coterie each program took."""
    print(f"\n{recipe:20} seconds  ratio  processor      GB  accuracy  joules")
    base = None
    for name, runs in found.items():
        middle = {
            key: statistics.median(run[key] for run in runs)
            for key in ("seconds", "processor", "memory", "accuracy")
        }
        base = base or middle["seconds"]
        energy = "-" if runs[0]["joules"] is None else f"{runs[0]['joules']:.0f}"
        print(
            f"{name:20} {middle['seconds']:7.1f} {middle['seconds'] / base:5.1f}x "
            f"{middle['processor']:8.1f} s {middle['memory']:7.2f} {middle['accuracy']:9.3f} {energy:>7}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipes", nargs="+", default=["flute"], choices=list(RECIPES))
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="instead of the recipe's")
    parser.add_argument("--minutes", type=float, default=30.0, help="the most for one run")
    parser.add_argument("--python", default="python3.13", help="for BlazeFL's environment")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    pythons = interpreters(args.programs, args.python)
    results = {}
    for recipe in args.recipes:
        tables = RECIPES[recipe]
        if args.rounds:
            rounds = {"rounds": args.rounds, "evaluate_every": args.rounds}
            tables = tables | {"train": tables["train"] | rounds}
        results[recipe] = compare(recipe, tables, pythons, args.repeat, 60 * args.minutes)
        print_table(recipe, results[recipe])
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
