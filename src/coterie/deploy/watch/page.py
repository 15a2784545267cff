"""The state of a federation as a page and as figures for Prometheus, served on this machine."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from coterie.deploy.server.scores import COLUMN
from coterie.deploy.watch.status import FederationStatus, read_status, refuse_strange_state
from coterie.deploy.watch.tables import status_tables
from coterie.errors import ConfigError, CoterieError
from coterie.report.charts.style import GROUPS
from coterie.report.render import page_style

REFRESH = 5  # seconds after which a browser asks again
WIDTH = 900
HEIGHT = 240
SAME = "#6b7682"  # of the curve of the same clients, which is no group's
LINE_HEIGHT = 15
_LEFT = 56  # of the axis, in the chart's own units
_BOTTOM = 28


@dataclass(frozen=True, slots=True)
class StatusCurve:
    """A line of the chart.

    Args:
        points: ``x,y`` pairs as SVG has them.
        label: the height of its name, beside the last point.
    """

    name: str
    colour: str
    points: str
    last: tuple[float, float]
    label: float


@dataclass(frozen=True, slots=True)
class StatusChart:
    """The headline metric over rounds.

    Args:
        curves: one for each group, and one for the same clients where some were away.
    """

    title: str
    curves: Sequence[StatusCurve]
    top: str
    bottom: str
    first: int
    end: int


def status_page(status: FederationStatus, refresh: int = REFRESH) -> str:
    """The page as HTML.

    Names of clients, groups and reasons come from elsewhere: all are escaped, and the page's content
    security policy allows no script at all.

    Args:
        refresh: seconds after which a browser asks again; 0: never.
    """
    style = page_style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page: str = (
        _environment()
        .get_template("status.html.j2")
        .render(
            status=status,
            tables=status_tables(status),
            chart=headline_chart(status),
            style=style,
            style_hash=digest,
            refresh=refresh,
            width=WIDTH,
            height=HEIGHT,
            left=_LEFT,
            bottom=_BOTTOM,
        )
    )
    return page


@cache
def _environment() -> Any:
    return Environment(
        loader=PackageLoader("coterie.deploy", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )


def headline_chart(status: FederationStatus) -> StatusChart | None:
    """The headline metric by group over rounds; ``None`` before two rounds were scored."""
    keys = status.headline.keys
    rows = [row for row in status.scored if row.get(keys.groups)]
    if len(rows) < 2:
        return None
    groups = max(len(row[keys.groups]) for row in rows)
    found: list[list[tuple[int, float]]] = [[] for _ in range(groups)]
    for row in rows:
        for group, value in enumerate(row[keys.groups]):
            # A group without clients has no value.
            if value is not None:
                found[group].append((int(row["round"]) + 1, float(value)))
    names = [f"group {group}" for group in range(groups)]
    colours = [GROUPS[group % len(GROUPS)] for group in range(groups)]
    # A group's curve rises when a client that is served badly leaves, and this one does not.
    same = status.same
    if same.away and same.values:
        found.append([(round + 1, value) for round, value in same.values.items()])
        names.append("same clients")
        colours.append(SAME)
    values = [value for curve in found for _, value in curve]
    if not values:
        return None
    low = min(values)
    high = max(values)
    first = int(rows[0]["round"]) + 1
    end = int(rows[-1]["round"]) + 1
    curves: list[StatusCurve] = []
    for name, colour, curve in zip(names, colours, found, strict=True):
        if not curve:
            continue
        points = [_place(x, y, (first, end), (low, high)) for x, y in curve]
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        curves.append(StatusCurve(name, colour, text, points[-1], 0.0))
    title = f"{status.headline.title} by group"
    text_of = status.headline.text
    curves = _spread_labels(curves)
    return StatusChart(title, curves, text_of(high), text_of(low), first, end)


def _place(
    x: float, y: float, rounds: tuple[int, int], values: tuple[float, float]
) -> tuple[float, float]:
    across = (x - rounds[0]) / max(1, rounds[1] - rounds[0])
    # One value alone stands in the middle.
    up = 0.5 if values[1] == values[0] else (y - values[0]) / (values[1] - values[0])
    inner = HEIGHT - _BOTTOM - 16
    return _LEFT + across * (WIDTH - _LEFT - 90), 8 + (1 - up) * inner


def _spread_labels(curves: Sequence[StatusCurve]) -> list[StatusCurve]:
    """The curves with their names so far apart that each can be read."""
    spread = []
    height = 0.0
    for curve in sorted(curves, key=lambda one: one.last[1]):
        height = max(curve.last[1] + 4, height + LINE_HEIGHT)
        spread.append(replace(curve, label=height))
    return sorted(spread, key=lambda one: one.name)


# --- served ---------------------------------------------------------------------------------------

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
