"""Flower's own commands: their environment, starting and stopping them, and what they say."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tomli_w

from coterie.errors import ConfigError, RemoteError, install_command

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
}
FEDERATION = "coterie"


def need_flower() -> None:
    """Refuse, where Flower is missing.

    Raises:
        ConfigError: if it is.
    """
    if find_spec("flwr") is None:
        raise ConfigError(
            f"deploy: Flower is missing, got no package flwr; expected {install_command('flower')}"
        )


def command(name: str) -> str:
    """The path of one of Flower's commands, beside this Python's or on the path.

    Raises:
        ConfigError: if it is not there.
    """
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise ConfigError(
            f"deploy: no command {name}, got none on the path; expected {install_command('flower')}"
        )
    return found


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of Flower's commands: offline, quiet, with a home of its own.

    Args:
        home: ``FLWR_HOME``.
        more: set besides.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": path, **more}


def write_connection(home: Path, superlink: str, certificates: Path | None) -> None:
    """Tell the ``flwr`` command where the SuperLink is; ``None`` for no TLS is for tests alone."""
    home.mkdir(parents=True, exist_ok=True)
    where: dict[str, Any] = {"address": superlink}
    where |= (
        {"insecure": True}
        if certificates is None
        else {"root-certificates": str(certificates.resolve())}
    )
    text = tomli_w.dumps({"superlink": {"default": FEDERATION, FEDERATION: where}})
    (home / "config.toml").write_text(text, encoding="utf-8")


def flwr(home: Path, arguments: Sequence[str], timeout: float = 120.0) -> dict[str, Any]:
    """Run ``flwr`` and read its JSON.

    Raises:
        RemoteError: if it fails.
    """
    line = [command("flwr"), *arguments, "--format", "json"]
    try:
        done = subprocess.run(
            line, env=environment(home), capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        raise RemoteError(
            f"flwr {arguments[0]}: no answer in {timeout:g} s, got none; expected a SuperLink"
        ) from None
    told = _json(done.stdout)
    if done.returncode or not told.get("success", True):
        lines = [
            part.strip()
            for part in (done.stderr + "\n" + str(told.get("error-message", ""))).splitlines()
        ]
        said = "; ".join(part for part in lines if part)[-300:] or f"exit code {done.returncode}"
        raise RemoteError(
            f"flwr {' '.join(arguments[:2])}: failed, got {said}; expected a SuperLink that answers"
        )
    return told


def _json(text: str) -> dict[str, Any]:
    at = text.find("{")
    try:
        told = json.loads(text[at:]) if at >= 0 else {}
    except ValueError:
        return {}
    if isinstance(told, dict):
        return told
    return {}


def start(arguments: Sequence[str], env: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start one of Flower's long-lived commands as the leader of its own session, its output in a
    file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        return subprocess.Popen(
            [command(arguments[0]), *arguments[1:]],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )


def _die_with_parent() -> None:
    """Linux: be told to end when the process that started this one is gone, however it went."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def stop(processes: Sequence[subprocess.Popen[bytes]], wait: float = 8.0) -> None:
    """End processes and all that they started: asked first, then killed. No signal disturbs it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        _stop(processes, wait)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(processes: Sequence[subprocess.Popen[bytes]], wait: float) -> None:
    family = {member for process in processes for member in _family(process.pid)}
    for process in processes:
        _signal(process, signal.SIGTERM)
    end = time.monotonic() + wait
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, end - time.monotonic()))
    for process in processes:
        family |= _family(process.pid)
        _signal(process, signal.SIGKILL)
        process.wait()
    for pid, born in family:
        with suppress(ProcessLookupError, PermissionError):
            if _stat(pid)[1] == born:
                os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + wait + 2.0
    while any(_lives(pid, born) for pid, born in family) and time.monotonic() < end:
        time.sleep(0.05)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """To a process that is ours and not yet reaped, and to its session."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _stat(pid: int) -> tuple[int, int]:
    """Parent and time of birth of a process; -1 where there is none."""
    try:
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(after[1]), int(after[19])
    except (OSError, ValueError, IndexError):
        return -1, -1


def _lives(pid: int, born: int) -> bool:
    """Whether a process is there and is no zombie, which whoever started it has yet to reap."""
    try:
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return after[0] != "Z" and int(after[19]) == born
    except (OSError, ValueError, IndexError):
        return False


def _family(pid: int) -> set[tuple[int, int]]:
    """All that a process started, and what those started, each with its time of birth; some lead
    their own session."""
    children: dict[int, list[tuple[int, int]]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        one = int(folder.name)
        parent, born = _stat(one)
        children.setdefault(parent, []).append((one, born))
    found: set[tuple[int, int]] = set()
    left = [pid]
    while left:
        mine = children.get(left.pop(), [])
        found |= set(mine)
        left += [one for one, _ in mine]
    return found


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path, longest: float = 60.0) -> None:
    """Wait until a process listens.

    Raises:
        RemoteError: if it ends, or does not in time.
    """
    end = time.monotonic() + longest
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RemoteError(
                f"{log}: ended with {process.returncode}, got {last_line(log)}; expected a server"
            )
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.2)
    raise RemoteError(
        f"{log}: does not listen on port {port} after {longest:g} s, got {last_line(log)}; expected it to"
    )


def last_line(log: Path) -> str:
    """The last line that a log holds."""
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return "nothing"
    if lines:
        return lines[-1].strip()[-200:]
    return "nothing"
