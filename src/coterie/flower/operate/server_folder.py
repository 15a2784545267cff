"""The folder of a deployment as the server's operator uses it: what has to hold before the server
starts, and which nodes are added, removed and listed."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from coterie.errors import ConfigError, InUseError, RemoteError
from coterie.files import read_json
from coterie.flower.keys import check_name, key_fingerprint, name_in_key, replace_private
from coterie.flower.operate.proxy import NGINX
from coterie.flower.processes.flower_commands import FEDERATION, flower_home, run_flwr
from coterie.flower.processes.process import listens
from coterie.flower.settings import DeploymentSettings, load_deployment

NODES_ADDED = "nodes-added.json"
DATABASE = "superlink.db"  # of the SuperLink: nodes, runs, and messages that wait
_LOOPBACK = ("127.0.0.1", "localhost")
_NEW_KEY = "the site makes a new key by running `coterie node join` with an empty --folder"


@dataclass(frozen=True, slots=True)
class AddedNode:
    """A node whose key the operator registered."""

    node: str  # Flower's number of it
    key: str  # `key_fingerprint` of its public key


def require_up(folder: Path, settings: DeploymentSettings) -> None:
    """Refuse to go on where the SuperLink of a deployment is down."""
    if not listens(control_port(settings)):
        start = f"`coterie server up {folder}`"
        raise RemoteError("unreachable", folder, "the server is down", do=f"start it with {start}")


def nodes_file(folder: Path) -> Path:
    """The list of the nodes that were added; there is none before the first."""
    return flower_home(folder) / NODES_ADDED


def added_nodes(folder: Path) -> dict[str, AddedNode]:
    """The nodes that were added, by the names of their clients."""
    file = nodes_file(folder)
    if not file.exists():
        return {}
    try:
        return {str(name): AddedNode(**one) for name, one in read_json(file).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        advice = "restore it from a backup, or remove it and add all nodes again"
        raise ConfigError("damaged", file, do=advice) from None


def note_nodes(folder: Path, nodes: dict[str, AddedNode]) -> None:
    tables = {name: asdict(one) for name, one in sorted(nodes.items())}
    replace_private(nodes_file(folder), json.dumps(tables, indent=1).encode())


# --- before the server starts ---------------------------------------------------------------------


def node_port(folder: Path, settings: DeploymentSettings) -> int:
    """The port of nginx, by its configuration, which has to lead to the SuperLink."""
    file = folder / NGINX
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        raise ConfigError("not-found", file, do="`coterie deploy init` writes it") from None
    text = re.sub(r"#.*", "", text)
    upstream = re.search(r"\bserver\s+([^\s;{]+)\s*;", text)
    if upstream is None:
        advice = f"add an upstream with server {settings.superlink};"
        raise ConfigError("missing", file, "no SuperLink", do=advice)
    if upstream[1] != settings.superlink:
        got = upstream[1]
        expected = f"{settings.superlink}, the superlink of deploy.toml"
        raise ConfigError("differs", file, "a different SuperLink", found=got, allowed=expected)
    listen = re.search(r"\blisten\s+(?:\S*:)?(\d+)\b", text)
    if listen is None:
        raise ConfigError("missing", file, "no port", do="add listen PORT ssl;")
    return int(listen[1])


def control_port(settings: DeploymentSettings) -> int:
    """The port of the SuperLink on this machine."""
    host, _, port = settings.superlink.rpartition(":")
    if host not in _LOOPBACK or not port.isdigit():
        expected = "127.0.0.1:PORT on this machine, because anyone who can reach it can run code"
        error = ConfigError("does-not-fit", "superlink", got=settings.superlink, allowed=expected)
        raise error.located("deploy.toml")
    return int(port)


def require_free(port: int, file: str, key: str, folder: Path) -> None:
    """Refuse a port, named by a key of a file, on which another process listens."""
    if listens(port):
        advice = f"stop the process that uses it, unless it is the server of {folder}"
        raise InUseError("in-use", key, f"port {port} is in use", do=advice).located(file)


# --- nodes ----------------------------------------------------------------------------------------


def add_node(folder: Path, public_key: Path, name: str | None, replace: bool) -> str:
    """Register the key of a node with the name of its client, by default that in the key, or of the
    file if the key has none; returns what was done, in a line."""
    key = key_fingerprint(public_key)
    made_for = name_in_key(public_key)
    name = check_name(name or made_for or public_key.stem)
    if made_for and name != made_for:
        what = "the key was made for another name, under which its site joins"
        raise ConfigError("differs", public_key, what, got=name, allowed=f"--name {made_for}")
    nodes = added_nodes(folder)
    before = nodes.get(name)
    if before is not None and before.key == key:
        return f"{name}: already added"
    for other, node in nodes.items():
        if node.key == key and other != name:
            what = f"this key was already added as {other!r}"
            raise ConfigError("in-conflict", public_key, what, got=name, do=_NEW_KEY)
    if before is not None and not replace:
        what = f"was added with another key ({before.key})"
        expected = "--replace if the site lost that key"
        raise ConfigError("in-conflict", name, what, got=key, allowed=expected)
    _, settings = load_deployment(folder)
    require_up(folder, settings)
    home = flower_home(folder)
    if before is not None:
        run_flwr(home, ["supernode", "unregister", before.node, FEDERATION])
        # Noted at once: the old key is of no use any more, also where the new one is refused.
        note_nodes(folder, {other: nodes[other] for other in nodes if other != name})
    nodes[name] = AddedNode(_register(home, public_key, name), key)
    note_nodes(folder, nodes)
    if before is not None:
        return f"{name}: replaced, its key is {key}; {before.key} is no longer accepted"
    file = "" if public_key.stem == name else f" from {public_key.name}"
    return f"{name}: added{file}, its key is {key}"


def _register(home: Path, public_key: Path, name: str) -> str:
    """Let a key in; returns Flower's number of its node."""
    try:
        words = ["supernode", "register", str(public_key.resolve()), FEDERATION, "--name", name]
        return str(run_flwr(home, words).get("node-id", ""))
    except RemoteError as error:
        if "already in use" not in str(error):
            raise
    what = "Flower already knows this key and does not accept it again"
    raise ConfigError("in-use", public_key, what, do=_NEW_KEY)


def remove_node(folder: Path, name: str) -> None:
    """Let a node in no longer."""
    nodes = added_nodes(folder)
    if name not in nodes:
        known = f"one of {', '.join(nodes)}" if nodes else None
        raise ConfigError("not-found", "name", got=name, allowed=known)
    _, settings = load_deployment(folder)
    require_up(folder, settings)
    home = flower_home(folder)
    run_flwr(home, ["supernode", "unregister", nodes.pop(name).node, FEDERATION])
    note_nodes(folder, nodes)
