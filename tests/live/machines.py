"""Machines of a test: network namespaces with wires between them, and commands inside."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SITES = ("a", "b")
SERVER = "fl.example.org"  # as the documentation calls it
# `ip netns exec` puts what is here in the place of the files of /etc.
_FILES = Path("/etc/netns")


@dataclass(frozen=True)
class Machine:
    """A machine: its own network, with a loopback of its own.

    Args:
        namespace: of its network.
        folder: where its commands run.
    """

    namespace: str
    folder: Path

    def words(self, *arguments: str) -> list[str]:
        inside = ["ip", "netns", "exec", self.namespace]
        return [*inside, sys.executable, "-m", "coterie", *arguments]

    def environment(self) -> dict[str, str]:
        # Every machine has a home of its own, and knows nothing of the others.
        return {**os.environ, "HOME": str(self.folder), "NO_COLOR": "1"}

    def run(self, *arguments: str, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.words(*arguments),
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def ok(self, *arguments: str, timeout: float = 300.0) -> str:
        """Run a command that has to work; returns what it printed."""
        done = self.run(*arguments, timeout=timeout)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, log: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a command that goes on."""
        with (self.folder / log).open("wb") as out:
            return subprocess.Popen(
                self.words(*arguments),
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )


def wait_for(file: Path, words: str, longest: float = 180.0, times: int = 1) -> None:
    """Wait until a file has these words."""
    end = time.monotonic() + longest
    while file.read_text(errors="replace").count(words) < times:
        assert time.monotonic() < end, f"{file}: no {words!r} in\n{file.read_text()}"
        time.sleep(0.5)


def can_make_machines() -> bool:
    """Whether this user may make network namespaces."""
    if shutil.which("ip") is None:
        return False
    name = f"coterie-{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    if made:
        _ip("netns", "del", name)
    return made


@contextmanager
def three_machines(folder: Path) -> Iterator[tuple[Machine, dict[str, Machine]]]:
    """A server and two sites, each with a wire to the server: 10.203.1.1 and 10.203.2.1 there.

    The sites know the server by its name, and a host ``db`` that is their own.
    """
    names = {one: f"coterie-{os.getpid()}-{one}" for one in ("server", *SITES)}
    try:
        for name in names.values():
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        for number, site in enumerate(SITES, 1):
            _wire(names["server"], names[site], number)
            hosts = f"127.0.0.1 localhost db\n10.203.{number}.1 {SERVER}\n"
            (_FILES / names[site]).mkdir(parents=True)
            (_FILES / names[site] / "hosts").write_text(hosts)
        machines = {}
        for one, name in names.items():
            (folder / one).mkdir(parents=True)
            machines[one] = Machine(name, folder / one)
        yield machines.pop("server"), machines
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            shutil.rmtree(_FILES / name, ignore_errors=True)


def _wire(server: str, site: str, number: int) -> None:
    ends = (f"cot{os.getpid() % 10000}s{number}", f"cot{os.getpid() % 10000}c{number}")
    _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
    for name, end, host in ((server, ends[0], 1), (site, ends[1], 2)):
        _ip("link", "set", end, "netns", name)
        _ip("-n", name, "addr", "add", f"10.203.{number}.{host}/24", "dev", end)
        _ip("-n", name, "link", "set", end, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def stop_all(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Stop what was started."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(60)
