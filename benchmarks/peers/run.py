"""Seconds a round, start and memory of Coterie beside others at the same work: FedAvg, K = 20, E =
10, B = 10.

Each peer has its own environment (made by this script in ``build/peers``, ignored by git) and its
own worker, written as the peer's documentation has it done. All train the same clients from the
same model on the same batches; the models after the first round are compared. Rounds are
interleaved: every worker runs round 0, then every worker round 1, and so on. Figures are ratios
within one run, of best and of median times; beside them what all of a worker's processes took of
the processors, which other work on the machine hardly changes.

    python -m benchmarks.peers.run [--models mclr mlp lenet5] [--peers bare flower fedjax pfl]
    [--rounds 8]
        [--skip WORKER ...] [--minutes 60] [--json FILE]

Needs a package index, or the wheels, for the environments.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

import coterie as ct
from benchmarks.local_sgd import SGD, population
from benchmarks.memory import processor, proportional
from coterie.core.vectors import flatten
from coterie.local.training.batches import batches
from coterie.models import build_model

HERE = Path(__file__).parent
ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "peers"
TORCH = ("torch==2.13.0", "numpy")
ENVIRONMENTS = {
    "flower": (TORCH, ("flwr[simulation]==1.41.0",)),
    "fedjax": (
        ("jax[cpu]==0.6.2",),
        ("fedjax==0.0.17",),
    ),  # its pmap backend needs what jax 0.8 took away
    "pfl": (TORCH, ("pfl[pytorch]==0.6.0",)),
}
VERSIONS = {
    "coterie": ("coterie", "torch", "numpy"),
    "bare": ("torch",),
    "flower": ("flwr", "ray", "torch"),
    "fedjax": ("fedjax", "jax", "dm-haiku"),
    "pfl": ("pfl", "torch"),
}
WORKERS = {
    "coterie": ("coterie", {}),
    "bare, 1 thread": ("bare", {"THREADS": "1"}),
    "bare, all threads": ("bare", {"THREADS": "all"}),
    "flower": ("flower", {}),
    "fedjax, jit": ("fedjax", {"BACKEND": "jit"}),
    "fedjax, pmap": ("fedjax", {"BACKEND": "pmap"}),
    "pfl, 1 thread": ("pfl", {"THREADS": "1"}),
    "pfl, all threads": ("pfl", {"THREADS": "all"}),
}
ASKED = {
    "mclr": {"bare": 18.0, "flower": 25.0, "fedjax": 12.0, "pfl": 22.0},
    "mlp": {"bare": 9.0, "flower": 12.0, "fedjax": 7.0, "pfl": 11.0},
    "lenet5": {"bare": 3.6, "flower": 2.5, "fedjax": 3.6, "pfl": 3.7},
}
CORES = len(os.sched_getaffinity(0))


@cache
def python(peer: str, version: str = sys.executable) -> str:
    """The interpreter of a peer's environment, which is made by a Python where it is not there."""
    if peer not in ENVIRONMENTS:
        # pip compiles a peer's packages when it installs them; ours may not be, where Python keeps
        # no bytecode
        packages = [sysconfig.get_path("purelib"), str(ROOT / "src")]
        subprocess.run(
            [sys.executable, "-m", "compileall", "-qq", "-j", "0", *packages], check=False
        )
        return sys.executable
    place = BUILD / peer
    if not (place / ".done").exists():
        print(f"making an environment for {peer}", flush=True)
        subprocess.run([version, "-m", "venv", "--clear", str(place)], check=True)
        for packages in ENVIRONMENTS[peer]:
            if packages:
                subprocess.run(
                    [str(place / "bin/python"), "-m", "pip", "install", "-qq", *packages],
                    check=True,
                )
        (place / ".done").touch()
    return str(place / "bin/python")


def versions(peer: str) -> dict[str, str]:
    """What runs in a peer's environment."""
    code = "import sys, json, importlib.metadata as m; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    output = subprocess.run(
        [python(peer), "-c", code, *VERSIONS[peer]], check=True, capture_output=True, text=True
    )
    return json.loads(output.stdout)


def write_task(path: Path, model: str, rounds: int) -> None:
    """The file that all workers read: clients and batches of some rounds, drawn as Coterie draws
    them."""
    data = population(model)
    key = ct.Key(0)
    w0 = flatten(build_model(model, data.shape, data.classes, key.of("model"))).numpy()
    draw = np.random.default_rng(0)
    cohort = np.stack(
        [np.sort(draw.choice(data.clients, 20, replace=False)) for _ in range(rounds)]
    )
    at = np.zeros((rounds, 20, 2), np.int64)
    rows = []
    orders = []
    start = 0
    for t in range(rounds):
        for k, id in enumerate(cohort[t].tolist()):
            held = data.train[id]
            rng = key.of("train").at(t).client(id).of("shuffle").generator()
            orders.append(np.concatenate([part.order for part in batches(len(held), SGD, rng)]))
            at[t, k] = (start, start + len(held))
            start = start + len(held)
            rows.append(held)
    x = data.x.numpy()
    y = data.y.numpy()
    every = np.concatenate(rows)
    kept, place = np.unique(every, return_inverse=True)
    np.savez(
        path,
        x=x[kept],
        y=y[kept],
        w0=w0,
        model=model,
        lr=SGD.lr,
        batch=SGD.batch_size,
        epochs=SGD.epochs,
        cohort=cohort,
        at=at,
        rows=place,
        order=np.concatenate(orders),
    )


@dataclass
class Worker:
    """A peer's process."""

    name: str
    process: subprocess.Popen[str]
    out: Path
    log: Path
    begun: float
    seconds: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    start: float = 0.0
    start_busy: float = 0.0
    memory: float = 0.0

    @classmethod
    def of(cls, name: str, task: Path, folder: Path) -> Worker:
        """Start it."""
        peer, own = WORKERS[name]
        out = folder / f"{name}.npy"
        log = folder / f"{name}.log"
        path = os.environ.get("PYTHONPATH", "")
        env = {**os.environ, "CORES": str(CORES), "PYTHONPATH": f"{HERE}{os.pathsep}{path}", **own}
        env["THREADS"] = str(CORES) if env.get("THREADS") == "all" else env.get("THREADS", "1")
        env |= {
            "RAY_DEDUP_LOGS": "0",
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        env["RAY_worker_niceness"] = "0"  # by default Flower's actors would yield to all others
        env.pop("OMP_NUM_THREADS", None)
        call = [python(peer), str(HERE / f"{peer}_worker.py"), str(task), str(out)]
        begun = time.perf_counter()
        process = subprocess.Popen(
            call,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
        )
        return cls(name, process, out, log, begun)

    def hear(self, word: str, limit: float = 240.0) -> list[str]:
        """Its next line to us."""
        timer = threading.Timer(limit, self.process.kill)
        timer.start()
        try:
            assert self.process.stdout is not None
            for line in self.process.stdout:
                if line.startswith("##"):
                    said = line[2:].split()
                    assert said[0] == word, line
                    return said[1:]
        finally:
            timer.cancel()
        raise RuntimeError(f"{self.name}: ended; see {self.log}:\n{self.log.read_text()[-1500:]}")

    def round(self, number: int) -> None:
        """One round."""
        assert self.process.stdin is not None
        before = processor(self.process.pid)
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        self.seconds.append(float(self.hear("done")[0]))
        self.busy.append(processor(self.process.pid) - before)
        took = f"{self.seconds[-1] * 1e3:.0f} ms, {self.busy[-1] * 1e3:.0f} ms of the processors"
        print(f"  round {number}, {self.name}: {took}", file=sys.stderr, flush=True)
        if number == 0:
            self.start = time.perf_counter() - self.begun
            self.start_busy = processor(self.process.pid)
        self.memory = max(self.memory, proportional(self.process.pid))

    def end(self) -> None:
        """Let it go, with all that it started."""
        import psutil

        family = [*psutil.Process(self.process.pid).children(recursive=True)]
        self.process.kill()
        self.process.wait()
        for child in family:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue


def compare(
    model: str, names: list[str], rounds: int, minutes: float, together: bool
) -> dict[str, dict[str, float]]:
    """All workers on one model; no further round begins after so many minutes, but the first two
    do."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_task(folder / "task.npz", model, rounds + 1)
        workers: list[Worker] = []
        lost: list[Worker] = []
        try:
            for name in names:
                workers.append(Worker.of(name, folder / "task.npz", folder))
                if not together:
                    first(workers[-1], model)
            for worker in workers if together else []:
                first(worker, model)
            lost = [w for w in workers if not w.seconds]
            workers = [w for w in workers if w.seconds]
            for t in range(1, rounds + 1):
                if t > 1 and time.monotonic() - begun > 60 * minutes:
                    break
                for worker in workers:
                    worker.round(t)
            ours = np.load(workers[0].out)
            return {
                w.name: {
                    "best": min(w.seconds[1:]),
                    "median": statistics.median(w.seconds[1:]),
                    "start": w.start,
                    "start_processor": w.start_busy,
                    "processor": statistics.median(w.busy[1:]),
                    "GB": w.memory,
                    "gap": float(np.abs(np.load(w.out) - ours).max()),
                }
                for w in workers
            }
        finally:
            for worker in [*workers, *lost]:
                worker.end()


def first(worker: Worker, model: str) -> None:
    """A worker's first round; one that cannot run says why and is left out."""
    try:
        worker.hear("ready")
        worker.round(0)
    except (RuntimeError, AssertionError, OSError) as error:
        print(f"{model}, {worker.name}: did not run: {error}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(ASKED), choices=list(ASKED))
    parser.add_argument(
        "--peers", nargs="+", default=["bare", *ENVIRONMENTS], choices=["bare", *ENVIRONMENTS]
    )
    parser.add_argument(
        "--skip", nargs="*", default=[], choices=list(WORKERS), help="workers to leave out"
    )
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="begin no more rounds of a model after so long"
    )
    parser.add_argument(
        "--together",
        action="store_true",
        help="start all workers at once: sooner, but starts contend",
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    names = [
        name
        for name, (peer, _) in WORKERS.items()
        if peer in ("coterie", *args.peers) and name not in args.skip
    ]
    found: dict[str, object] = {
        "versions": {peer: versions(peer) for peer in ("coterie", *args.peers)}
    }
    for peer, said in found["versions"].items():
        print(f"{peer}: {', '.join(f'{n} {v}' for n, v in said.items())}")
    for model in args.models:
        rows = compare(model, names, args.rounds, args.minutes, args.together)
        found[model] = rows
        base = rows["coterie"]
        print(
            f"\n{model:18}  best     ratio   median  ratio   asked  processor  ratio   start (processor)   GB  gap"
        )
        for name, row in rows.items():
            asked = f"{ASKED[model].get(WORKERS[name][0], '-')}"
            print(
                f"{name:18} {row['best'] * 1e3:7.0f} ms {row['best'] / base['best']:5.1f}x "
                f"{row['median'] * 1e3:7.0f} ms {row['median'] / base['median']:5.1f}x {asked:>6} "
                f"{row['processor'] * 1e3:7.0f} ms {row['processor'] / base['processor']:5.1f}x {row['start']:6.1f} s "
                f"{row['start_processor']:6.1f} s "
                f"{row['GB']:5.2f}  {row['gap']:.0e}",
                flush=True,
            )
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
