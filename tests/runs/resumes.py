"""Several `coterie resume` of one run folder at the same moment, some beside the live run.

    python -m tests.runs.resumes --count 50

Each trial starts a run, kills it after some rounds (or lets it live), and then starts two, three or
five `resume` at once. One of them runs; the others end with code 10 and the number of the process
that runs. What is left has the bits of a run that was never stopped. Processes are forked, so that
none of them waits for its imports and they really meet.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.cli.main import invoke

ROUNDS = 60
CONFIG = f"""
seed = 3
[data]
source = "digits"
[data.partition]
kind = "planted"
clients = 12
groups = 2
[model]
name = "mclr"
[local]
epochs = 2
[train]
rounds = {ROUNDS}
clients_per_round = 6
[algorithm]
name = "flexcfl"
groups = 2
alpha = 3
pretrain_steps = 5
[checkpoint]
seconds = 0.05
[engine]
name = "serial"
"""
HOW_MANY = (2, 3, 5)
IN_USE = 10
FOUND = re.compile(r"the run is in progress \(process (\d+) on ")


@dataclass(frozen=True)
class Process:
    """A forked command, whose standard error goes into a file."""

    pid: int
    errors: Path

    def wait(self) -> int:
        """Its exit code; minus the number of a signal that ended it."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def is_over(self) -> bool:
        """Whether it has ended; it can still be waited for."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def start(errors: Path, *words: str) -> Process:
    """A command in a process of its own, which has all imports already."""
    pid = os.fork()
    if pid:
        return Process(pid, errors)
    # In the child: nothing of the parent's may run, whatever happens.
    code = 70
    try:
        with errors.open("w") as file:
            os.dup2(file.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            code = invoke(words)
    finally:
        os._exit(code)


def rows(run: Path) -> int:
    """How many rounds have been written."""
    file = run / "rounds.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("seconds", "chain")}


def left(run: Path) -> dict[str, Any]:
    """What a run leaves, but for wall-clock times and digests of them."""
    lines = (run / "rounds.jsonl").read_text().splitlines()
    files = [run / "groups.csv", run / "clients.csv", *(run / "models").iterdir()]
    found: dict[str, Any] = {file.name: file.read_bytes() for file in files}
    return {"rows": [without_times(json.loads(line)) for line in lines], **found}


def trial(place: Path, at: int, count: int, live: bool, expected: dict[str, Any]) -> Counter[str]:
    """One run, and several `resume` of it at once.

    Args:
        place: an empty folder beside the configuration ``c.toml``.
        at: the round after which the run is killed, or at which they start beside it.
        count: how many.
        live: whether the run lives on.
        expected: what a straight run leaves.

    Returns:
        ``runs``: how many of them ran or found the run over, ``refused``: how many said who runs,
        and ``WRONG`` for every rule that was broken.
    """
    run = place / "r"
    first = start(place / "run.txt", "run", str(place.parent / "c.toml"), "--out", str(run))
    while rows(run) < at and not first.is_over():
        time.sleep(0.001)
    if not live:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    several = [start(place / f"{n}.txt", "resume", str(run)) for n in range(count)]
    codes = [process.wait() for process in several]
    if live:
        first.wait()
    found: Counter[str] = Counter()
    ran = [process.pid for process, code in zip(several, codes, strict=True) if code == 0]
    found["runs"] = len(ran)
    found["refused"] = codes.count(IN_USE)
    # A process that ends names itself no longer, so each of the others names one that ran.
    writers = {*ran, first.pid} if live else set(ran)
    for process, code in zip(several, codes, strict=True):
        if code == IN_USE:
            said = FOUND.search(process.errors.read_text())
            found["WRONG name"] += said is None or int(said[1]) not in writers
    found["WRONG code"] = len(codes) - len(ran) - codes.count(IN_USE)
    found["WRONG none ran"] = not ran and not live
    found["WRONG bits"] = left(run) != expected
    return +found


def measure(count: int, seed: int) -> Counter[str]:
    """So many trials with two, three and five at once in turn, every fourth beside a live run."""
    rng = random.Random(seed)
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        (place / "c.toml").write_text(CONFIG)
        words = ["run", str(place / "c.toml"), "--out", str(place / "straight")]
        assert start(place / "straight.txt", *words).wait() == 0
        expected = left(place / "straight")
        for number in range(count):
            here = place / str(number)
            here.mkdir()
            several = HOW_MANY[number % len(HOW_MANY)]
            live = number % 4 == 3
            found = trial(here, rng.randrange(3, ROUNDS - 10), several, live, expected)
            kind = f"{several} at once" + (" beside the live run" if live else "")
            total[kind] += 1
            total.update(found)
            print(f"{number + 1}: {kind}: {dict(found)}", flush=True)
    return total


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Resume one run folder several times at once.")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    began = time.monotonic()
    found = measure(options.count, options.seed)
    text = ", ".join(f"{name}: {count}" for name, count in sorted(found.items()))
    print(f"seed {options.seed}: {text}; {time.monotonic() - began:.0f} s")
    if any(name.startswith("WRONG") for name in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
