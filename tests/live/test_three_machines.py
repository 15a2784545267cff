"""docs/deploy.md as its readers follow it: a server and two sites, each with a network of its own.

No command of Flower's is used.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.deploy.proxy import find_nginx
from tests.live.federations import left_behind
from tests.live.machines import Machine, can_make_machines, stop_all, three_machines, wait_for

pytestmark = [
    pytest.mark.flower,
    pytest.mark.skipif(find_nginx() is None, reason="nginx is not installed"),
    pytest.mark.skipif(not can_make_machines(), reason="no right to make network namespaces"),
]
CONFIG = """
[data]
source = "nodes"
shape = [4]
classes = ["healthy", "ill"]

[data.partition]
kind = "natural"

[model]
name = "mclr"

[train]
rounds = 2
clients_per_round = 2

[algorithm]
name = "fedavg"
"""
CLIENTS = {"a": "hospital-3", "b": "hospital-4"}
FILES = {"a": "patients.parquet", "b": "patients.csv"}


def write_patients(file: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(100, 4))
    table = pd.DataFrame(x, columns=["age", "weight", "pulse", "sugar"])
    ill = x[:, 0] > 0
    # One site has numbers in a parquet file, the other names in a CSV file.
    if file.suffix == ".csv":
        table["label"] = np.where(ill, "ill", "healthy")
        table.to_csv(file, index=False)
    else:
        table["label"] = ill.astype(int)
        table.to_parquet(file)


def joining(site: str) -> list[str]:
    number = {"a": 1, "b": 2}[site]
    name = CLIENTS[site]
    address = f"10.203.{number}.1:18001"
    return ["--server", address, "--ca", "ca.crt", "--name", name, "--data", FILES[site]]


def test_a_federation_of_three_machines(tmp_path: Path) -> None:
    with three_machines(tmp_path) as (server, sites):
        processes: list[subprocess.Popen[bytes]] = []
        try:
            _set_up(server, sites)
            _join(server, sites, processes)
            _run(server, sites)
            _restart(server, sites)
        finally:
            stop_all(processes)
            server.run("server", "stop", "DIR")
        for site, machine in sites.items():
            log = (machine.folder / "join.log").read_text()
            assert "ended with" not in log, site
    assert not left_behind(tmp_path)


def _set_up(server: Machine, sites: dict[str, Machine]) -> None:
    (server.folder / "run.toml").write_text(CONFIG)
    hosts = ("--host", "10.203.1.1", "--host", "10.203.2.1")
    server.ok("deploy", "init", "DIR", "--config", "run.toml", *hosts)
    assert "nodes connect to port 18001" in server.ok("server", "up", "DIR")
    for seed, (site, machine) in enumerate(sites.items()):
        write_patients(machine.folder / FILES[site], seed)
        # The only file that the operator sends.
        shutil.copy(server.folder / "DIR" / "keys" / "ca.crt", machine.folder)


def _join(
    server: Machine, sites: dict[str, Machine], processes: list[subprocess.Popen[bytes]]
) -> None:
    checked = sites["a"].ok("node", "check", *joining("a"))
    assert "80 rows to train on and 20 to test on, inputs [4]" in checked
    assert not (sites["a"].folder / ".coterie").exists()
    # The SuperLink itself cannot be reached from a site.
    closed = [word.replace("18001", "18101") for word in joining("a")]
    done = sites["a"].run("node", "check", *closed)
    assert done.returncode == 7
    assert "no connection, got" in done.stderr
    for site, machine in sites.items():
        processes.append(machine.start("join.log", "node", "join", *joining(site)))
    for site, machine in sites.items():
        wait_for(machine.folder / "join.log", "not added yet: send")
        key = machine.folder / ".coterie" / CLIENTS[site] / f"{CLIENTS[site]}.pub"
        private = key.with_suffix(".key")
        assert private.stat().st_mode & 0o777 == 0o600
        shutil.copy(key, server.folder)
    server.ok("server", "add", "DIR", *(f"{name}.pub" for name in CLIENTS.values()))
    for site, machine in sites.items():
        wait_for(machine.folder / "join.log", f"joined as {CLIENTS[site]}")
    status = server.ok("server", "status", "DIR")
    assert "nodes: 2 online, 2 added of at most 2" in status


def _run(server: Machine, sites: dict[str, Machine]) -> None:
    # A site that wonders whether the server is closed to strangers.
    copy = sites["a"].folder / "DIR"
    shutil.copytree(server.folder / "DIR", copy, ignore=shutil.ignore_patterns(".*", "*.key"))
    checked = sites["a"].ok("deploy", "check", "DIR", "--superlink", "10.203.1.1:18001")
    assert checked.count("closed: ") == 5
    seen = server.ok("deploy", "run", "DIR", timeout=600.0)
    assert "round 2/2" in seen
    (run,) = (server.folder / "DIR" / "runs").iterdir()
    assert json.loads((run / "nodes.json").read_text())["clients"] == list(CLIENTS.values())
    rows = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert not any(row["refused"] for row in rows)
    status = server.ok("deploy", "status", "DIR")
    assert "All 2 rounds are over" in status
    assert all(name in status for name in CLIENTS.values())


def _restart(server: Machine, sites: dict[str, Machine]) -> None:
    """The nodes wait for a server that comes back, and it still knows them."""
    assert "stopped" in server.ok("server", "stop", "DIR")
    assert server.run("server", "status", "DIR").returncode == 7
    server.ok("server", "up", "DIR")
    server.ok("deploy", "run", "DIR", timeout=600.0)
    assert len(list((server.folder / "DIR" / "runs").iterdir())) == 2
