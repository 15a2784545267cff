"""Whether the node of a site is connected, noted by its process for whoever asks."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from coterie.deploy.private_file import replace_private
from coterie.deploy.process import ProcessId, identify, is_running
from coterie.errors import RemoteError
from coterie.terminal import duration

STATE = "state.json"
JOINED = "joined"  # a file that is there since the server first let the node in
CONNECTED = "connected"
# State -> what a site has to do.
_EXPECTED = {
    "starting": "a node that is connected; look again in a minute",
    "not added": "`coterie server add` by the operator of the server",
    "not let in": "a minute's patience, or `coterie server add` if the operator removed it",
    "no connection": "a server that is up, and a firewall that lets this machine reach it",
}


@dataclass(frozen=True, slots=True)
class SiteState:
    """What a node does.

    Args:
        state: ``connected``, ``starting``, ``not added``, ``not let in`` or ``no connection``.
        since: when that began, in seconds since 1970.
    """

    pid: int
    born: int
    state: str
    since: float


@dataclass(slots=True)
class StateFile:
    """Where the process that keeps a node up notes what the node does."""

    folder: Path
    last: str = ""

    def note(self, state: str) -> None:
        """Write a state if it is another one than before."""
        if state == self.last:
            return
        self.last = state
        me = identify(os.getpid())
        assert me is not None, "this process runs"
        found = SiteState(me.pid, me.born, state, time.time())
        replace_private(self.folder / STATE, json.dumps(asdict(found)).encode())
        if state == CONNECTED:
            (self.folder / JOINED).touch()


def has_joined(folder: Path) -> bool:
    """Whether the server ever let a node in."""
    return (folder / JOINED).exists()


def require_connected(name: str, folder: Path) -> str:
    """What the node of a client does, in a line."""
    try:
        found = SiteState(**json.loads((folder / STATE).read_bytes()))
        running = is_running(ProcessId(found.pid, found.born))
    except (OSError, ValueError, TypeError):
        running = False
    if not running:
        expected = f"`coterie node join --name {name} ...`"
        raise RemoteError(f"{name}: its node is down, got no process; expected {expected}")
    lasted = duration(time.time() - found.since)
    if found.state != CONNECTED:
        expected = _EXPECTED.get(found.state, "a node that is connected")
        raise RemoteError(f"{name}: {found.state}, got this for {lasted}; expected {expected}")
    return f"{name}: connected for {lasted} (process {found.pid})"
