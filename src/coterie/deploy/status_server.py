"""The live page and the figures of a federation over HTTP: on this machine alone, and read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from coterie.deploy.same_clients import COLUMN
from coterie.deploy.status import FederationStatus, read_status, refuse_strange_state
from coterie.deploy.status_page import status_page
from coterie.errors import ConfigError, CoterieError

PAGE_PORT = 18201
_HOSTS = ("127.0.0.1", "localhost")
_PATIENCE = 10.0  # seconds that a browser may take for its request
HTML = "text/html; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(status: FederationStatus) -> str:
    """The figures of a run in the text format of Prometheus."""
    lines: list[str] = []

    def metric(name: str, kind: str, help: str, *values: tuple[dict[str, str], float]) -> None:
        lines.append(f"# HELP coterie_{name} {help}")
        lines.append(f"# TYPE coterie_{name} {kind}")
        lines.extend(f"coterie_{name}{_labels(labels)} {value!r}" for labels, value in values)

    down, up = status.bytes
    connected = set(status.live.get("connected") or [])
    metric("up", "gauge", "Whether the process of the run runs.", ({}, float(status.running)))
    metric("rounds_total", "counter", "Rounds that are over.", ({}, len(status.rows)))
    metric("rounds_planned", "gauge", "Rounds of the run.", ({}, status.rounds))
    metric("clients_connected", "gauge", "Clients that can be asked.", ({}, len(connected)))
    metric("down_bytes_total", "counter", "Bytes sent to clients.", ({}, down))
    metric("up_bytes_total", "counter", "Bytes sent by clients.", ({}, up))
    refused = [({"reason": reason}, float(count)) for reason, count in status.refused.items()]
    metric("refused_total", "counter", "Replies that were not taken or did not come.", *refused)
    clipped = [({"reason": reason}, float(count)) for reason, count in status.clipped.items()]
    metric("clipped_total", "counter", "Replies that were brought within their bounds.", *clipped)
    exchange = status.exchange
    awaited = float(len(exchange["awaited"])) if exchange is not None else 0.0
    metric("clients_awaited", "gauge", "Clients whose answer is awaited.", ({}, awaited))
    clients = status.live.get("clients") or {}
    seen = [
        ({"client": name}, float(client["last"]))
        for name, client in clients.items()
        if client["last"] is not None
    ]
    metric("client_last_answer_seconds", "gauge", "Time of the last answer, since 1970.", *seen)
    if status.scored:
        row = status.scored[-1]
        title = status.headline.title
        groups = _known("group", enumerate(row.get(status.headline.keys.groups) or []))
        metric("headline", "gauge", f"{title} of the last scored round.", *groups)
        # By client, since a mean over them rises when one that is served badly is away.
        scores = row.get(COLUMN) or {}
        own = _known("client", ((name, value) for name, (value, _) in scores.items()))
        metric("client_headline", "gauge", f"{title} of each client there.", *own)
    return "\n".join(lines) + "\n"


def _known(
    label: str, values: Iterable[tuple[int | str, float | None]]
) -> list[tuple[dict[str, str], float]]:
    """The values that are known, each with what it is of."""
    return [({label: str(of)}, float(value)) for of, value in values if value is not None]


def _labels(labels: dict[str, str]) -> str:
    """Labels as Prometheus has them; their values may be anything."""
    if not labels:
        return ""
    texts = []
    for name, value in labels.items():
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        texts.append(f'{name}="{escaped}"')
    return f"{{{','.join(texts)}}}"


class StatusHandler(BaseHTTPRequestHandler):
    """Answers GET for the page and the figures, and nothing else."""

    server: StatusServer
    timeout = _PATIENCE

    def do_GET(self) -> None:
        pages: dict[str, tuple[str, Callable[[FederationStatus], str]]] = {
            "/": (HTML, status_page),
            "/metrics": (METRICS, metrics_text),
        }
        host = self.headers.get("Host", "").rpartition(":")[0]
        # A page of elsewhere whose name was made to mean this machine must not read it.
        if host not in _HOSTS:
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", "for this machine alone\n")
            return
        if self.path not in pages:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "no such page\n")
            return
        kind, text = pages[self.path]
        try:
            status = read_status(self.server.folder)
            with refuse_strange_state(status.run):
                body = text(status)
        except CoterieError as error:
            # No run yet, for example: said again at the next look.
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", f"{error}\n")
            return
        self._answer(HTTPStatus.OK, kind, body)

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: a page that is read every few seconds would fill the log."""


class StatusServer(ThreadingHTTPServer):
    """Serves the state of a federation on this machine.

    Args:
        port: of this machine; 0: any that is free.
    """

    daemon_threads = True

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        try:
            super().__init__(("127.0.0.1", port), StatusHandler)
        except OSError as error:
            what = f"cannot listen ({error.strerror}), got {port}"
            raise ConfigError(f"--port: {what}; expected a free port") from None

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://127.0.0.1:{self.server_port}/"
