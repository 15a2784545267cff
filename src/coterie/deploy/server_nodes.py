"""The nodes of a federation as its operator sees them: added, removed, listed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.clients.identity import LONGEST
from coterie.deploy.flower_commands import FEDERATION, flower_home, run_flwr
from coterie.deploy.server_folder import (
    AddedNode,
    added_nodes,
    key_fingerprint,
    note_nodes,
    require_up,
)
from coterie.deploy.settings import load_deployment
from coterie.errors import ConfigError

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
