"""The folder of a deployment as the server's operator uses it: what has to hold before the server
starts, which process runs, and which nodes are added, removed and listed."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coterie.clients.identity import LONGEST
from coterie.deploy.keys import Cryptography, replace_private
from coterie.deploy.operate.proxy import NGINX
from coterie.deploy.processes.flower_commands import FEDERATION, flower_home, run_flwr
from coterie.deploy.processes.process import ProcessId, is_running
from coterie.deploy.settings import DeploymentSettings, load_deployment
from coterie.errors import ConfigError, RemoteError

NODES_ADDED = "nodes-added.json"
SERVER_PROCESS = "server.json"
DATABASE = "superlink.db"  # of the SuperLink: nodes, runs, and messages that wait
_LOOPBACK = ("127.0.0.1", "localhost")


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """The process that keeps a server up.

    Args:
        since: when it was ready, in seconds since 1970.
    """

    pid: int
    born: int
    since: float
    node_port: int

    @property
    def id(self) -> ProcessId:
        return ProcessId(self.pid, self.born)


@dataclass(frozen=True, slots=True)
class AddedNode:
    """A node whose key the operator registered.

    Args:
        node: Flower's number of it.
        key: `fingerprint` of its public key.
        added: when, in seconds since 1970.
    """

    node: str
    key: str
    added: float


def running_server(folder: Path) -> ServerProcess | None:
    """The process that keeps the server of a deployment up; ``None`` where it is down."""
    try:
        server = ServerProcess(**json.loads((flower_home(folder) / SERVER_PROCESS).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    if not is_running(server.id):
        return None
    return server


def require_up(folder: Path) -> ServerProcess:
    """The process that keeps the server of a deployment up."""
    server = running_server(folder)
    if server is None:
        expected = f"coterie server up {folder}"
        raise RemoteError(f"{folder}: the server is down, got no process; expected {expected}")
    return server


def note_server(folder: Path, server: ServerProcess | None) -> None:
    """Note which process keeps the server up, or that none does."""
    file = flower_home(folder) / SERVER_PROCESS
    if server is None:
        file.unlink(missing_ok=True)
    else:
        replace_private(file, json.dumps(asdict(server)).encode())


def added_nodes(folder: Path) -> dict[str, AddedNode]:
    """The nodes that were added, by the names of their clients."""
    file = flower_home(folder) / NODES_ADDED
    if not file.exists():
        return {}
    try:
        return {str(name): AddedNode(**one) for name, one in json.loads(file.read_bytes()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        raise ConfigError(f"{file}: damaged, got no list of nodes; expected one") from None


def note_nodes(folder: Path, nodes: dict[str, AddedNode]) -> None:
    tables = {name: asdict(one) for name, one in sorted(nodes.items())}
    replace_private(flower_home(folder) / NODES_ADDED, json.dumps(tables, indent=1).encode())


def key_fingerprint(public_key: Path) -> str:
    """Sixteen letters that stand for a public key."""
    crypto = Cryptography.load()
    try:
        text = public_key.read_bytes()
    except OSError as error:
        what = f"cannot be read ({error.strerror}), got no file"
        raise ConfigError(f"{public_key}: {what}; expected the .pub file of a node") from None
    if b"PRIVATE KEY" in text:
        what = "a private key, got one that must not leave its site"
        raise ConfigError(f"{public_key}: {what}; expected the .pub file beside it")
    try:
        key = crypto.serialization.load_ssh_public_key(text)
        curve = key.curve.name
    except (ValueError, AttributeError, crypto.unsupported):
        curve = "another kind of key"
    if curve != "secp384r1":
        what = f"no key on NIST P-384, got {curve}"
        raise ConfigError(f"{public_key}: {what}; expected the file that `coterie node` wrote")
    return hashlib.sha256(b" ".join(text.split()[:2])).hexdigest()[:16]


# --- before the server starts ---------------------------------------------------------------------


def node_port(folder: Path, settings: DeploymentSettings) -> int:
    """The port of nginx, by its configuration, which has to lead to the SuperLink."""
    file = folder / NGINX
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        expected = "that of `coterie deploy init`"
        raise ConfigError(f"{file}: no file; expected {expected}") from None
    text = re.sub(r"#.*", "", text)
    upstream = re.search(r"\bserver\s+([^\s;{]+)\s*;", text)
    if upstream is None or upstream[1] != settings.superlink:
        got = upstream[1] if upstream is not None else "none"
        expected = f"{settings.superlink}, the superlink of deploy.toml"
        raise ConfigError(f"{file}: another SuperLink, got {got}; expected {expected}")
    listen = re.search(r"\blisten\s+(?:\S*:)?(\d+)\b", text)
    if listen is None:
        raise ConfigError(f"{file}: no port; expected listen PORT ssl;")
    return int(listen[1])


def control_port(settings: DeploymentSettings) -> int:
    """The port of the SuperLink on this machine."""
    host, _, port = settings.superlink.rpartition(":")
    if host not in _LOOPBACK or not port.isdigit():
        expected = "127.0.0.1:PORT, since everyone who reaches it can run code"
        raise ConfigError(
            f"deploy.toml: superlink: not this machine, got {settings.superlink!r}; "
            f"expected {expected}"
        )
    return int(port)


def require_free(port: int, what: str) -> None:
    """Refuse a port on which another process listens."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        raise ConfigError(f"{what}: in use, got port {port}; expected a free one")


def certificate_end(file: Path) -> dt.datetime:
    """Until when a certificate is valid."""
    certificate = read_certificate(file)
    end: dt.datetime = certificate.not_valid_after_utc
    begin: dt.datetime = certificate.not_valid_before_utc
    now = dt.datetime.now(dt.UTC)
    if not begin <= now <= end:
        got = f"{begin:%Y-%m-%d} to {end:%Y-%m-%d}"
        raise ConfigError(f"{file}: not valid now, got {got}; expected one that holds today")
    return end


def read_certificate(file: Path) -> Any:
    """The first certificate of a file."""
    crypto = Cryptography.load()
    try:
        return crypto.x509.load_pem_x509_certificate(file.read_bytes())
    except OSError as error:
        what = f"cannot be read ({error.strerror}), got no file"
        raise ConfigError(f"{file}: {what}; expected a certificate") from None
    except ValueError:
        raise ConfigError(f"{file}: no certificate, got other text; expected PEM") from None


# --- nodes ----------------------------------------------------------------------------------------

_GONE = "unregistered"


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as the SuperLink knows it.

    Args:
        name: of its client; its number where it was added by other means.
        key: `fingerprint` of its public key, or empty.
        status: ``registered``, ``online`` or ``offline``.
        since: when that began, as Flower writes it; empty before it was ever online.
    """

    name: str
    key: str
    status: str
    since: str


def check_name(name: str) -> str:
    """The name of a client, which is also that of its files.

    Example:
        >>> check_name("hospital-3")
        'hospital-3'
    """
    if not 0 < len(name) <= LONGEST or not name.isprintable():
        what = f"no name of a client, got {name[:80]!r}"
        raise ConfigError(f"--name: {what}; expected 1 to {LONGEST} printable letters")
    # With a dash in front Flower's command would take the name for an option.
    if "/" in name or name.startswith((".", "-")):
        what = f"no name of a file, got {name!r}"
        raise ConfigError(
            f"--name: {what}; expected one without '/' that begins with no dot or dash"
        )
    return name


def add_node(folder: Path, public_key: Path, name: str | None, replace: bool) -> str:
    """Register the key of a node with the name of its client; returns what was done, in a line.

    Args:
        name: of the client; ``None``: that of the file.
    """
    name = check_name(name or public_key.stem)
    key = key_fingerprint(public_key)
    nodes = added_nodes(folder)
    before = nodes.get(name)
    if before is not None and before.key == key:
        return f"{name}: was added before"
    for other, node in nodes.items():
        if node.key == key and other != name:
            raise ConfigError(f"{public_key}: a key has one name, got {name!r}; expected {other!r}")
    if before is not None and not replace:
        what = f"has another key, got {key} and {before.key}"
        raise ConfigError(f"{name}: {what}; expected --replace if its site lost the old one")
    _, settings = load_deployment(folder)
    if before is None and len(nodes) >= settings.clients:
        what = f"more nodes than clients, got {len(nodes) + 1}"
        raise ConfigError(f"deploy.toml: clients: {what}; expected at most {settings.clients}")
    require_up(folder)
    home = flower_home(folder)
    if before is not None:
        run_flwr(home, ["supernode", "unregister", before.node, FEDERATION])
    words = ["supernode", "register", str(public_key), FEDERATION, "--name", name]
    answer = run_flwr(home, words)
    nodes[name] = AddedNode(str(answer.get("node-id", "")), key, time.time())
    note_nodes(folder, nodes)
    return f"{name}: added, its key is {key}"


def remove_node(folder: Path, name: str) -> None:
    """Let a node in no longer."""
    nodes = added_nodes(folder)
    if name not in nodes:
        known = ", ".join(nodes) or "none"
        raise ConfigError(f"server remove: no such node, got {name!r}; expected one of {known}")
    require_up(folder)
    home = flower_home(folder)
    run_flwr(home, ["supernode", "unregister", nodes.pop(name).node, FEDERATION])
    note_nodes(folder, nodes)


def node_states(folder: Path) -> list[NodeState]:
    """All nodes that the SuperLink lets in, by name."""
    require_up(folder)
    answer = run_flwr(flower_home(folder), ["supernode", "list", FEDERATION])
    names = {node.node: (name, node.key) for name, node in added_nodes(folder).items()}
    states = []
    for node in answer.get("nodes") or []:
        if str(node.get("status")) == _GONE:
            continue
        number = str(node.get("node-id", ""))
        name, key = names.get(number, (f"node {number}", ""))
        states.append(NodeState(name, key, str(node.get("status", "")), _since(node)))
    return sorted(states, key=lambda state: state.name)


def _since(node: Mapping[str, Any]) -> str:
    field = "online-at" if node.get("status") == "online" else "offline-at"
    at = str(node.get(field, ""))
    return "" if at == "N/A" else at
