"""A site of a federation: its key, its checks, and its SuperNode, kept up until it is stopped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from coterie.deploy.keys import make_node_key, replace_private, write_private
from coterie.deploy.node.site_checks import (
    check_clock,
    check_data,
    check_versions,
    meet_server,
)
from coterie.deploy.operate.server_folder import key_fingerprint
from coterie.deploy.processes.flower_commands import environment, supernode_command
from coterie.deploy.processes.process import ProcessId, free_ports, identify, is_running
from coterie.deploy.processes.service import OWN_LINE, Service, ServiceLog, stop_services
from coterie.errors import ConfigError, CoterieError, RemoteError
from coterie.terminal import duration, visible

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


# --- the site -------------------------------------------------------------------------------------

NOT_ADDED = 20.0  # seconds before a node that was not added yet tries again
# Flower takes a node that was killed for connected for about a minute, and lets no other process in.
STILL_THERE = 5.0  # seconds before a node that was let in before tries again
_LOOK = 0.2  # seconds between two looks at the process
# What Flower's SuperNode prints.
_UNKNOWN_KEY = "Failed to activate SuperNode"
_CONNECTED = "SuperNode ID:"
_LOST = "Connection attempt failed"
_FOUND = "Connection successful"


@dataclass(frozen=True, slots=True)
class Site:
    """A client's machine.

    Args:
        server: ``host:port`` where nodes connect.
        options: of the node, as ``docs/deploy.md`` lists them, but for its name.
    """

    server: str
    certificates: Path
    name: str
    folder: Path
    options: Mapping[str, Any]

    @property
    def public_key(self) -> Path:
        """The file to send to the operator of the server."""
        return self.folder / f"{self.name}.pub"

    @property
    def private_key(self) -> Path:
        """The file that never leaves this machine."""
        return self.folder / f"{self.name}.key"

    @property
    def config_file(self) -> Path:
        """The node's configuration, as Flower reads it."""
        return self.folder / "node.toml"


def default_folder(name: str) -> Path:
    """Where the key of a node is kept unless its site says otherwise."""
    return Path.home() / ".coterie" / name


def make_key(site: Site) -> str:
    """Make the node's key, if it has none; returns what to do with it, in a line."""
    site.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = not site.private_key.exists()
    make_node_key(site.folder, site.name)
    begin = "made" if new else "there"
    return f"key: {begin}, {key_fingerprint(site.public_key)}, public half in {site.public_key}"


def check_site(site: Site, say: Callable[[str], None]) -> None:
    """Check all that can be checked before a node joins."""
    wrong: list[CoterieError] = []

    def attempt(check: Callable[[], Any]) -> Any:
        try:
            return check()
        except CoterieError as error:
            wrong.append(error)
            return None

    answer = attempt(lambda: meet_server(site.server, site.certificates))
    form = None
    if answer is not None:
        say(f"server: {site.server} answers, with a certificate of the authority")
        for check in (lambda: check_clock(answer), lambda: check_versions(answer.card)):
            line = attempt(check)
            if line is not None:
                say(line)
        if answer.card is not None:
            form = answer.card.form
    line = attempt(lambda: check_data(site.options, form))
    if line is not None:
        say(line)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        raise ConfigError("\n".join(" ".join(str(error).split()) for error in wrong))


# --- the node itself ------------------------------------------------------------------------------


@dataclass(slots=True)
class NodeWatch:
    """What the lines of a SuperNode mean for those who look after it.

    Args:
        connected: whether the server let the node in.
        unknown: whether the server refused its key.
        joined: whether the server ever let the node in.
    """

    say: Callable[[str], None]
    name: str
    connected: bool = False
    unknown: bool = False
    lost: bool = False
    joined: bool = False

    @property
    def state(self) -> str:
        """What the node does, as `coterie.deploy.node.site` has it."""
        if self.unknown:
            return "not let in" if self.joined else "not added"
        if self.lost:
            return "no connection"
        return CONNECTED if self.connected else "starting"

    def begin(self) -> None:
        """Forget what another process of the node printed."""
        self.connected = False
        self.unknown = False
        self.lost = False

    def __call__(self, line: str) -> None:
        if _CONNECTED in line:
            self.connected = True
            self.joined = True
            self.unknown = False
            self._found(f"joined as {self.name}; waiting for work")
        elif _UNKNOWN_KEY in line:
            self.unknown = True
        # Before it is in, and after it ended, the node's own processes print the same of each other.
        elif _LOST in line and self.connected and not self.lost:
            self.lost = True
            self.say("no connection to the server; trying again")
        elif _FOUND in line and self.lost:
            self._found("connected again")
        # What the node did, and why it could not: all else is Flower's own, for the log alone.
        elif OWN_LINE in line:
            self.say(visible(line.partition(OWN_LINE)[2].strip()))

    def _found(self, line: str) -> None:
        self.lost = False
        self.say(line)


def run_node(site: Site, say: Callable[[str], None], as_json: bool = False) -> None:
    """Run the SuperNode, and start it again when it ends, until a signal comes.

    A node whose key the operator has not added yet waits for that.
    """
    config = {"client": site.name, **site.options}
    # The URL of a database may have a password.
    write_private(site.config_file, tomli_w.dumps(config).encode())
    watch = NodeWatch(say, site.name, joined=has_joined(site.folder))
    log = ServiceLog(site.folder / "node.log", "node", as_json)
    service = Service(_command(site), environment(site.folder / "flower"), log, watch)
    state = StateFile(site.folder)
    told = False
    service.start()
    try:
        while True:
            state.note(watch.state)
            time.sleep(_LOOK)
            if service.code is None:
                continue
            service.drain()
            watch.lost = not watch.unknown
            state.note(watch.state)
            pause = service.pause()
            if watch.unknown:
                pause = STILL_THERE if watch.joined else NOT_ADDED
                # Said once: a site may wait for days.
                if not told:
                    say(_not_let_in(site) if watch.joined else _not_added(site))
            else:
                say(f"ended with {service.code} ({log.last}); starting again in {pause:g} s")
            told = watch.unknown
            time.sleep(pause)
            watch.begin()
            service.command = _command(site)
            service.start()
    finally:
        stop_services([service])


def _command(site: Site) -> list[str]:
    """The words of the SuperNode's command, with a port that is free now."""
    return supernode_command(
        site.server,
        site.certificates.resolve(),
        site.private_key,
        free_ports(1)[0],
        str(site.config_file),
    )


def _not_let_in(site: Site) -> str:
    return (
        "not let in: for about a minute the server takes the process before for connected; or "
        f"{site.name} was removed there; trying again"
    )


def _not_added(site: Site) -> str:
    file = site.public_key
    command = f"coterie server add DIR {file.name}"
    return f"not added yet: send {file} to the operator of the server, for `{command}`; waiting"
