"""A registered node that sends what it should not, in a federation of real processes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.flower.operate.local import LocalFederation, local_federation
from coterie.flower.operate.submit import follow, submit
from coterie.flower.processes.flower_commands import environment, flower_home
from coterie.flower.processes.process import descendants, free_ports, start
from coterie.flower.settings import load_deployment
from tests.flower.conftest import write_deployment
from tests.live.federations import left_behind

pytestmark = pytest.mark.flower
HOSTILE = "client-02"
LONG = 600.0
# The operator of a node writes its `client.py`. This one changes what the app's replies hold.
LOADER = """
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.supercore.inflatable.inflatable_object import add_header_to_object_body
from coterie.flower.node.data_sources import load_function
from coterie.engines.flower import messages
"""
SPOILS = {
    "garbage": """
        def record(values):
            made = ConfigRecord(values)
            if "round" in values:
                made.deflate = lambda: add_header_to_object_body(b"\\xff" * 9, made)
            return made

        messages.ConfigRecord = record
    """,
    "600 MB": """
        def record(fields):
            return ArrayRecord({"delta": Array(np.random.default_rng(0).random(75_000_000))})

        messages.ArrayRecord = record
    """,
    "3,000 fields": """
        def record(fields):
            return ArrayRecord({f"field {i}": Array(np.full(1, i)) for i in range(3000)})

        messages.ArrayRecord = record
    """,
}


def start_hostile(up: LocalFederation, spoil: str) -> None:
    """A node with a registered key that sends spoiled replies."""
    loader = up.folder / "hostile.py"
    honest = str(up.folder / "client.py")
    loader.write_text(f"{LOADER}{dedent(spoil)}\nload_client = load_function({honest!r})\n")
    line = [
        *("flower-supernode", "--superlink", up.address, "--host", "127.0.0.1"),
        *("--root-certificates", str(up.keys / "ca.crt")),
        *("--auth-supernode-private-key", str(up.keys / f"{HOSTILE}.key")),
        *("--port", str(free_ports(1)[0])),
        *("--node-config", f'client="{HOSTILE}" share=2 loader="{loader}"'),
    ]
    # What spoils its replies has to be in the process that sends them.
    env = environment(up.home / f"node-{HOSTILE}", OMP_NUM_THREADS="1", COTERIE_WORKER="0")
    up.nodes[HOSTILE] = start(line, env, up.folder / "logs" / f"{HOSTILE}.log")


def peak_of_server_app(up: LocalFederation) -> int:
    """The most memory that the ServerApp had so far, in MB."""
    assert up.superlink is not None
    for process in descendants(up.superlink.pid):
        if any("flwr-serverapp" in word for word in process.cmdline()):
            status = Path(f"/proc/{process.pid}/status").read_text()
            found = re.search(r"VmHWM:\s+(\d+) kB", status)
            return int(found[1]) // 1024 if found else 0
    return 0


@pytest.mark.parametrize("how", SPOILS)
def test_a_registered_node_cannot_end_a_run(how: str, tmp_path: Path) -> None:
    folder = write_deployment(tmp_path)
    config, known = load_deployment(folder, ["train.rounds=2"])
    peaks = []
    with local_federation(folder, 2) as up:
        up.register([HOSTILE])
        start_hostile(up, SPOILS[how])

        def on_round(row: Mapping[str, Any]) -> None:
            peaks.append(peak_of_server_app(up))

        settings = replace(up.settings(known), longest_wait=LONG, reply_wait=LONG)
        out = folder / "runs" / "hostile"
        run = submit(folder, config, settings, str(out), resume=False)
        follow(flower_home(folder), config, run, on_round)
    rows = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    print(f"{how}: {[row['refused'] for row in rows]}, ServerApp at most {max(peaks)} MB")
    # In both rounds; in the last one, its evaluation, too.
    assert [row["refused"] for row in rows] == [{"malformed": 1}, {"malformed": 2}]
    assert max(peaks) < 800
    assert not left_behind(tmp_path)
