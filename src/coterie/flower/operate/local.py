"""A whole federation on this machine: SuperLink, nginx and SuperNodes with TLS and keys, up for one
run and down again."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from coterie.errors import RemoteError
from coterie.flower.keys import make_node_key, make_server_keys
from coterie.flower.operate.proxy import find_nginx, start_proxy
from coterie.flower.processes.flower_commands import (
    FEDERATION,
    environment,
    flower_home,
    run_flwr,
    superlink_command,
    supernode_command,
    write_connection,
)
from coterie.flower.processes.process import (
    Popen,
    free_ports,
    refuse_end,
    start,
    stop,
    wait_for_port,
)
from coterie.flower.settings import DeploymentSettings

REGISTERED_AT_ONCE = 3
_LOOK = 0.5  # seconds between two looks at the processes


@dataclass(slots=True)
class LocalFederation:
    """The processes of a federation on this machine; ``None`` for one that is down, and for nginx
    where it is not installed.

    Args:
        node_port: the port to which nodes connect: nginx's, or the SuperLink's without nginx.
    """

    folder: Path
    port: int
    node_port: int
    superlink: Popen | None = None
    proxy: Popen | None = None
    nodes: dict[str, Popen] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """``host:port`` where nodes connect."""
        return f"127.0.0.1:{self.node_port}"

    @property
    def control(self) -> str:
        """``host:port`` of the SuperLink, where runs are started."""
        return f"127.0.0.1:{self.port}"

    @property
    def access(self) -> str:
        """Who can reach what, in one line."""
        local = "every user of this machine"
        if self.node_port == self.port:
            return (
                f"nginx is not installed: nodes and those who start runs share {self.control}, "
                f"which is open to {local}"
            )
        return (
            f"nodes connect to {self.address}, where nginx blocks everything else; "
            f"runs are started at {self.control}, which is open to {local}"
        )

    @property
    def keys(self) -> Path:
        return self.folder / "keys"

    @property
    def home(self) -> Path:
        """The parent of the homes of Flower's commands, one for each process."""
        return flower_home(self.folder)

    def settings(self, settings: DeploymentSettings) -> DeploymentSettings:
        """The settings of a deployment, for the SuperLink of this machine."""
        return replace(
            settings,
            superlink=self.control,
            root_certificates="keys/ca.crt",
            folder=str(self.folder / "runs"),
        )

    def start_superlink(self) -> None:
        """Start the SuperLink, with TLS and authentication of nodes."""
        log = self.log_of("superlink")
        # One thread: the server's sums come in the order of a simulation's.
        env = environment(self.home / "superlink", OMP_NUM_THREADS="1")
        self.superlink = start(superlink_command(self.port, self.keys), env, log)
        wait_for_port(self.port, "superlink", self.superlink, log)

    def start_proxy(self, nginx: str) -> None:
        """Start nginx before the SuperLink."""
        self.proxy = start_proxy(nginx, self.folder, self.node_port, self.control)

    def register(self, names: Sequence[str]) -> None:
        """Register the nodes of these clients, so that the SuperLink lets them in."""

        def register_one(name: str) -> None:
            make_node_key(self.keys, name)
            public = str(self.keys / f"{name}.pub")
            # The name of the client: no node with another key can use it.
            run_flwr(self.home, ["supernode", "register", public, FEDERATION, "--name", name])

        # Each call takes a second or more, most of it to start Python.
        with ThreadPoolExecutor(REGISTERED_AT_ONCE) as pool:
            list(pool.map(register_one, names))

    def start_node(self, name: str, share: int, *, unlabelled: bool = False) -> None:
        """Start one SuperNode, whose data are the share of a client of the simulation."""
        cache = self.home / "cache"
        options = f'client="{name}" share={share} cache="{cache}"'
        if unlabelled:
            options += " unlabelled=true"
        command = supernode_command(
            self.address,
            self.keys / "ca.crt",
            self.keys / f"{name}.key",
            free_ports(1)[0],
            options,
        )
        # One thread: all nodes share these cores, and sums come in the order of a simulation's.
        env = environment(self.home / f"node-{name}", OMP_NUM_THREADS="1")
        self.nodes[name] = start(command, env, self.log_of(name))

    def log_of(self, name: str) -> Path:
        """Where the node of a client writes, ``superlink`` or ``nginx``."""
        return self.folder / "logs" / f"{name}.log"

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While the block runs, the end of any of the processes is an error that ends it."""
        over = threading.Event()
        ended: list[RemoteError] = []

        def watch() -> None:
            while not over.wait(_LOOK):
                try:
                    self.refuse_ends()
                except RemoteError as error:
                    ended.append(error)
                    # What the block waits for may never come, so it is ended as by the system.
                    os.kill(os.getpid(), signal.SIGTERM)
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        except SystemExit:
            if not ended:
                raise
            raise ended[0] from None
        finally:
            over.set()
            watcher.join()

    def refuse_ends(self) -> None:
        """Refuse to go on where one of the processes has ended."""
        servers = {"superlink": self.superlink, "nginx": self.proxy}
        for name, process in {**servers, **self.nodes}.items():
            if process is not None:
                refuse_end(name, process, self.log_of(name))

    def stop(self) -> None:
        servers = [one for one in (self.proxy, self.superlink) if one is not None]
        stop([*self.nodes.values(), *servers])
        self.nodes = {}
        self.proxy = None
        self.superlink = None


@contextmanager
def local_federation(folder: Path, clients: int, unlabelled: int = 0) -> Iterator[LocalFederation]:
    """A SuperLink and SuperNodes that are registered and up, the last ``unlabelled`` of them without
    labels; they are stopped at the end, whatever happens. Where nginx is installed, nodes connect
    through it."""
    folder = folder.resolve()
    make_server_keys(folder / "keys")
    nginx = find_nginx()
    port, node_port = free_ports(2)
    if nginx is None:
        node_port = port
    federation = LocalFederation(folder, port, node_port)
    try:
        write_connection(federation.home, federation.control, federation.keys / "ca.crt")
        names = client_names(clients)
        # Here rather than in the threads of `register`: making a key imports a large package.
        for name in names:
            make_node_key(federation.keys, name)
        federation.start_superlink()
        if nginx is not None:
            federation.start_proxy(nginx)
        # Before they start: the SuperLink lets in no node that it does not know.
        federation.register(names)
        for share, name in enumerate(names):
            federation.start_node(name, share, unlabelled=share >= clients - unlabelled)
        yield federation
    finally:
        federation.stop()


def client_names(clients: int) -> list[str]:
    """``client-00``, ``client-01``, ...: sorted by name they are in the order of their shares."""
    width = max(2, len(str(clients - 1)))
    return [f"client-{i:0{width}d}" for i in range(clients)]
