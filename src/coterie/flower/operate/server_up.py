"""The server of a federation: SuperLink and nginx, up as long as the command that started them."""

from __future__ import annotations

import time
from pathlib import Path

from coterie.errors import ConfigError, RemoteError
from coterie.files import MALFORMED, read_json
from coterie.flower.keys import certificate_end, create_private
from coterie.flower.operate.proxy import NGINX, find_nginx, nginx_command, write_card
from coterie.flower.operate.server_folder import (
    DATABASE,
    added_nodes,
    control_port,
    node_port,
    require_free,
    require_up,
)
from coterie.flower.operate.submit import last_run
from coterie.flower.processes.flower_commands import (
    FEDERATION,
    environment,
    flower_home,
    run_flwr,
    superlink_command,
    write_connection,
)
from coterie.flower.processes.process import Popen, listens, refuse_end, start, stop, wait_for_port
from coterie.flower.server.live import LIVE
from coterie.flower.settings import DeploymentSettings, load_deployment
from coterie.terminal import columns_table, console, printable, say, warn

_LOOK = 0.5  # seconds between two looks at the processes


def check_server(folder: Path) -> tuple[DeploymentSettings, str]:
    """What has to hold before a server starts; returns the settings and the path of nginx."""
    _, settings = load_deployment(folder)
    nginx = find_nginx()
    if nginx is None:
        advice = "install it with `apt-get install nginx-light`"
        raise ConfigError("not-installed", "server", "nginx is not installed", do=advice)
    for name in ("ca.crt", "server.pem"):
        certificate_end(folder / "keys" / name)
    if not (folder / "keys" / "server.key").is_file():
        expected = "the server's key"
        raise ConfigError("not-found", folder / "keys" / "server.key", "no file", allowed=expected)
    require_free(control_port(settings), "deploy.toml", "superlink", folder)
    require_free(node_port(folder, settings), NGINX, "listen", folder)
    # What earlier versions wrote.
    if "$request_uri" not in (folder / NGINX).read_text(encoding="utf-8"):
        advice = "replace it with the one that `coterie deploy init` writes into a new folder"
        warn(f"{NGINX}: also forwards paths that contain dots or escapes; {advice}")
    return settings, nginx


def serve_until_end(folder: Path) -> None:
    """Run SuperLink and nginx until a signal comes, or one of them ends, which ends the other.
    Their output is that of this command."""
    folder = folder.resolve()
    settings, nginx = check_server(folder)
    try:
        _serve(folder, settings, nginx)
    except (SystemExit, KeyboardInterrupt):
        say(f"stopped{_advice(folder, settings)}")
        raise


def _serve(folder: Path, settings: DeploymentSettings, nginx: str) -> None:
    control = control_port(settings)
    outer = node_port(folder, settings)
    home = flower_home(folder)
    write_connection(home, settings.superlink, folder / settings.root_certificates)
    write_card(folder, settings)
    # What clients send passes through it.
    create_private(folder / DATABASE)
    # One thread: the server's sums come in the order of a simulation's.
    env = environment(home / "superlink", OMP_NUM_THREADS="1")
    link = superlink_command(control, folder / "keys", folder / DATABASE)
    commands = {
        "the SuperLink": (link, control),
        "nginx": (nginx_command(nginx, folder), outer),
    }
    started: dict[str, Popen] = {}
    try:
        for name, (words, port) in commands.items():
            started[name] = start(words, env, None)
            wait_for_port(port, name, started[name], None)
        say(f"up: nodes connect to port {outer}; runs are started at {settings.superlink}")
        # A server that comes up again has its nodes already.
        if not added_nodes(folder):
            say(f"next: coterie server add {folder} NAME.pub, once for each site's key file")
        while True:
            for name, process in started.items():
                refuse_end(name, process, None)
            time.sleep(_LOOK)
    finally:
        stop(list(started.values()))


def _advice(folder: Path, settings: DeploymentSettings) -> str:
    """What to do about the last run if it is not complete, as far as its folder says."""
    try:
        doing = read_json(Path(last_run(folder, settings.folder)) / LIVE)["doing"]
    except (ConfigError, *MALFORMED, OSError):
        return ""
    if doing in ("done", "failed"):
        return ""
    return f"; the last run is not complete: `coterie deploy run {folder} --resume` continues it"


# --- what it does ---------------------------------------------------------------------------------

SHOWN_RUNS = 5


def require_listening(folder: Path) -> None:
    """Say that nodes can connect to a server; nothing but its ports is asked."""
    _, settings = load_deployment(folder)
    require_up(folder, settings)
    port = node_port(folder, settings)
    if not listens(port):
        what = f"nginx is down: no process listens on port {port}"
        raise RemoteError("unreachable", folder, what)
    say(f"up: nodes connect to port {port}")


def show_status(folder: Path) -> None:
    """Print the state of a server."""
    _, settings = load_deployment(folder)
    end = certificate_end(folder / "keys" / "server.pem")
    say(f"certificate: valid until {end:%Y-%m-%d}")
    added = len(added_nodes(folder))
    say(f"nodes: {added} added (clients in deploy.toml: {settings.clients})")
    require_listening(folder)
    _show_nodes(folder)
    runs = run_flwr(flower_home(folder), ["list", FEDERATION]).get("runs") or []
    for run in runs[:SHOWN_RUNS]:
        say(f"run {run.get('run-id', '')}: {run.get('status', '')}")
    if not runs:
        say(f"runs: none so far (coterie deploy run {folder})")


def _show_nodes(folder: Path) -> None:
    """Print the nodes that the SuperLink lets in, by the names of their clients."""
    answer = run_flwr(flower_home(folder), ["supernode", "list", FEDERATION])
    nodes = [node for node in answer.get("nodes") or [] if node.get("status") != "unregistered"]
    online = sum(node.get("status") == "online" for node in nodes)
    say(f"nodes: {online} online")
    if not nodes:
        return
    names = {node.node: (name, node.key) for name, node in added_nodes(folder).items()}
    rows = []
    for node in nodes:
        number = str(node.get("node-id", ""))
        # A node that was added by other means has no name here.
        name, key = names.get(number, (f"node {number}", ""))
        state = str(node.get("status", ""))
        since = str(node.get(f"{'online' if state == 'online' else 'offline'}-at", ""))
        rows.append((printable(name), state, "" if since == "N/A" else since, key))
    console().print(columns_table(("name", "state", "since", "key"), sorted(rows)))
