"""A site of a federation: its key, its checks, and its SuperNode, until one of the two is stopped."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any

import tomli_w

from coterie.errors import ConfigError, CoterieError, RemoteError
from coterie.files import read_json, write_private
from coterie.flower.keys import key_fingerprint, make_node_key, replace_private
from coterie.flower.node.site_checks import check_clock, check_data, check_versions, meet_server
from coterie.flower.processes.flower_commands import environment, supernode_command
from coterie.flower.processes.process import (
    ProcessId,
    free_ports,
    identify,
    is_running,
    start,
    stop,
)
from coterie.flower.processes.supernode import BEFORE, OWN_LINE, says_why
from coterie.terminal import duration, visible


@dataclass(frozen=True, slots=True)
class Site:
    """A client's machine; ``server`` is the ``host:port`` where nodes connect."""

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
    """Make the node's key, if it has none; returns what to do with it, in a line.

    A folder with keys of other names alone is refused: the name is likely misspelt.
    """
    site.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = not site.private_key.exists()
    others = [file.stem for file in site.folder.glob("*.key") if file.with_suffix(".pub").exists()]
    if new and others:
        names = ", ".join(sorted(others))
        what = f"{site.folder} contains no key for {site.name}, only for {names}"
        advice = "give that --name, or another --folder"
        raise ConfigError("differs", "--name", what, do=advice)
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
        raise ConfigError.of(problem for error in wrong for problem in error.problems)


# --- what its node does ---------------------------------------------------------------------------

STATE = "state.json"
JOINED = "joined"  # has Flower's number of the node, once the server has let it in
STARTING = "starting"
CONNECTED = "connected"
NOT_ADDED = "not added"
NOT_ADMITTED = "not admitted"
NO_CONNECTION = "no connection"
# State -> what a site has to do.
_REMEDIES = {
    STARTING: "check again in a minute",
    NOT_ADDED: "ask the server's operator to run `coterie server add`",
    NOT_ADMITTED: "wait a minute; if it was removed, join with an empty --folder, and have the new key added",
    NO_CONNECTION: "check that the server is up, and that the firewall lets this machine reach it",
}
# What Flower's SuperNode prints.
_UNKNOWN_KEY = "Failed to activate SuperNode"
_CONNECTED = "SuperNode ID:"
_LOST = "Connection attempt failed"
_ENDS = "SuperNode terminated gracefully"
# A call to the server has ended, so it answers; one that fails again says so by _LOST. Not each call
# that was retried ends with the first of these lines: a reply to a run that is over does not. Lines
# of training are not among them, since a client trains on without a connection.
_FOUND = (
    "Connection successful",
    "Receiving: ",
    "Received successfully",
    "Sent successfully",
    "Ignoring message",
    "Ignoring the message",
    "Ignoring reply message",
    "Failed to receive message",
    "Failed to send message",
)


@dataclass(frozen=True, slots=True)
class SiteState:
    """What a node does, as `coterie node status` reads it.

    Args:
        born: start time of the process of `coterie node join`, see `ProcessId`.
        since: when the state began, in seconds since 1970.
        host: the machine of the process.
    """

    pid: int
    born: float
    state: str
    since: float
    host: str = ""

    @classmethod
    def read(cls, folder: Path) -> SiteState | None:
        """What the folder of a node says; ``None`` where it says nothing."""
        try:
            return cls(**read_json(folder / STATE))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return is_running(ProcessId(self.pid, self.born))


def require_connected(name: str, folder: Path) -> str:
    """What the node of a client does, in a line."""
    found = SiteState.read(folder)
    if found is None or not found.running:
        start = f"`coterie node join --name {name} ...`"
        raise RemoteError("unreachable", name, "its node is down", do=f"start it with {start}")
    lasted = duration(time.time() - found.since)
    if found.state != CONNECTED:
        what = f"{found.state} for {lasted}"
        raise RemoteError("unreachable", name, what, do=_REMEDIES.get(found.state, ""))
    return f"{name}: connected for {lasted} (process {found.pid})"


def killed_node(folder: Path) -> str:
    """Flower's number of a node whose last process on this machine was connected and is gone; empty
    where there was none. It may have been killed, and the server takes it for connected still."""
    found = SiteState.read(folder)
    # Elsewhere what the process has started may go on without it.
    if found is None or sys.platform != "linux" or found.host != socket.gethostname():
        return ""
    if found.running or found.state not in (CONNECTED, NO_CONNECTION):
        return ""
    with suppress(OSError, ValueError):
        number = (folder / JOINED).read_text(encoding="utf-8")
        return str(int(number))
    return ""


@dataclass(slots=True)
class NodeWatch:
    """Reads the lines of a SuperNode, and notes and says what changes.

    Args:
        stopping: whether its process is being stopped, so that its connection is of no interest.
        reported: whether its site knows that it is not admitted.
        last: the line that says why the process ended, or else the last one.
    """

    say: Callable[[str], None]
    name: str
    folder: Path
    joined: bool = False
    state: str = ""
    stopping: bool = False
    reported: bool = False
    last: str = ""

    @property
    def refused(self) -> bool:
        """Whether the server did not let the node in."""
        return self.state in (NOT_ADDED, NOT_ADMITTED)

    def begin(self) -> None:
        """A process of the node begins."""
        self.joined = (self.folder / JOINED).exists()
        self.last = "it printed nothing"
        self.stopping = False
        self.note(STARTING)

    def note(self, state: str) -> None:
        """Write a state if it is another one than before."""
        if state == self.state:
            return
        self.state = state
        me = identify(os.getpid())
        assert me is not None, "this process runs"
        found = SiteState(me.pid, me.born, state, time.time(), socket.gethostname())
        replace_private(self.folder / STATE, json.dumps(asdict(found)).encode())

    def __call__(self, line: str) -> None:
        # What its own processes still write explains nothing.
        if says_why(line) or not says_why(self.last):
            self.last = line[-200:]
        if self.stopping:
            return
        if _CONNECTED in line:
            number = line.partition(_CONNECTED)[2].strip()
            (self.folder / JOINED).write_text(number, encoding="utf-8")
            self.reported = False
            self._change(CONNECTED, f"joined as {self.name}; waiting for work")
        elif _UNKNOWN_KEY in line:
            self.note(NOT_ADMITTED if self.joined else NOT_ADDED)
        elif _ENDS in line:
            self.stopping = True
        # Before it is in, and while it ends, the node's own processes print the same of each other.
        elif _LOST in line and self.state == CONNECTED:
            self._change(NO_CONNECTION, "no connection to the server; trying again")
        elif self.state == NO_CONNECTION and any(found in line for found in _FOUND):
            self._change(CONNECTED, "connected again")
        # What the node did, and why it could not: all else is Flower's own, for the log alone.
        elif OWN_LINE in line:
            self.say(visible(line.partition(OWN_LINE)[2].strip()))

    def say_once(self, line: str) -> None:
        """Say why the node is not admitted, once: a site may wait for days."""
        if not self.reported:
            self.say(line)
        self.reported = True

    def _change(self, state: str, line: str) -> None:
        self.note(state)
        self.say(line)


# --- the node itself ------------------------------------------------------------------------------

# A node that was not added yet waits for that; one that was killed on another machine counts as
# connected for about a minute, and so long no other process of it is let in.
AGAIN = 10.0  # seconds before a node that was not admitted tries again
LARGEST = 10_000_000  # bytes of a log, of which the three before it are kept
KEPT_LOGS = 3
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def log_line(line: str, as_json: bool, now: float | None = None) -> str:
    """A line as the log of a node holds it, at ``now`` in seconds since 1970.

    Example:
        >>> log_line("connected", False, now=0.0)
        '1970-01-01T00:00:00Z connected'
        >>> log_line("connected", True, now=0.0)
        '{"time": "1970-01-01T00:00:00Z", "process": "node", "line": "connected"}'
    """
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    if as_json:
        return json.dumps({"time": at, "process": "node", "line": line})
    return f"{at} {line}"


def run_node(site: Site, say: Callable[[str], None], as_json: bool = False) -> None:
    """Run the SuperNode until it ends, which is an error, or a signal comes.

    A node whose key the operator has not added yet waits for that.
    """
    config = {"client": site.name, **site.options}
    # The URL of a database may have a password.
    write_private(site.config_file, tomli_w.dumps(config).encode())
    watch = NodeWatch(say, site.name, site.folder)
    with closing(_open_log(site.folder / "node.log")) as log:

        def read(output: IO[bytes]) -> None:
            with output:
                for raw in output:
                    line = _COLOURS.sub("", raw.decode("utf-8", "replace")).rstrip()
                    if line:
                        text = log_line(line, as_json)
                        log.handle(logging.LogRecord("", logging.INFO, "", 0, text, None, None))
                        watch(line)

        try:
            while True:
                before = killed_node(site.folder)
                watch.begin()
                code = _run_once(site, read, before, watch)
                if not watch.refused:
                    raise _ended(code, watch)
                watch.say_once(_not_let_in(site, watch.state))
                time.sleep(AGAIN)
        except (SystemExit, KeyboardInterrupt):
            say("stopped")
            raise


def _open_log(file: Path) -> RotatingFileHandler:
    """The log of a node, which does not grow for ever."""
    return RotatingFileHandler(
        file, maxBytes=LARGEST, backupCount=KEPT_LOGS, encoding="utf-8", errors="replace"
    )


def _run_once(site: Site, read: Callable[[IO[bytes]], None], before: str, watch: NodeWatch) -> int:
    """Run the SuperNode to its end, in place of one that was killed, if any; returns its exit code."""
    command = supernode_command(
        site.server,
        site.certificates.resolve(),
        site.private_key,
        free_ports(1)[0],
        str(site.config_file),
    )
    env = environment(site.folder / "flower", **{BEFORE: before})
    process = start(command, env, subprocess.PIPE)
    assert process.stdout is not None, "the process has a pipe"
    reader = threading.Thread(target=read, args=(process.stdout,), daemon=True)
    reader.start()
    try:
        code = process.wait()
        # For its last lines. What it started may keep the pipe open a little longer.
        reader.join(2.0)
        return code
    finally:
        watch.stopping = True
        stop([process])


def _ended(code: int, watch: NodeWatch) -> RemoteError:
    """Why the process of a node ended."""
    # Flower ends it in this way where the server refuses its signs of life, and says nothing.
    if code == 0 and watch.state in (CONNECTED, NO_CONNECTION):
        what = "the server no longer accepts it"
        do = (
            "check the clock with `coterie node check`; if it was removed there, join with an empty "
            "--folder, and have the new key added"
        )
        return RemoteError("not-trusted", "node", what, do=do)
    return RemoteError("failed", "node", f"ended with {code} ({watch.last})")


def _not_let_in(site: Site, state: str) -> str:
    if state == NOT_ADMITTED:
        return (
            "not admitted: the server may still consider the previous process connected (for about a "
            "minute), or "
            f"{site.name} was removed there; trying again"
        )
    file = site.public_key
    command = f"coterie server add DIR {file.name}"
    return f"not added yet: send {file} to the operator of the server, for `{command}`; waiting"
