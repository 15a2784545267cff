"""docs/deploy.md as its readers follow it: a server and two sites, each with a network of its own.

The commands are read from the page. One site has a CSV file, the other a PostgreSQL server, or a
parquet file where there is none. No command of Flower's is used.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import textwrap
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.flower.operate.proxy import find_nginx
from tests.live.federations import left_behind
from tests.live.machines import Machine, can_make_machines, stop_all, three_machines, wait_for
from tests.live.postgres import find_server, postgres

pytestmark = [
    pytest.mark.flower,
    pytest.mark.skipif(find_nginx() is None, reason="nginx is not installed"),
    pytest.mark.skipif(not can_make_machines(), reason="no right to make network namespaces"),
]
BACKUP = Path(__file__).resolve().parents[2] / "operations" / "coterie-backup"
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
STEPS = PAGE.partition("## Three machines")[2].partition("### Options of a node")[0]
CLIENTS = {"a": "hospital-3", "b": "hospital-4"}
WITH_DATABASE = find_server() is not None
DATABASE = "postgresql+psycopg://reader@db/clinic"  # the page has another host


def printed(begin: str, number: int = 0) -> list[str]:
    """The words of a command of the page, after ``coterie``.

    Args:
        begin: its first words.
        number: of the commands that begin so, from 0.
    """
    lines = STEPS.replace("\\\n", " ").splitlines()
    found = [line.partition(" #")[0] for line in lines if line.startswith(f"    coterie {begin}")]
    assert found, f"the page has no `coterie {begin}`"
    return shlex.split(found[number])[1:]


def configuration() -> str:
    """The first block of the first step, with fewer rounds."""
    block = STEPS.partition("[data]")[2].partition("Then:")[0]
    text = textwrap.dedent(f"    [data]{block}")
    assert "rounds = 20" in text
    return text.replace("rounds = 20", "rounds = 2")


def patients(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(100, 4)).round(4)
    table = pd.DataFrame(x, columns=["age", "weight", "pulse", "sugar"])
    # One site has names of classes, the other numbers.
    ill = x[:, 0] > 0
    if seed == 0:
        return table.assign(label=np.where(ill, "ill", "healthy"))
    return table.assign(outcome=ill.astype(int))


def statements() -> list[str]:
    """The patients of the second site as SQL."""
    rows = [f"({at}, {', '.join(map(str, row))})" for at, row in enumerate(patients(1).to_numpy())]
    return [
        "CREATE TABLE patients (id integer PRIMARY KEY, age real, weight real, pulse real, "
        "sugar real, outcome integer)",
        f"INSERT INTO patients VALUES {', '.join(rows)}",
    ]


def joining(site: str) -> list[str]:
    """The options of `coterie node join`, as the page has them but for the data of this site."""
    words = printed("node join", ["a", "b"].index(site))[2:]
    assert words[words.index("--name") + 1] == CLIENTS[site]
    data = words.index("--data") + 1
    if site == "a":
        words[data] = "patients.csv"
        return words
    assert words[data].startswith("postgresql+psycopg://reader@")
    words[data] = DATABASE
    if not WITH_DATABASE:
        words[data] = "patients.parquet"
        query = words.index("--query")
        del words[query : query + 2]
    return words


def test_a_federation_of_three_machines(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server, sites = stack.enter_context(three_machines(tmp_path))
        if WITH_DATABASE:
            stack.enter_context(postgres(sites["b"], statements()))
        processes: list[subprocess.Popen[bytes]] = []
        try:
            processes.append(_set_up(server, sites))
            _join(server, sites, processes)
            _run(server, sites)
            _restart(server, processes)
        finally:
            stop_all(processes)
        for site, machine in sites.items():
            log = (machine.folder / "join.log").read_text()
            assert "ended with" not in log, site
            for done in ("round 1: trained on 80 samples", "round 2: scored the model on 20 test"):
                assert done in log, (site, log)
    assert not left_behind(tmp_path)


def _set_up(server: Machine, sites: dict[str, Machine]) -> subprocess.Popen[bytes]:
    (server.folder / "run.toml").write_text(configuration())
    server.ok(*printed("deploy init"))
    process = server.start("up.log", *printed("server up"))
    wait_for(server.folder / "up.log", "up: nodes connect to port 18001")
    patients(0).to_csv(sites["a"].folder / "patients.csv", index=False)
    patients(1).to_parquet(sites["b"].folder / "patients.parquet")
    for machine in sites.values():
        # The only file that the operator sends.
        shutil.copy(server.folder / "DIR" / "keys" / "ca.crt", machine.folder)
    return process


def _join(
    server: Machine, sites: dict[str, Machine], processes: list[subprocess.Popen[bytes]]
) -> None:
    for site, machine in sites.items():
        checked = machine.ok("node", "check", *joining(site))
        assert "80 rows to train on and 20 to test on, inputs [4]" in checked
        assert not (machine.folder / ".coterie").exists()
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
        assert machine.run("node", "status", CLIENTS[site]).returncode == 7
    server.ok(*printed("server add"))
    for site, machine in sites.items():
        wait_for(machine.folder / "join.log", f"joined as {CLIENTS[site]}")
        assert "connected for" in machine.ok("node", "status", CLIENTS[site])
    server.ok("server", "status", "DIR", "--quick")
    status = server.ok(*printed("server status"))
    assert "nodes: 2 added" in status
    assert "nodes: 2 online" in status
    assert "nodes: 2 online" in status


def _run(server: Machine, sites: dict[str, Machine]) -> None:
    # A site that wonders whether the server is closed to strangers.
    copy = sites["a"].folder / "DIR"
    shutil.copytree(server.folder / "DIR", copy, ignore=shutil.ignore_patterns(".*", "*.key"))
    checked = sites["a"].ok(*printed("deploy check"))
    assert checked.count("closed: ") == 5
    seen = server.ok(*printed("deploy run"), timeout=600.0)
    assert "round 2/2" in seen
    (run,) = (server.folder / "DIR" / "runs").iterdir()
    assert json.loads((run / "nodes.json").read_text())["clients"] == list(CLIENTS.values())
    rows = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert not any(row["refused"] for row in rows)
    status = server.ok(*printed("deploy status"))
    assert "All 2 rounds are complete" in status
    assert all(name in status for name in CLIENTS.values())


def _restart(server: Machine, processes: list[subprocess.Popen[bytes]]) -> None:
    """The nodes wait for a server that comes back, from its backup: it still knows them."""
    folder = server.folder / "DIR"
    script = [str(BACKUP), "DIR", "backup.tar"]
    subprocess.run(script, cwd=server.folder, check=True)
    stop_all(processes[:1])
    assert processes[0].returncode == 143
    assert server.run(*printed("server status")).returncode == 7
    (run,) = (folder / "runs").iterdir()
    before = (run / "rounds.jsonl").read_bytes()
    shutil.rmtree(folder)
    folder.mkdir()
    subprocess.run(["tar", "-xpf", "backup.tar", "-C", "DIR"], cwd=server.folder, check=True)
    processes[0] = server.start("again.log", *printed("server up"))
    wait_for(server.folder / "again.log", "up: nodes connect to port 18001")
    assert (run / "rounds.jsonl").read_bytes() == before
    server.ok("deploy", "run", "DIR", "--set", "train.rounds=1", timeout=600.0)
    assert len(list((folder / "runs").iterdir())) == 2
