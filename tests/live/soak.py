"""A federation that runs for an hour while its processes are killed: ``make soak``.

    python -m tests.live.soak FOLDER --minutes 60 --nodes 8 --rounds 100 --every 20

It is built with the commands of docs/deploy.md alone, on this machine: a server and nodes, each with its own
files, which are started again when they end, as systemd does. Every few seconds a node, a worker, the ServerApp or the
SuperLink gets SIGKILL. When `coterie deploy run` ends with an exit code other than 0, it is called
again with ``--resume``. After the time nobody is killed any more, and the run goes on to its end.

``FOLDER/soak.json`` has what was seen: kills, exit codes, hangs, rows, memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from coterie.flower.node.data_sources import trial_share
from coterie.flower.operate.local import client_names
from coterie.flower.processes.process import free_ports
from tests.live import soak_processes
from tests.live.soak_processes import VICTIMS, find_processes

CONFIG = """
seed = 5
[data]
source = "nodes"
shape = [1, 8, 8]
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
[data.partition]
kind = "natural"
[model]
name = "mclr"
[local]
epochs = 1
lr = 0.1
[train]
rounds = {rounds}
clients_per_round = {cohort}
evaluate_every = 10
[algorithm]
name = "ifca"
groups = 2
"""
# A kill of the server ends the run, which then takes a minute and more to go on: about as long as to
# the next such kill.
WEIGHTS = {"node": 6, "worker": 6, "ServerApp": 1, "SuperLink": 1}
SAMPLED = 15.0  # seconds between two samples of the memory
REPLY_WAIT = 180.0
LONGEST_WAIT = 240.0
# A run that neither ends nor has another round after this many seconds hangs: the waits that it
# states, and as long again as it takes to find that the SuperLink is gone.
HANG = REPLY_WAIT + LONGEST_WAIT + 300.0
RESTARTED_AFTER = 5.0  # seconds


class KeptUp:
    """A command that is started again when it ends, in place of systemd."""

    def __init__(self, words: list[str], log: Path) -> None:
        self.words = words
        self.log = log
        self.over = threading.Event()
        # It lasts as long as the process: Linux ends what a thread started when the thread ends.
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self.over.is_set():
            with self.log.open("ab") as out:
                process = subprocess.Popen(
                    self.words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
                )
            while process.poll() is None and not self.over.wait(0.5):
                pass
            process.terminate()
            process.wait(60.0)
            self.over.wait(RESTARTED_AFTER)


@dataclass
class Soak:
    """The federation and what was seen of it.

    Args:
        folder: of everything.
        options: of the command.
    """

    folder: Path
    options: argparse.Namespace
    begun: float = field(default_factory=time.monotonic)
    over: threading.Event = field(default_factory=threading.Event)
    kills: list[dict[str, Any]] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    hangs: list[dict[str, Any]] = field(default_factory=list)
    kept_up: list[KeptUp] = field(default_factory=list)

    @property
    def at(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.begun

    @property
    def deployment(self) -> Path:
        """The folder of the deployment."""
        return self.folder / "d"

    # --- commands ---------------------------------------------------------------------------------

    def words(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "coterie", *map(str, arguments)]

    def ok(self, *arguments: object) -> None:
        """A command that has to work."""
        done = subprocess.run(self.words(*arguments), capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr

    def set_up(self) -> None:
        """Server and nodes."""
        self.folder.mkdir(parents=True)
        names = client_names(self.options.nodes)
        cohort = max(1, self.options.nodes // 2)
        text = CONFIG.format(rounds=self.options.rounds, cohort=cohort)
        (self.folder / "run.toml").write_text(text)
        config = self.folder / "run.toml"
        self.ok("deploy", "init", self.deployment, "--config", config, "--clients", len(names))
        address = _adapt(self.deployment, cohort)
        self._keep_up(self.folder / "server.log", "server", "up", self.deployment)
        self._wait_for_server()
        _write_shares(self.folder / "data", names)
        for name in names:
            self.ok("node", "key", name, "--folder", self.folder / "sites" / name)
        keys = [self.folder / "sites" / name / f"{name}.pub" for name in names]
        self.ok("server", "add", self.deployment, *keys)
        for name in names:
            self._join(name, address)

    def _join(self, name: str, address: str) -> None:
        site = self.folder / "sites" / name
        where = ("--server", address, "--ca", self.deployment / "keys" / "ca.crt")
        data = ("--data", self.folder / "data" / name, "--shape", "1,8,8")
        kept = ("--folder", site, "--cache", site / "cache")
        self._keep_up(site / "join.log", "node", "join", *where, "--name", name, *data, *kept)

    def _keep_up(self, log: Path, *arguments: object) -> None:
        service = KeptUp(self.words(*arguments), log)
        self.kept_up.append(service)
        service.thread.start()

    def _wait_for_server(self) -> None:
        asked = self.words("server", "status", self.deployment, "--quick")
        end = time.monotonic() + 300.0
        while subprocess.run(asked, capture_output=True).returncode:
            assert time.monotonic() < end, (self.folder / "server.log").read_text()
            time.sleep(1.0)

    def tear_down(self) -> None:
        """Stop what was started."""
        for service in reversed(self.kept_up):
            service.over.set()
        for service in reversed(self.kept_up):
            service.thread.join(90.0)

    # --- while it runs ----------------------------------------------------------------------------

    @property
    def run_folder(self) -> Path | None:
        """The folder of the run, once there is one."""
        return next(iter(sorted((self.deployment / "runs").glob("*"))), None)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the run so far."""
        run = self.run_folder
        if run is None or not (run / "rounds.jsonl").exists():
            return []
        lines = (run / "rounds.jsonl").read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]

    def kill_at_random(self) -> None:
        """Kill a process every few seconds, until the time is over."""
        draw = random.Random(self.options.seed)
        # Before the first round there is nothing to go on from.
        while not self.rows():
            if self.over.wait(1.0):
                return
        while not self.over.wait(self.options.every):
            if self.at > 60 * self.options.minutes:
                return
            running = find_processes(self.folder)
            kinds = [kind for kind in VICTIMS if any(one.role == kind for one in running)]
            if not kinds:
                continue
            (kind,) = draw.choices(kinds, [WEIGHTS[kind] for kind in kinds])
            victims = sorted(one.id for one in running if one.role == kind)
            hit = soak_processes.kill(draw.choice(victims))
            row = {"at": round(self.at, 1), "killed": kind, "round": len(self.rows()), "hit": hit}
            self.kills.append(row)
            self._note(row)

    def sample_memory(self) -> None:
        """Note the memory of all processes every few seconds."""
        with (self.folder / "memory.jsonl").open("w") as out:
            while not self.over.wait(SAMPLED):
                for row in soak_processes.sample(self.folder, self.at):
                    out.write(json.dumps(row) + "\n")
                out.flush()

    def run_to_the_end(self) -> None:
        """Start the run, and resume it until it is over, or the last of the time is."""
        resume = False
        while self.at < 60 * (self.options.minutes + self.options.calm):
            begun = self.at
            code = self._attempt(resume)
            row = {"at": round(begun, 1), "seconds": round(self.at - begun, 1), "code": code}
            row["rows"] = len(self.rows())
            self.attempts.append(row)
            self._note(row)
            self._write()
            if code == 0:
                return
            # The first one may have ended before it noted where its folder is.
            resume = (self.deployment / "last-run.json").exists()
            time.sleep(2.0)

    def _attempt(self, resume: bool) -> int | None:
        """One `coterie deploy run`, to its end; ``None`` for one that hung, and was killed."""
        words = self.words("deploy", "run", self.deployment, *(["--resume"] if resume else []))
        with (self.folder / "run.log").open("ab") as out:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        rows = len(self.rows())
        heard = self.at
        while process.poll() is None:
            time.sleep(1.0)
            if len(self.rows()) != rows:
                rows = len(self.rows())
                heard = self.at
                self._write()
            if self.at - heard > HANG:
                self.hangs.append({"at": round(self.at, 1), "rows": rows})
                process.kill()
                process.wait()
                return None
        return process.returncode

    def _note(self, row: dict[str, Any]) -> None:
        print(json.dumps(row), flush=True)

    # --- afterwards -------------------------------------------------------------------------------

    def seen(self) -> dict[str, Any]:
        """What was seen."""
        rounds = [row["round"] for row in self.rows()]
        refused: Counter[str] = Counter()
        for row in self.rows():
            refused.update(row["refused"])
        memory = self.folder / "memory.jsonl"
        return {
            "minutes": round(self.at / 60, 1),
            "options": {
                name: value for name, value in vars(self.options).items() if name != "folder"
            },
            "load": os.getloadavg(),
            "kills": Counter(row["killed"] for row in self.kills if row["hit"]),
            "exit codes": Counter(str(one["code"]) for one in self.attempts),
            "over": bool(self.attempts) and self.attempts[-1]["code"] == 0,
            "hangs": self.hangs,
            "rows": len(rounds),
            "double rows": len(rounds) - len(set(rounds)),
            "rows in order": rounds == list(range(len(rounds))),
            "refused": refused,
            "slowest round": max((row["seconds"]["total"] for row in self.rows()), default=None),
            "memory": soak_processes.growth(memory) if memory.exists() else {},
            "database": _size(self.deployment / "superlink.db"),
            "attempts": self.attempts,
        }

    def _write(self) -> None:
        text = json.dumps(self.seen(), indent=1)
        (self.folder / "soak.json").write_text(text + "\n")


def _size(file: Path) -> float | None:
    """MiB of a file and what belongs to it."""
    files = list(file.parent.glob(f"{file.name}*"))
    return round(sum(one.stat().st_size for one in files) / 2**20, 2) if files else None


def _adapt(deployment: Path, least: int) -> str:
    """Give a deployment free ports and short waits; returns where nodes connect."""
    control, outer = free_ports(2)
    proxy = deployment / "nginx.conf"
    text = proxy.read_text().replace("127.0.0.1:18101", f"127.0.0.1:{control}")
    proxy.write_text(text.replace("listen 18001", f"listen 127.0.0.1:{outer}"))
    settings = deployment / "deploy.toml"
    lines = []
    changed = {
        "superlink": f'"127.0.0.1:{control}"',
        "min_clients": least,
        "longest_wait": LONGEST_WAIT,
        "reply_wait": REPLY_WAIT,
    }
    for line in settings.read_text().splitlines():
        key = line.split("=")[0].strip()
        lines.append(f"{key} = {changed[key]}" if key in changed else line)
    settings.write_text("\n".join(lines) + "\n")
    return f"127.0.0.1:{outer}"


def _write_shares(folder: Path, names: list[str]) -> None:
    """The digits of scikit-learn, divided among the clients, as files of their own."""
    partition = {"kind": "planted", "clients": len(names), "groups": 2}
    config = {
        "data": {"source": "digits", "partition": partition},
        "model": {"name": "mclr"},
        "train": {"rounds": 1, "clients_per_round": 1},
        "algorithm": {"name": "fedavg"},
    }
    for client, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for split, (x, y) in zip(("train", "test"), trial_share(config, client), strict=True):
            columns = {"x": list(np.asarray(x).reshape(len(y), -1)), "label": np.asarray(y)}
            parquet.write_table(pa.table(columns), folder / name / f"{split}.parquet")


def main() -> int:
    """Run the soak; the exit code is 1 where a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a new folder")
    parser.add_argument("--minutes", type=float, default=60.0, help="with kills")
    parser.add_argument("--calm", type=float, default=20.0, help="minutes after that, at most")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two kills")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # So that what was started is stopped.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    soak = Soak(options.folder.resolve(), options)
    threads = [
        threading.Thread(target=one, daemon=True)
        for one in (soak.kill_at_random, soak.sample_memory)
    ]
    try:
        soak.set_up()
        soak.begun = time.monotonic()
        for thread in threads:
            thread.start()
        soak.run_to_the_end()
    finally:
        soak.over.set()
        for thread in threads:
            if thread.is_alive():
                thread.join()
        soak.tear_down()
        soak._write()
    left = [one for one in find_processes(soak.folder) if one.role != "other"]
    seen = soak.seen()
    print(json.dumps({"left behind": [one.role for one in left], **seen}, indent=1))
    kept = seen["over"] and not seen["hangs"] and seen["rows in order"] and not left
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
