"""nginx before a server: what it passes on, and what it refuses."""

from __future__ import annotations

import http.client
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from coterie.flower.operate.proxy import NGINX, find_nginx, start_proxy
from coterie.flower.processes.process import free_ports, stop
from tests.conftest import PATIENCE

NGINX_PATH = find_nginx() or ""
pytestmark = pytest.mark.skipif(not NGINX_PATH, reason="nginx is not installed")


class Superlink(BaseHTTPRequestHandler):
    """Answers every request, and remembers its path."""

    paths: ClassVar[list[str]] = []

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.paths.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = do_PUT = do_OPTIONS = answer

    def log_message(self, *words: object) -> None:
        """Nothing."""


@pytest.fixture
def entrance(deployment: Path) -> Iterator[int]:
    """The port of nginx before a server that answers everything."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Superlink)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(deployment / "keys" / "server.pem", deployment / "keys" / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (port,) = free_ports(1)
    proxy = start_proxy(NGINX_PATH, deployment, port, f"127.0.0.1:{server.server_port}")
    Superlink.paths.clear()
    yield port
    stop([proxy])
    server.shutdown()
    server.server_close()


@contextmanager
def connected(port: int, folder: Path) -> Iterator[http.client.HTTPSConnection]:
    context = ssl.create_default_context(cafile=str(folder / "keys" / "ca.crt"))
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=context)
    with closing(connection):
        yield connection


def status(port: int, folder: Path, path: str, method: str = "POST", body: bytes = b"") -> int:
    with connected(port, folder) as connection:
        connection.request(method, path, body)
        with connection.getresponse() as response:
            return response.status


def test_only_the_side_of_nodes_is_passed_on(deployment: Path, entrance: int) -> None:
    assert status(entrance, deployment, "/v1/fleet/pull-messages") == 200
    assert Superlink.paths == ["/v1/fleet/pull-messages"]
    others = [
        "/",
        "/docs",
        "/health",
        "/v1/control/start-run",
        "/v1/control/list-runs",
        "/v1/runtime/acquire-task",
        "//v1/control/list-runs",
        "/v1/fleet",
        "/v1/fleet/../control/list-runs",
        "/v1/fleet/%2e%2e/control/list-runs",
        "/v1/fleet/..%2fcontrol/list-runs",
        "/v1/fleet/x/../../control/list-runs",
        "/V1/FLEET/../control/list-runs",
        "/v1/control/list-runs%3f/../../fleet/x",
        "/v1/control/list-runs?/../../fleet/x",
        "/v1/control/list-runs%23/../../fleet/x",
        "/v1/control/list-runs;/../../fleet/x",
        "/v1/control/../fleet/pull-messages",
        "/v1/control/%2e%2e/fleet/pull-messages",
        "//v1/fleet/pull-messages",
        "/v1//fleet/pull-messages",
        "/v1/fleet/pull%2dmessages",
        "/v1/fleet/pull-messages/",
        "/v1/fleet/pull-messages?x",
        "/v1/fleet/pull-messages/..",
        "/v1/fleet/",
    ]
    for path in others:
        for method in ("GET", "POST", "PUT", "OPTIONS"):
            # Only the folder without its slash is another answer: it leads to the folder with it.
            assert status(entrance, deployment, path, method) in (301, 403), (method, path)
    for method in ("GET", "PUT", "OPTIONS", "PATCH", "DELETE", "TRACE"):
        assert status(entrance, deployment, "/v1/fleet/pull-messages", method) in (403, 405)
    assert len(Superlink.paths) == 1


def test_a_piece_that_is_too_large_is_refused(deployment: Path, entrance: int) -> None:
    piece = bytes(6 << 20)
    assert status(entrance, deployment, "/v1/fleet/push-object", body=piece) == 200
    with connected(entrance, deployment) as connection:
        connection.putrequest("POST", "/v1/fleet/push-object")
        connection.putheader("Content-Length", str(600 << 20))
        connection.endheaders()
        # Refused by its length, before it is sent.
        with connection.getresponse() as response:
            assert response.status == 413


def test_the_file_that_init_writes_is_valid(deployment: Path) -> None:
    done = subprocess.run(
        [NGINX_PATH, "-t", "-p", str(deployment), "-c", NGINX, "-e", "stderr"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
