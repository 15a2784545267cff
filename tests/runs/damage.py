"""Damage run folders at random, and read them by every command.

    python -m tests.runs.damage --count 10000 --out damages.jsonl

Each damage is of one file of a finished run, of a stopped one, or of a run of a sweep: truncated,
a bit flipped, a block zeroed, dropped, or swapped with the file of another run. A command may
refuse the folder in one line, say a warning, or give exactly what it gave before. Anything else is
a silently different value, or a traceback, and is printed.

Commands are called in this process, since a new one spends seconds on imports and takes 50 times as
long. Of every hundredth damage (``--processes``) each command is a process of its own. Copies lie in the
folder of ``TMPDIR``; one in memory saves the waiting for the disk.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.runs.calls import Caller, call, call_process, without_waiting

CONFIG = """
seed = {seed}
[data]
source = "digits"
[data.partition]
kind = "planted"
clients = 12
groups = 2
[model]
name = "mclr"
[local]
epochs = 1
[train]
rounds = 6
clients_per_round = 4
[algorithm]
name = "flexcfl"
groups = 2
alpha = 3
pretrain_steps = 5
[checkpoint]
seconds = 0
[engine]
name = "serial"
"""
STOPPED_AFTER = 4
FINISHED, STOPPED, SWEEP = "finished", "stopped", "sweep"

# --- damages --------------------------------------------------------------------------------------

Damage = Callable[[random.Random, Path, Path], None]


def truncate(rng: random.Random, file: Path, other: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: rng.randrange(len(data))])


def flip(rng: random.Random, file: Path, other: Path) -> None:
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def zero(rng: random.Random, file: Path, other: Path) -> None:
    data = bytearray(file.read_bytes())
    start = rng.randrange(len(data))
    data[start : start + 64] = bytes(len(data[start : start + 64]))
    file.write_bytes(data)


def drop(rng: random.Random, file: Path, other: Path) -> None:
    file.unlink()


def swap(rng: random.Random, file: Path, other: Path) -> None:
    if other.exists():
        shutil.copy(other, file)


DAMAGES: Sequence[Damage] = (truncate, flip, flip, zero, drop, swap)


# --- runs -----------------------------------------------------------------------------------------


def make_runs(folder: Path) -> None:
    """A finished run, a stopped one, a sweep, and beside each another run of another seed."""
    from coterie.experiment import load_config
    from coterie.runs.compose import compose
    from coterie.runs.run import Stopped, execute, make_folder
    from coterie.sweep.plan import make_plan
    from coterie.sweep.run_once import carry_out

    for name, seed in (("", 0), ("other-", 1)):
        config = folder / f"{name}config.toml"
        config.write_text(CONFIG.format(seed=seed))
        assert call("run", str(config), "--out", str(folder / f"{name}{FINISHED}"))[0] == 0
        composed = compose(load_config(config))
        rounds: list[object] = []
        with contextlib.suppress(Stopped):
            execute(
                composed,
                make_folder(composed, folder / f"{name}{STOPPED}"),
                rounds.append,
                stop=lambda done=rounds: 15 * (len(done) == STOPPED_AFTER),
            )
        sweep = folder / f"{name}{SWEEP}"
        sweep.mkdir()
        # In this process, since a worker of the sweep takes seconds to start. `compare` finds the
        # run done, and writes the tables.
        for planned in make_plan(config).runs:
            assert carry_out(planned, sweep)
        assert call("compare", str(config), "--out", str(sweep))[0] == 0


def run_of(folder: Path) -> Path:
    """The run in a copy, which is a run itself or a sweep of one."""
    if (folder / "config.toml").exists():
        return folder
    return next(folder.glob("*/config.toml")).parent


# --- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """A command, and what of its results is compared."""

    words: Sequence[str]
    results: Callable[[], Any] = lambda: None
    prints: bool = True


def files_of(folder: str) -> Callable[[], Any]:
    """The digests of what a command wrote into a new folder, or into a file."""

    def results() -> Any:
        place = Path(folder)
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        return [
            (file.name, hashlib.sha256(file.read_bytes()).hexdigest())
            for file in files
            if file.is_file()
        ]

    return results


def of_run() -> Any:
    """All that a resumed run left, but for wall-clock times."""
    run = Path("r")
    lines = (run / "rounds.jsonl").read_text().splitlines()
    rows = [without_times(json.loads(line)) for line in lines]
    names = ["groups.csv", "clients.csv", *(f"models/{p.name}" for p in (run / "models").iterdir())]
    summary = without_times(json.loads((run / "summary.json").read_bytes()))
    return rows, summary, sorted((name, (run / name).read_bytes()) for name in names)


def of_table() -> Any:
    """The table of a sweep without its last column, which is the seconds."""
    lines = Path("r/table.csv").read_text().splitlines()
    return [line.rpartition(",")[0] for line in lines]


def without_times(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: without_times(inner)
        for name, inner in value.items()
        if name not in ("seconds", "chain")
    }


PAGE = ("report", "r", "--out", "page.html", "--data-root", "none")
COMMANDS: dict[str, dict[str, Command]] = {
    FINISHED: {
        "show": Command(("show", "r")),
        "watch": Command(("watch", "r", "--once")),
        "report": Command(PAGE, files_of("page.html"), prints=False),
        "plot": Command(("plot", "r", "--chart", "accuracy", "--out", "c.svg"), files_of("c.svg")),
        "export": Command(("export", "r", "--out", "e"), files_of("e"), prints=False),
        "resume": Command(("resume", "r"), of_run),
    },
    STOPPED: {
        "show": Command(("show", "r")),
        "watch": Command(("watch", "r", "--once")),
        "report": Command(PAGE, files_of("page.html"), prints=False),
        "export": Command(("export", "r", "--out", "e"), files_of("e"), prints=False),
        "resume": Command(("resume", "r"), of_run, prints=False),
    },
    SWEEP: {
        "compare": Command(("compare", "config.toml", "--out", "r"), of_table, prints=False),
    },
}


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    printed: str
    error: str
    results: Any


def execute_command(command: Command, caller: Caller = call) -> Outcome:
    code, printed, error = caller(*command.words)
    results = None
    if code == 0:
        results = command.results()
    # How long a stopped run has been silent is no value of the run.
    lines = [line for line in printed.splitlines() if not line.startswith("no round for")]
    return Outcome(code, "\n".join(lines) if command.prints else "", error, results)


def judge(now: Outcome, before: Outcome) -> str:
    """``refused``, ``said``, ``same``, or what must not be."""
    errors = [line for line in now.error.splitlines() if line.startswith("error: ")]
    if now.code == 70 or "Traceback" in now.error:
        return "TRACEBACK"
    if now.code:
        return "refused" if errors else "NO LINE"
    same = (now.printed, now.results) == (before.printed, before.results)
    if "warning: " in now.error:
        return "said"
    return "same" if same else "SILENT"


# --- the trial ------------------------------------------------------------------------------------


def trial(source: Path, kind: str, name: str, place: Path, caller: Caller = call) -> Outcome:
    """One command on a copy of a run."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    shutil.copytree(source, place / "r")
    shutil.copy(source.parent / "config.toml", place)
    os.chdir(place)
    return execute_command(COMMANDS[kind][name], caller)


def damage_once(rng: random.Random, runs: Path, kind: str, place: Path) -> tuple[str, str]:
    """A damaged copy of a run; how, and which file."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(runs / kind, place)
    run = run_of(place)
    files = sorted(p for p in run.rglob("*") if p.is_file() and not p.name.startswith("."))
    while True:
        file = rng.choice(files)
        other = run_of(runs / f"other-{kind}") / file.relative_to(run)
        damage = rng.choice(DAMAGES)
        before = file.read_bytes()
        damage(rng, file, other)
        # Some damages change nothing, as a block of zeros that is zeroed.
        if not file.exists() or file.read_bytes() != before:
            return damage.__name__, str(file.relative_to(run))


@dataclass(frozen=True)
class Damages:
    """Runs to damage, and what every command makes of them as they are.

    Args:
        runs: the folder of `make_runs`.
        place: a folder for copies.
        whole: by kind of run and command.
    """

    runs: Path
    place: Path
    whole: Mapping[tuple[str, str], Outcome]

    @classmethod
    def of(cls, runs: Path, place: Path) -> Damages:
        """Read the runs by every command."""
        whole = {
            (kind, name): trial(runs / kind, kind, name, place / "work")
            for kind, commands in COMMANDS.items()
            for name in commands
        }
        assert not any(outcome.code for outcome in whole.values()), whole
        return cls(runs, place, whole)

    def __call__(
        self, seed: int, number: int, every: bool = True, caller: Caller = call
    ) -> list[dict[str, Any]]:
        """Damage number ``number``, which depends on no other one: a record for each command.

        Args:
            seed: of all damages.
            number: of this one.
            every: read the folder by every command; else by one.
            caller: calls a command.
        """
        rng = random.Random(f"{seed}/{number}")
        kind = rng.choice(list(COMMANDS))
        damaged = self.runs / "damaged"
        how, file = damage_once(rng, self.runs, kind, damaged)
        names = list(COMMANDS[kind])
        chosen = names if every else [rng.choice(names)]
        found = []
        for name in chosen:
            now = trial(damaged, kind, name, self.place / "work", caller)
            what = {"damage": number, "run": kind, "how": how, "file": file, "command": name}
            found.append({**what, "verdict": judge(now, self.whole[kind, name])})
        return found


def measure(
    count: int,
    seed: int,
    every: bool = True,
    out: Path | None = None,
    minutes: float = float("inf"),
    processes: int = 0,
) -> Counter[str]:
    """Damage runs so many times; how commands ended, by kind.

    Args:
        count: damages.
        seed: of the choice of damages.
        every: read each damaged folder by every command; else by one.
        out: a file with a line for each command; damages that it has are not done again.
        minutes: after which no other damage is begun.
        processes: of every so many damages one is read by processes; 0 for none.
    """
    end = time.monotonic() + 60 * minutes
    records = []
    if out is not None and out.exists():
        records = [json.loads(line) for line in out.read_text().splitlines()]
    done = {record["damage"] for record in records}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as temporary, without_waiting():
        runs = Path(temporary, "runs")
        runs.mkdir()
        make_runs(runs)
        try:
            damage = Damages.of(runs, Path(temporary))
            for number in range(count):
                if number in done:
                    continue
                if time.monotonic() > end:
                    break
                sampled = processes and number % processes == 0
                found = damage(seed, number, every, call_process if sampled else call)
                records += found
                if out is not None:
                    with out.open("a") as file:
                        file.writelines(json.dumps(record) + "\n" for record in found)
        finally:
            os.chdir(before)
    bad = [record for record in records if record["verdict"].isupper()]
    for record in bad:
        print(record, flush=True)
    verdicts = Counter(record["verdict"] for record in records)
    return verdicts + Counter(damages=len({record["damage"] for record in records}))


def main() -> None:
    parser = argparse.ArgumentParser(description="Damage run folders and read them.")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", action="store_true", help="read each by one command, not by all")
    parser.add_argument("--out", type=Path, help="go on with the damages that this file lacks")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--processes", type=int, default=100, help="one damage of so many; 0: none")
    options = parser.parse_args()
    began = time.monotonic()
    out = options.out and options.out.absolute()
    found = measure(
        options.count, options.seed, not options.one, out, options.minutes, options.processes
    )
    text = ", ".join(f"{count} {name}" for name, count in sorted(found.items()))
    print(f"seed {options.seed}: {text}; {time.monotonic() - began:.0f} s")
    if any(name.isupper() for name in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
