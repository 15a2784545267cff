"""The command lines of Flower's two long-lived processes, as a trial and a real federation start
them."""

from __future__ import annotations

import sys
from pathlib import Path

SUPERNODE = "coterie.deploy.supernode"  # the module that is run


def superlink_command(port: int, keys: Path, database: Path | None = None) -> list[str]:
    """The SuperLink: on this machine alone, with TLS and authentication of nodes.

    Args:
        database: where registered nodes and runs survive a restart; ``None``: in memory.
    """
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
    """A SuperNode, see ``coterie.deploy.supernode``.

    Args:
        port: of this machine, for the node's own processes.
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
