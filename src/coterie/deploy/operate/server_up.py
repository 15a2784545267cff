"""The server of a federation: SuperLink and nginx, kept up by one process until it is stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from rich.table import Table
from rich.text import Text

from coterie.deploy.keys import create_private
from coterie.deploy.operate.proxy import NGINX, find_nginx, write_card
from coterie.deploy.operate.server_folder import (
    DATABASE,
    ServerProcess,
    added_nodes,
    certificate_end,
    control_port,
    node_port,
    node_states,
    note_server,
    require_free,
    require_up,
    running_server,
)
from coterie.deploy.processes.flower_commands import (
    FEDERATION,
    environment,
    flower_home,
    run_flwr,
    superlink_command,
    write_connection,
)
from coterie.deploy.processes.process import identify, is_running, last_line, wait_for_port
from coterie.deploy.processes.service import Service, ServiceLog, stop_services
from coterie.deploy.settings import DeploymentSettings, load_deployment
from coterie.errors import ConfigError, InUseError, RemoteError
from coterie.terminal import console, duration, printable, say

READY_WITHIN = 90.0  # seconds that the processes have to listen
STOPPED_WITHIN = 30.0
_LOOK = 0.5  # seconds between two looks at the processes


def check_server(folder: Path) -> tuple[DeploymentSettings, str]:
    """What has to hold before a server starts; returns the settings and the path of nginx."""
    _, settings = load_deployment(folder)
    server = running_server(folder)
    if server is not None:
        what = f"the server is up already, got process {server.pid}"
        raise InUseError(f"{folder}: {what}; expected none (coterie server stop {folder})")
    nginx = find_nginx()
    if nginx is None:
        install = "`apt-get install nginx-light`"
        raise ConfigError(f"server: nginx is not installed: install it with {install}")
    for name in ("ca.crt", "server.pem"):
        certificate_end(folder / "keys" / name)
    if not (folder / "keys" / "server.key").is_file():
        raise ConfigError(f"{folder / 'keys' / 'server.key'}: no file; expected the server's key")
    require_free(control_port(settings), "deploy.toml: superlink")
    require_free(node_port(folder, settings), f"{NGINX}: listen")
    return settings, nginx


def keep_server_up(folder: Path, as_json: bool) -> None:
    """Start SuperLink and nginx, and start each again when it ends, until a signal comes."""
    folder = folder.resolve()
    settings, nginx = check_server(folder)
    control = control_port(settings)
    outer = node_port(folder, settings)
    home = flower_home(folder)
    write_connection(home, settings.superlink, folder / settings.root_certificates)
    write_card(folder, settings)
    logs = folder / "logs"
    # One thread: the server's sums come in the order of a simulation's.
    env = environment(home / "superlink", OMP_NUM_THREADS="1")
    # What clients send passes through it.
    create_private(folder / DATABASE)
    link = superlink_command(control, folder / "keys", folder / DATABASE)
    superlink = Service(link, env, ServiceLog(logs / "superlink.log", "superlink", as_json))
    words = [nginx, "-p", str(folder), "-c", NGINX, "-e", "stderr", "-g", "daemon off;"]
    proxy = Service(words, env, ServiceLog(logs / "nginx.log", "nginx", as_json))
    services = {control: superlink, outer: proxy}
    try:
        for port, service in services.items():
            service.start()
            assert service.process is not None, "it was started"
            wait_for_port(port, service.process, logs / f"{service.log.process}.log", READY_WITHIN)
        note_server(folder, _this_process(outer))
        say(f"up: nodes connect to port {outer}; runs are started at {settings.superlink}")
        _watch(list(services.values()))
    finally:
        # Noted first: whoever looks now must not take the server for one that is up.
        note_server(folder, None)
        stop_services(list(services.values()))


def _this_process(port: int) -> ServerProcess:
    me = identify(os.getpid())
    assert me is not None, "this process runs"
    return ServerProcess(me.pid, me.born, time.time(), port)


def _watch(services: list[Service]) -> None:
    """Start each process again when it ends; runs until a signal raises."""
    due: dict[int, float] = {}  # service -> when it is started again
    while True:
        time.sleep(_LOOK)
        for number, service in enumerate(services):
            code = service.code
            if code is None:
                continue
            if number not in due:
                pause = service.pause()
                due[number] = time.monotonic() + pause
                line = f"ended with {code}, and is started again in {pause:g} s"
                service.log.write(line)
                say(f"{service.log.process}: {line}")
            elif time.monotonic() >= due[number]:
                del due[number]
                service.start()


# --- in the background ----------------------------------------------------------------------------


def start_server(folder: Path, as_json: bool) -> ServerProcess:
    """Start the process that keeps a server up, in the background, and wait until it is ready."""
    folder = folder.resolve()
    # Here, too: what is wrong is an error of this command, with its exit code.
    check_server(folder)
    log = folder / "logs" / "server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "coterie", "server", "up", str(folder), "--foreground"]
    if as_json:
        words.append("--json-logs")
    with log.open("wb") as out:
        process = subprocess.Popen(
            words,
            env=environment(flower_home(folder)),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    end = time.monotonic() + 2 * READY_WITHIN
    while time.monotonic() < end:
        server = running_server(folder)
        if server is not None and server.pid == process.pid:
            return server
        if process.poll() is not None:
            what = f"ended with {process.returncode}, got {last_line(log)}"
            raise RemoteError(f"{log}: {what}; expected a server")
        time.sleep(0.2)
    process.terminate()
    raise RemoteError(f"{log}: not ready in time, got {last_line(log)}; expected a server")


def stop_server(folder: Path) -> bool:
    """Stop the server of a deployment; returns whether it was up."""
    server = running_server(folder)
    if server is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGTERM)
    end = time.monotonic() + STOPPED_WITHIN
    while is_running(server.id):
        if time.monotonic() > end:
            what = f"still there after {STOPPED_WITHIN:g} s, got process {server.pid}"
            raise RemoteError(f"{folder}: {what}; expected it to end")
        time.sleep(0.1)
    return True


# --- what it does ---------------------------------------------------------------------------------

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
