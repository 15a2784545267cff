"""What a stranger can do at the address of a federation, found out by trying.

The stranger has the address, the certificate of the authority, which is no secret, and a key that
was never registered.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.errors import ConfigError, ExposedError, RemoteError
from coterie.flower.keys import make_node_key
from coterie.flower.processes.flower_commands import FEDERATION, run_flwr, write_connection
from coterie.flower.processes.process import split_address
from coterie.flower.templates import render_template

ANSWER_WITHIN = 15.0  # seconds, for the attempts that are one request
# What a proxy says that lets a request in nowhere.
_CLOSED = (http.client.FORBIDDEN, http.client.NOT_FOUND)
_APP = """from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    print("a stranger's app ran here")
"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Something that a stranger tried. Whether it ``worked`` is not known (``None``) where no server
    refused it."""

    what: str
    worked: bool | None
    answer: str


@dataclass(frozen=True, slots=True)
class Stranger:
    """Someone who knows an address and a public certificate, and has a key of his own."""

    superlink: str
    certificates: Path
    home: Path

    def prepare(self) -> None:
        """Write the connection, a new key, and an app."""
        write_connection(self.home, self.superlink, self.certificates)
        make_node_key(self.home, "stranger")
        app = self.home / "app"
        app.mkdir()
        (app / "pyproject.toml").write_text(render_template("stranger.toml", {}), encoding="utf-8")
        (app / "LICENSE").write_text("All rights reserved.\n", encoding="utf-8")
        (app / "stranger.py").write_text(_APP, encoding="utf-8")

    def register(self) -> Attempt:
        """Register a key as that of a node, and take it back where that worked."""
        key = str(self.home / "stranger.pub")
        attempt, answer = self._command("register a node", ["supernode", "register", key])
        if attempt.worked:
            with suppress(RemoteError):
                node = str(answer["node-id"])
                run_flwr(self.home, ["supernode", "unregister", node, FEDERATION])
        return attempt

    def list_runs(self) -> Attempt:
        return self._command("list the runs", ["list"])[0]

    def run(self) -> Attempt:
        """Run an app of his own, and stop it where that worked."""
        app = str(self.home / "app")
        attempt, answer = self._command("run an app", ["run", app])
        if attempt.worked:
            # A run that has ended already cannot be stopped.
            with suppress(RemoteError):
                run_flwr(self.home, ["stop", str(answer["run-id"]), FEDERATION])
        return attempt

    def _command(self, what: str, arguments: list[str]) -> tuple[Attempt, dict[str, Any]]:
        """One of Flower's commands: whether it worked, and what it answered."""
        try:
            answer = run_flwr(self.home, [*arguments, FEDERATION])
        except RemoteError as error:
            return _failed(what, str(error)), {}
        return Attempt(what, True, json.dumps(answer)[:100]), answer

    def reach_processes(self) -> Attempt:
        """Reach the side that is for the SuperLink's own processes."""
        return self._request("reach the SuperLink's own processes", "POST", "/v1/runtime/get-nodes")

    def read_pages(self) -> Attempt:
        """Read the description of all that the SuperLink offers."""
        return self._request("read the SuperLink's own pages", "GET", "/docs")

    def _request(self, what: str, method: str, path: str) -> Attempt:
        """One request; any answer but that of a proxy that refuses it comes from the SuperLink."""
        try:
            with self._connection() as connection:
                connection.request(method, path, headers={"Content-Type": "application/protobuf"})
                status = connection.getresponse().status
        except TimeoutError:
            return Attempt(what, None, f"no answer in {ANSWER_WITHIN:g} s")
        except (OSError, http.client.HTTPException) as error:
            return Attempt(what, False, f"no answer ({type(error).__name__})")
        return Attempt(what, status not in _CLOSED, f"status {status}")

    def meet(self) -> None:
        """Connect once, so that an address where nothing is found is not taken for a closed one."""
        try:
            with self._connection() as connection:
                connection.connect()
        except OSError as error:
            what = "no connection with TLS"
            raise RemoteError("unreachable", self.superlink, what, found=error) from None

    def _connection(self) -> closing[http.client.HTTPSConnection]:
        context = ssl.create_default_context(cafile=str(self.certificates))
        host = self.superlink
        return closing(http.client.HTTPSConnection(host, timeout=ANSWER_WITHIN, context=context))


def _failed(what: str, message: str) -> Attempt:
    """An attempt by one of Flower's commands that failed with a message."""
    # A command that never asked, had no answer, or met a server that is down shows nothing: the
    # same request may work an hour later.
    refusal = re.search(r"Client error '(4\d\d) [^']*'", message)
    if refusal is None:
        return Attempt(what, None, message)
    return Attempt(what, False, f"status {refusal[1]}")


def try_as_stranger(superlink: str, certificates: Path) -> list[Attempt]:
    """Try at a federation's address what must not work for a stranger, and undo what worked."""
    split_address(superlink, "--superlink")
    if not certificates.is_file():
        raise ConfigError("not-found", "root_certificates", found=certificates)
    with tempfile.TemporaryDirectory(prefix="coterie-stranger-") as folder:
        stranger = Stranger(superlink, certificates.resolve(), Path(folder))
        stranger.meet()
        stranger.prepare()
        attempts: tuple[Callable[[], Attempt], ...] = (
            stranger.register,
            stranger.list_runs,
            stranger.run,
            stranger.reach_processes,
            stranger.read_pages,
        )
        # At once, since each of Flower's commands takes seconds, most of them to start Python.
        with ThreadPoolExecutor(len(attempts)) as pool:
            return list(pool.map(lambda attempt: attempt(), attempts))


def refuse_exposed(superlink: str, attempts: list[Attempt]) -> None:
    """Refuse an address where something worked, or where it is not known whether it does."""
    worked = [attempt.what for attempt in attempts if attempt.worked]
    if worked:
        got = ", ".join(worked)
        expected = "a proxy that passes only /v1/fleet/"
        raise ExposedError("failed", superlink, "open to outsiders", found=got, allowed=expected)
    unknown = [attempt.what for attempt in attempts if attempt.worked is None]
    if unknown:
        asked = ", ".join(unknown)
        what = f"what outsiders can do is unknown: no server responded to the attempt to {asked}"
        raise RemoteError("unreachable", superlink, what, do="start the server, and try again")
