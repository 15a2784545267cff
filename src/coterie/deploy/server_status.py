"""The state of a server in a few lines: its processes, its certificate, its nodes, its runs."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from rich.table import Table
from rich.text import Text

from coterie.deploy.flower_commands import FEDERATION, flower_home, run_flwr
from coterie.deploy.server_folder import (
    added_nodes,
    certificate_end,
    require_up,
    running_server,
)
from coterie.deploy.server_nodes import node_states
from coterie.deploy.settings import load_deployment
from coterie.errors import RemoteError
from coterie.terminal import console, duration, printable, say

SHOWN_RUNS = 5
ANSWER_WITHIN = 5.0  # seconds


def require_listening(folder: Path) -> None:
    """Say that a server is up; nothing but its port is asked."""
    server = require_up(folder)
    try:
        socket.create_connection(("127.0.0.1", server.node_port), ANSWER_WITHIN).close()
    except OSError as error:
        what = f"no connection to port {server.node_port}, got {error.strerror or error}"
        raise RemoteError(f"{folder}: {what}; expected nginx (see logs/nginx.log)") from None
    say(f"up for {duration(time.time() - server.since)}")


def show_status(folder: Path) -> None:
    """Print the state of a server."""
    _, settings = load_deployment(folder)
    end = certificate_end(folder / "keys" / "server.pem")
    say(f"certificate: valid until {end:%Y-%m-%d}")
    if running_server(folder) is None:
        say(f"nodes: {len(added_nodes(folder))} added of at most {settings.clients}")
    server = require_up(folder)
    up = duration(time.time() - server.since)
    say(f"server: up for {up} (process {server.pid}); nodes connect to port {server.node_port}")
    states = node_states(folder)
    online = sum(state.status == "online" for state in states)
    say(f"nodes: {online} online, {len(states)} added of at most {settings.clients}")
    if states:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for heading in ("name", "state", "since", "key"):
            table.add_column(heading)
        for state in states:
            cells = (printable(state.name), state.status, state.since, state.key)
            table.add_row(*map(Text, cells))
        console().print(table)
    runs = run_flwr(flower_home(folder), ["list", FEDERATION]).get("runs") or []
    for run in runs[:SHOWN_RUNS]:
        say(f"run {run.get('run-id', '')}: {run.get('status', '')}")
    if not runs:
        say(f"runs: none so far (coterie deploy run {folder})")
