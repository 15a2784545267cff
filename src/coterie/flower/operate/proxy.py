"""The entrance for nodes: nginx before a SuperLink, which passes on only what nodes need.

In Flower 1.41 one port of the SuperLink serves nodes (``/v1/fleet/``), those who start runs
(``/v1/control/``), and the SuperLink's own processes (``/v1/runtime/``). Control needs no key, so
the SuperLink listens on its own machine alone, and nodes come in through nginx.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from coterie.data.sources.files import DataForm
from coterie.errors import ConfigError, RemoteError
from coterie.files import read_json
from coterie.flower.processes.flower_commands import environment, flower_home
from coterie.flower.processes.process import Popen, start, wait_for_port
from coterie.flower.settings import DeploymentSettings
from coterie.flower.templates import render_template

CARD = "federation.conf"  # in the folder of what Flower's commands keep; nginx.conf includes it
CARD_PATH = "/federation.json"
LONGEST = 3000  # letters; nginx reads no longer words from its configuration


@dataclass(frozen=True, slots=True)
class FederationCard:
    """What a server says of itself: versions, and the form of samples if it is not too long."""

    coterie: str
    flower: str
    form: DataForm | None

    @classmethod
    def loads(cls, text: bytes) -> FederationCard:
        """What a server answered."""
        try:
            card = read_json(text)
            form = None
            if "shape" in card:
                reported = {
                    one.name: card[one.name] for one in fields(DataForm) if one.name in card
                }
                form = DeploymentSettings.of({"clients": 1, **reported}, "the server's data").form
            return cls(str(card["coterie"]), str(card["flower"]), form)
        except (ValueError, TypeError, KeyError, ConfigError):
            what = "not a description of a federation"
            expected = "the one from `coterie server up`"
            got = text[:60]
            raise RemoteError("cannot-be-read", "server", what, got=got, allowed=expected) from None


def installed_version(package: str) -> str:
    """The version of an installed package; empty where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def card_text(settings: DeploymentSettings) -> str:
    """The card of a deployment, as JSON."""
    card: dict[str, Any] = {
        "coterie": installed_version("coterie"),
        "flower": installed_version("flwr"),
    }
    whole = json.dumps({**card, **asdict(settings.form)})
    if len(nginx_word(whole)) > LONGEST:
        return json.dumps(card)
    return whole


def write_card(folder: Path, settings: DeploymentSettings) -> Path:
    """Write what nginx answers; returns the file."""
    file = flower_home(folder) / CARD
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Written by `coterie server up`: what `coterie node check` compares.",
        f"location = {CARD_PATH} {{",
        "    default_type application/json;",
        f"    return 200 '{nginx_word(card_text(settings))}';",
        "}",
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def nginx_word(text: str) -> str:
    r"""JSON as a quoted word of nginx's configuration, in which ``$`` begins a variable.

    Example:
        >>> print(nginx_word('["$5", "it\'s"]'))
        ["\\u00245", "it\\u0027s"]
    """
    for letter in "$'":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text.replace("\\", "\\\\")


# --- nginx ----------------------------------------------------------------------------------------

NGINX = "nginx.conf"
NODE_PORT = 18001  # where nginx listens
CONTROL_PORT = 18101  # where the SuperLink listens, on its own machine alone
# Debian and others keep nginx where only the administrator's shell looks for commands.
_MORE_FOLDERS = ("/usr/sbin", "/usr/local/sbin")


def find_nginx() -> str | None:
    """The path of nginx; ``None`` where it is not installed."""
    folders = [os.environ.get("PATH", ""), *_MORE_FOLDERS]
    return shutil.which("nginx", path=os.pathsep.join(folders))


def nginx_text(
    listen: str, superlink: str, keys: str = "keys/", state: str = ".nginx-", home: str = ".flwr/"
) -> str:
    """A configuration of nginx; all paths are seen from the folder of its file.

    Args:
        listen: the port, or ``address:port``, where nodes connect.
        state: begins the names of the files that nginx writes.
    """
    values = {
        "listen": listen,
        "superlink": superlink,
        "keys": keys,
        "state": state,
        "card": f"{home}federation*.conf",
    }
    return render_template(NGINX, values)


def nginx_command(nginx: str, folder: Path) -> list[str]:
    """nginx with the configuration in a folder: in the foreground, messages on its output."""
    return [nginx, "-p", str(folder), "-c", NGINX, "-e", "stderr", "-g", "daemon off;"]


def start_proxy(nginx: str, folder: Path, port: int, superlink: str) -> Popen:
    """Start nginx on this machine before a SuperLink, and wait until it listens."""
    home = folder / ".flwr" / "nginx"
    home.mkdir(parents=True, exist_ok=True)
    text = nginx_text(f"127.0.0.1:{port}", superlink, keys="../../keys/", state="", home="../")
    (home / NGINX).write_text(text, encoding="utf-8")
    log = folder / "logs" / "nginx.log"
    process = start(nginx_command(nginx, home), environment(home), log)
    wait_for_port(port, "nginx", process, log)
    return process
