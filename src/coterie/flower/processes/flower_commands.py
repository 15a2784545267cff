"""Flower's own commands: their words, where they are, their environment, and what they answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tomli_w

from coterie.errors import ConfigError, RemoteError, install_command
from coterie.files import read_json

SUPERNODE = "coterie.flower.processes.supernode"  # the module that is run


def superlink_command(port: int, keys: Path, database: Path | None = None) -> list[str]:
    """The SuperLink: on this machine alone, with TLS and authentication of nodes. Without a database
    it forgets nodes and runs when it ends."""
    options = {
        "--host": "127.0.0.1",
        "--port": str(port),
        # The SuperLink starts the server's app by itself.
        "--isolation": "subprocess",
        "--ssl-ca-certfile": str(keys / "ca.crt"),
        "--ssl-certfile": str(keys / "server.pem"),
        "--ssl-keyfile": str(keys / "server.key"),
    }
    if database is not None:
        options["--database"] = str(database)
    flags = ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
    return ["flower-superlink", *_words(options), *flags]


def supernode_command(
    server: str, certificates: Path, key: Path, port: int, node_config: str
) -> list[str]:
    """A SuperNode, see ``coterie.flower.processes.supernode``.

    Args:
        node_config: what its client needs: pairs ``key="value"``, or the path of a TOML file.
    """
    options = {
        "--superlink": server,
        "--root-certificates": str(certificates),
        "--auth-supernode-private-key": str(key),
        "--host": "127.0.0.1",
        "--port": str(port),
        "--node-config": node_config,
    }
    # -P: nothing is imported from the folder in which it is started.
    return [sys.executable, "-P", "-m", SUPERNODE, *_words(options)]


def _words(options: dict[str, str]) -> list[str]:
    """Options and their values as the words of a command line."""
    return [word for pair in options.items() for word in pair]


# --- commands -------------------------------------------------------------------------------------

# Flower reports its use, looks for updates and installs packages unless it is configured not to.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
}
FEDERATION = "coterie"  # the name of the SuperLink in Flower's configuration


def require_flower() -> None:
    """Refuse to go on without the packages of the extra ``flower``."""
    for package in ("flwr", "trustme"):
        if find_spec(package) is None:
            raise _not_installed(f"the package {package} is not installed")


def _not_installed(what: str) -> ConfigError:
    do = f"install it with {install_command('flower')}"
    return ConfigError("not-installed", "deploy", what, do=do)


def find_command(name: str) -> str:
    """The path of one of Flower's commands: next to this Python, or where the shell finds it."""
    # First the Flower that was installed with this Coterie; the path may name another one.
    installed = Path(sys.executable).parent / name
    if installed.is_file():
        return str(installed)
    found = shutil.which(name)
    if found is None:
        raise _not_installed(f"no command {name} on the path")
    return str(Path(found).absolute())


def flower_home(folder: Path) -> Path:
    """The folder of what Flower's commands keep for a deployment; it is no part of the app."""
    return (folder / ".flwr").resolve()


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of Flower's commands: offline, quiet, with a home of its own."""
    # Flower starts its other commands by name, so they have to be on the path, too.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": path, **more}


def write_connection(home: Path, superlink: str, certificates: Path | None) -> None:
    """Write into Flower's configuration where the SuperLink is, and the authority of its certificate;
    ``None`` for no TLS, which is for tests alone."""
    home.mkdir(parents=True, exist_ok=True)
    connection: dict[str, Any] = {"address": superlink}
    if certificates is None:
        connection["insecure"] = True
    else:
        connection["root-certificates"] = str(certificates.resolve())
    tables = {"superlink": {"default": FEDERATION, FEDERATION: connection}}
    (home / "config.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")


def run_flwr(home: Path, arguments: Sequence[str], timeout: float = 120.0) -> dict[str, Any]:
    """Run the command ``flwr``; returns the JSON that it prints.

    Args:
        arguments: paths among them are absolute.
    """
    line = [find_command("flwr"), *arguments, "--format", "json"]
    home.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            line,
            env=environment(home),
            # Flower takes the connection's name for an app, where the current folder has one of that
            # name: a clone of Coterie.
            cwd=home,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        where = f"flwr {arguments[0]}"
        raise RemoteError("unreachable", where, f"no answer in {timeout:g} s") from None
    answer = _read_json(done.stdout)
    if done.returncode or not answer.get("success", True):
        reason = _reason(done.stderr, answer) or f"exit code {done.returncode}"
        raise RemoteError("failed", f"flwr {' '.join(arguments[:2])}", found=reason)
    return answer


def _read_json(text: str) -> dict[str, Any]:
    """The JSON object in a command's output, which other lines may precede; else an empty one."""
    begin = text.find("{")
    if begin < 0:
        return {}
    try:
        answer = read_json(text[begin:])
    except ValueError:
        return {}
    if isinstance(answer, dict):
        return answer
    return {}


def _reason(stderr: str, answer: dict[str, Any]) -> str:
    """Why a command failed, on one line of at most 300 letters."""
    text = f"{stderr}\n{answer.get('error-message', '')}"
    lines = [line.strip() for line in text.splitlines()]
    # The end, since a traceback begins with where and ends with what. Flower also says what it uses.
    return "; ".join(line for line in lines if line and not line.startswith("Using "))[-300:]
