"""Federations of real processes, ``make test-flower``: minutes each, on two cores half an hour and
more in all."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.config.toml_text import read
from coterie.errors import CoterieError, QuorumError
from coterie.experiment import Experiment, check
from coterie.flower.keys import make_node_key, make_server_keys
from coterie.flower.operate.folder import init
from coterie.flower.operate.local import LocalFederation, local_federation
from coterie.flower.operate.submit import follow, submit
from coterie.flower.processes.flower_commands import environment, flower_home
from coterie.flower.processes.process import descendants, free_ports, start, stop
from coterie.flower.settings import DeploymentSettings, load_deployment
from coterie.runs.run import run_config
from tests.engines.test_flower import METHODS
from tests.flower.conftest import CONFIG
from tests.live.federations import ROUNDING, left_behind, relative_difference

pytestmark = pytest.mark.flower
LONG = 900.0  # seconds that a node may take on a machine that is busy otherwise
TRIALS = int(os.environ.get("COTERIE_TRIALS", "20"))


class Site:
    """A federation that is up, and runs on it."""

    def __init__(
        self, folder: Path, up: LocalFederation, config: Experiment, settings: DeploymentSettings
    ) -> None:
        self.folder = folder
        self.up = up
        self.config = config
        self.settings = settings
        self.count = 0

    def with_algorithm(self, rounds: int = 5, **algorithm: Any) -> Experiment:
        """The configuration with another method."""
        tables = read(self.folder / "run.toml") | {"algorithm": algorithm}
        tables["train"] |= {"rounds": rounds, "evaluate_every": rounds}
        return check(tables)

    def run(
        self,
        config: Experiment,
        on_round: Callable[[Mapping[str, Any]], None] = lambda row: None,
        out: Path | None = None,
        resume: bool = False,
        **settings: Any,
    ) -> Path:
        """Submit a run, follow it to its end; returns its folder."""
        self.count += 1
        out = out or self.folder / "runs" / f"run-{self.count}"
        known = replace(self.settings, **settings)
        number = submit(self.folder, config, known, str(out), resume)
        follow(flower_home(self.folder), config, number, on_round)
        return out

    def simulated(self, config: Experiment, name: str) -> Path:
        """The same run on the serial engine."""
        out = self.folder / "simulated" / name
        run_config(check(config.resolved() | {"engine": {"name": "serial"}}), out)
        return out


@contextmanager
def site(
    folder: Path, clients: int, up: int | None = None, settle: float = 0.0, **settings: Any
) -> Iterator[Site]:
    folder.mkdir(parents=True, exist_ok=True)
    text = CONFIG.replace("clients = 3", f"clients = {clients}").replace(
        "_per_round = 3", f"_per_round = {clients}"
    )
    (folder / "c.toml").write_text(text)
    init(folder / "d", folder / "c.toml")
    config, known = load_deployment(folder / "d")
    with local_federation(folder / "d", up or clients) as local:
        waits = {"start_clients": up or clients, "longest_wait": LONG, "reply_wait": LONG}
        known = replace(local.settings(known), **waits | settings)
        yield Site(folder / "d", local, config, known)
    end = time.monotonic() + settle
    while left_behind(folder) and time.monotonic() < end:
        time.sleep(1.0)
    assert not left_behind(folder)


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("six"), 6) as up:
        yield up


@pytest.mark.parametrize("name", METHODS)
def test_six_nodes_five_rounds_are_the_serial_engine(name: str, six: Site) -> None:
    config = six.with_algorithm(name=name, **METHODS[name])
    begun = time.monotonic()
    out = six.run(config)
    gap = relative_difference(out, six.simulated(config, name))
    print(f"{name}: {time.monotonic() - begun:.0f} s, largest difference {gap:g}")
    assert gap <= ROUNDING
    assert not any(row["refused"] for row in rows_of(out))


# --- who is let in --------------------------------------------------------------------------------


def test_only_invited_nodes_are_admitted(tmp_path: Path) -> None:
    # A node that is refused ends by itself, and what Flower started for it some seconds later.
    with site(tmp_path, 3, up=1, settle=60.0, min_clients=1) as one:
        folder = one.folder
        address = one.up.address
        make_server_keys(tmp_path / "other")
        make_node_key(folder / "keys", "stranger")
        good = str(folder / "keys" / "client-00.key")
        ca = str(folder / "keys" / "ca.crt")
        bad = str(folder / "keys" / "stranger.key")
        attempts = {
            "no certificate": ["--auth-supernode-private-key", bad],
            "wrong CA": [
                "--root-certificates",
                str(tmp_path / "other" / "ca.crt"),
                "--auth-supernode-private-key",
                good,
            ],
            "unregistered key": ["--root-certificates", ca, "--auth-supernode-private-key", bad],
            "no key": ["--root-certificates", ca],
            "plain text": ["--insecure"],
        }
        nodes = [
            start(
                [
                    "flower-supernode",
                    "--superlink",
                    address,
                    *how,
                    "--host",
                    "127.0.0.1",
                    "--port",
                    str(free_ports(1)[0]),
                    "--node-config",
                    f'client="client-0{i}" share={i % 3}',
                ],
                environment(flower_home(folder) / f"bad-{i}"),
                folder / "logs" / f"bad-{i}.log",
            )
            for i, how in enumerate(attempts.values(), 1)
        ]
        try:
            time.sleep(30.0)
            out = one.run(one.with_algorithm(1, name="fedavg"))
            admitted = (
                (folder / "logs" / "superlink.log")
                .read_text()
                .count("[Fleet.ActivateNode] Activated")
            )
        finally:
            stop(nodes)
        print(f"admitted: {admitted} of 1 invited and {len(attempts)} others")
        assert admitted == 1
        assert json.loads((out / "nodes.json").read_text())["clients"] == ["client-00"]


# --- newcomers and drift --------------------------------------------------------------------------


def test_a_newcomer_in_round_3_and_a_swap_in_round_4(tmp_path: Path) -> None:
    with site(tmp_path, 4, up=3, min_clients=3) as four:
        name = "client-03"
        make_node_key(four.folder / "keys", name)
        loader = four.folder / "client.py"
        body = loader.read_text()
        marked = body.replace(
            "    return trial_share(",
            f"    import os\n    if os.path.exists({str(tmp_path / 'swap')!r}) and "
            "context.node_config['share'] == 0:\n        return trial_share(TRIAL, 1)\n"
            "    return trial_share(",
        )
        assert marked != body
        loader.write_text(marked)
        four.up.register([name])

        def act(row: Mapping[str, Any]) -> None:
            if row["round"] == 1:
                four.up.start_node(name, 3)
            if row["round"] == 3:
                (tmp_path / "swap").touch()

        out = four.run(four.with_algorithm(8, name="flexcfl", groups=2, alpha=1), act)
        rows = rows_of(out)
        groups = dict(
            line.split(",")[:2] for line in (out / "groups.csv").read_text().splitlines()[1:]
        )
        joined = [
            row["round"]
            for row in rows
            if {"kind": "joined", "clients": [name]} in row["attendance"]
        ]
        print(
            "joined before round", joined, "migrations", [row["migrations"] for row in rows], groups
        )
        assert joined
        assert groups[name] == groups["client-01"]
        assert sum(row["migrations"] for row in rows) == 1
        assert groups["client-00"] == groups["client-01"]


# --- kills ----------------------------------------------------------------------------------------


def kill_all(nodes: Iterable[subprocess.Popen[bytes]]) -> None:
    """SIGKILL for nodes and all that they started: none takes leave of the SuperLink."""
    for node in [*nodes]:
        processes = [*descendants(node.pid), node]
        for process in processes:
            process.kill()
        node.wait()


VICTIMS = ("a node", "all nodes", "the ServerApp", "the SuperLink")


@pytest.mark.parametrize("trial", range(TRIALS))
def test_a_run_ends_whoever_is_killed_and_can_be_resumed(trial: int, tmp_path: Path) -> None:
    """SIGKILL at a random moment: the run goes on, or stops with its exit code inside the stated
    wait; then resume."""
    draw = random.Random(trial)
    victim = VICTIMS[trial % 4]
    phase = draw.choice(["cold start", "training", "between rounds"])
    # where no node is killed all three take part from the start, as in the simulation that the end
    # is compared with
    waits = {"longest_wait": 60.0, "reply_wait": 180.0, "min_clients": 2 if "node" in victim else 3}
    # the last of many rounds is far away when a kill falls into one of the first
    rounds = 8 if phase == "training" else 3
    killed: list[float] = []
    with site(tmp_path, 3) as three:
        config = three.with_algorithm(rounds, name="fedgroup", groups=2, alpha=1)

        def kill() -> None:
            link = three.up.superlink
            assert link is not None
            match victim:
                case "a node":
                    kill_all([three.up.nodes.pop("client-02")])
                case "all nodes":
                    kill_all(three.up.nodes.values())
                case "the SuperLink":
                    stop([link], 0.0)
                case _:
                    for child in descendants(link.pid):
                        if any("flwr-serverapp" in word for word in child.cmdline()):
                            child.kill()
            killed.append(time.monotonic())

        def on_round(row: Mapping[str, Any]) -> None:
            if row["round"] == 0 and phase != "cold start":
                # a stated number of seconds may be longer than the whole run
                share = 0.0 if phase == "between rounds" else draw.uniform(0.1, 0.9)
                wait = share * row["seconds"]["total"]
                threading.Timer(wait, kill).start()

        if phase == "cold start":
            threading.Timer(draw.uniform(25.0, 60.0), kill).start()
        out = tmp_path / "d" / "runs" / "killed"
        error = None
        try:
            three.run(config, on_round, out, **waits)
        except CoterieError as caught:
            error = caught
        lasted = time.monotonic() - killed[0]
        code = 0 if error is None else error.code
        print(
            f"trial {trial}: {victim} in {phase}: code {code} after {lasted:.0f} s: {error or 'went on'}"
        )
        assert code in {"a node": (0,), "all nodes": (5,)}.get(victim, (7,))
        stop_after = {"a node": LONG, "all nodes": 60 + 2 * 180 + 60}.get(victim, 300.0)
        assert lasted < stop_after
    if code:
        with local_federation(three.folder, 3) as again:
            three.up = again
            three.settings = replace(three.settings, superlink=again.control)
            three.run(config, out=out, resume=True)
        assert not left_behind(tmp_path)
    assert len(rows_of(out)) == rounds
    if code:
        assert isinstance(error, QuorumError) == (victim == "all nodes")
        gap = relative_difference(out, three.simulated(config, "whole"))
        print(
            f"trial {trial}: resumed, largest difference from a run that nobody disturbed {gap:g}"
        )
        assert gap <= ROUNDING or victim == "all nodes"  # its last round may have had fewer replies


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_everything_down(number: int, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CONFIG)
    init(tmp_path / "d", tmp_path / "c.toml")
    line = [
        sys.executable,
        "-c",
        "from coterie.cli.main import main; main()",
        "deploy",
        "local",
        str(tmp_path / "d"),
    ]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for said in process.stdout:
        if "in " in said and "fedavg" in said:  # the rounds begin
            break
    process.send_signal(number)
    process.communicate(timeout=120.0)
    assert process.returncode == 128 + number
    assert not left_behind(tmp_path)
