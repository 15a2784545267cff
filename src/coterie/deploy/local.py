"""A whole federation on this machine: SuperLink and SuperNodes with TLS and keys, up for one run
and down again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from coterie.deploy.keys import make_node, make_server
from coterie.deploy.process import (
    FEDERATION,
    environment,
    flwr,
    free_ports,
    start,
    stop,
    wait_for,
    write_connection,
)
from coterie.deploy.run import home_of
from coterie.deploy.settings import Settings

Process = subprocess.Popen[bytes]


@dataclass(slots=True)
class Local:
    """What runs on this machine.

    Args:
        folder: of the deployment.
        port: of the SuperLink.
        superlink: its process.
        nodes: processes of the SuperNodes, by the names of their clients.
    """

    folder: Path
    port: int
    superlink: Process | None = None
    nodes: dict[str, Process] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """``host:port`` of the SuperLink."""
        return f"127.0.0.1:{self.port}"

    def start_superlink(self) -> None:
        """Bring up the SuperLink, with TLS and authentication of nodes."""
        keys = self.folder / "keys"
        log = self.folder / "logs" / "superlink.log"
        self.superlink = start(
            [
                "flower-superlink",
                "--host",
                "127.0.0.1",
                "--port",
                str(self.port),
                "--isolation",
                "subprocess",
                "--enable-supernode-auth",
                "--disable-runtime-dependency-installation",
                "--ssl-ca-certfile",
                str(keys / "ca.crt"),
                "--ssl-certfile",
                str(keys / "server.pem"),
                "--ssl-keyfile",
                str(keys / "server.key"),
            ],
            environment(home_of(self.folder) / "superlink", OMP_NUM_THREADS="1"),
            log,
        )
        wait_for(self.port, self.superlink, log)

    def register(self, names: Sequence[str]) -> None:
        """Let the nodes of these clients in."""
        home = home_of(self.folder)
        keys = self.folder / "keys"

        def one(name: str) -> None:
            make_node(keys, name)
            flwr(home, ["supernode", "register", str(keys / f"{name}.pub"), FEDERATION])

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(one, names))

    def start_node(self, name: str, share: int) -> None:
        """Bring up one SuperNode, whose client has this name and this share of the trial's data."""
        keys = self.folder / "keys"
        cache = home_of(self.folder) / "cache"
        self.nodes[name] = start(
            [
                "flower-supernode",
                "--superlink",
                self.address,
                "--root-certificates",
                str(keys / "ca.crt"),
                "--auth-supernode-private-key",
                str(keys / f"{name}.key"),
                "--host",
                "127.0.0.1",
                "--port",
                str(free_ports(1)[0]),
                "--node-config",
                f'client="{name}" share={share} cache="{cache}"',
            ],
            environment(home_of(self.folder) / f"node-{name}", OMP_NUM_THREADS="1"),
            self.folder / "logs" / f"{name}.log",
        )

    def stop(self) -> None:
        """End everything."""
        stop([*self.nodes.values(), *([self.superlink] if self.superlink else [])])
        self.nodes = {}
        self.superlink = None


def client_names(clients: int) -> list[str]:
    """``client-00``, ``client-01``, ... in the order of their shares.

    Example:
        >>> client_names(2)
        ['client-00', 'client-01']
    """
    wide = max(2, len(str(clients - 1)))
    return [f"client-{i:0{wide}d}" for i in range(clients)]


@contextmanager
def local(folder: Path, clients: int) -> Iterator[Local]:
    """A SuperLink and ``clients`` SuperNodes, registered and up; whatever happens, they are down
    afterwards."""
    folder = folder.resolve()
    make_server(folder / "keys")
    here = Local(folder, free_ports(1)[0])
    try:
        write_connection(home_of(folder), here.address, folder / "keys" / "ca.crt")
        names = client_names(clients)
        for name in names:
            make_node(folder / "keys", name)
        here.start_superlink()
        here.register(names)
        for share, name in enumerate(names):
            here.start_node(name, share)
        yield here
    finally:
        here.stop()


def settings_here(settings: Settings, here: Local) -> Settings:
    """The settings of a deployment, for the SuperLink of this machine."""
    return replace(
        settings,
        superlink=here.address,
        root_certificates="keys/ca.crt",
        folder=str(here.folder / "runs"),
    )
