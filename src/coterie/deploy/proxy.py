"""The entrance for nodes: nginx before a SuperLink, which passes on only what nodes need.

In Flower 1.41 one port of the SuperLink serves nodes (``/v1/fleet/``), those who start runs
(``/v1/control/``), and the SuperLink's own processes (``/v1/runtime/``). Control needs no key, so
the SuperLink listens on its own machine alone, and nodes come in through nginx.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from coterie.deploy.flower_commands import environment
from coterie.deploy.process import Popen, start, wait_for_port
from coterie.deploy.rendering import render_template

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
    listen: str,
    superlink: str,
    keys: str = "keys/",
    state: str = ".nginx-",
    home: str = ".flwr/",
) -> str:
    """A configuration of nginx.

    Args:
        listen: the port, or ``address:port``, where nodes connect.
        keys: where the certificates are, seen from the folder of this file; ends in a slash.
        state: begins the names of the files that nginx writes, seen from the same folder.
        home: where the description of the federation is, seen from the same folder.
    """
    values = {
        "listen": listen,
        "superlink": superlink,
        "keys": keys,
        "state": state,
        "card": f"{home}federation*.conf",
    }
    return render_template(NGINX, values)


def start_proxy(nginx: str, folder: Path, port: int, superlink: str) -> Popen:
    """Start nginx on this machine before a SuperLink, and wait until it listens."""
    home = folder / ".flwr" / "nginx"
    home.mkdir(parents=True, exist_ok=True)
    text = nginx_text(f"127.0.0.1:{port}", superlink, keys="../../keys/", state="", home="../")
    (home / NGINX).write_text(text, encoding="utf-8")
    log = folder / "logs" / "nginx.log"
    # In the foreground, so that it ends with this process; its messages go into the log.
    arguments = ["-p", str(home), "-c", NGINX, "-e", "stderr", "-g", "daemon off;"]
    process = start([nginx, *arguments], environment(home), log)
    wait_for_port(port, process, log)
    return process
