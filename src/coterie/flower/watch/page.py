"""The state of a federation as a page and as figures for Prometheus, served on this machine."""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from coterie.errors import ConfigError, CoterieError
from coterie.flower.server.scores import COLUMN
from coterie.flower.watch.status import FederationStatus, read_status, refuse_strange_state
from coterie.flower.watch.tables import status_tables
from coterie.headline import Headline
from coterie.report.figures.style import GROUPS
from coterie.report.render import page_style, page_templates

REFRESH = 5  # seconds after which a browser asks again


def status_page(status: FederationStatus, refresh: int = REFRESH) -> str:
    """The page as HTML, which a browser asks for again after ``refresh`` seconds; 0: never.

    Names of clients, groups and reasons come from elsewhere: all are escaped, and the page's
    content security policy allows no script at all.
    """
    status = status.published()
    style = page_style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    charts = (headline_chart(status), client_chart(status))
    page: str = (
        page_templates("coterie.flower")
        .get_template("status.html.j2")
        .render(
            status=status,
            tables=status_tables(status),
            charts=[chart for chart in charts if chart is not None],
            style=style,
            style_hash=digest,
            refresh=refresh,
        )
    )
    return page


# --- served ---------------------------------------------------------------------------------------

_HOSTS = ("127.0.0.1", "localhost")
_PATIENCE = 10.0  # seconds that a browser may take for its request
HTML = "text/html; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(status: FederationStatus) -> str:
    """The figures of a run in the text format of Prometheus."""
    status = status.published()
    lines: list[str] = []
    metric = partial(_add_metric, lines)
    state = status.state
    live = status.live
    down, up = status.bytes
    last = {name: client["last"] for name, client in (live.get("clients") or {}).items()}
    metric("up", "gauge", "Whether the process of the run is alive.", float(status.running))
    metric("rounds_total", "counter", "Completed rounds.", len(state.rows))
    metric("rounds_planned", "gauge", "Total number of rounds.", state.rounds)
    connected = len(set(live.get("connected") or []))
    metric("clients_connected", "gauge", "Clients that can be reached.", connected)
    metric("down_bytes_total", "counter", "Bytes sent to clients.", down)
    metric("up_bytes_total", "counter", "Bytes sent by clients.", up)
    refused = state.counted("refused")
    what = "Replies that were rejected or did not arrive."
    metric("refused_total", "counter", what, refused, "reason")
    clipped = state.counted("clipped")
    what = "Replies that were clipped to their bounds."
    metric("clipped_total", "counter", what, clipped, "reason")
    metric("clients_awaited", "gauge", "Clients that have not replied yet.", len(status.awaited))
    what = "Time of the last reply, in seconds since 1970."
    metric("client_last_answer_seconds", "gauge", what, last, "client")
    if state.scored:
        row = state.scored[-1]
        title = state.headline.title
        groups = dict(enumerate(row.get(state.headline.keys.groups) or []))
        metric("headline", "gauge", f"{title} of the last scored round.", groups, "group")
        # By client, since a mean over them rises when a badly served client is away.
        own = {name: value for name, (value, _) in (row.get(COLUMN) or {}).items()}
        metric("client_headline", "gauge", f"{title} of each client there.", own, "client")
    return "\n".join(lines) + "\n"


def _add_metric(
    lines: list[str],
    name: str,
    kind: str,
    help: str,
    values: float | Mapping[Any, Any],
    label: str = "",
) -> None:
    lines.append(f"# HELP coterie_{name} {help}")
    lines.append(f"# TYPE coterie_{name} {kind}")
    if not isinstance(values, Mapping):
        lines.append(f"coterie_{name} {values!r}")
        return
    known = {of: float(value) for of, value in values.items() if value is not None}
    lines.extend(f"coterie_{name}{_label(label, of)} {known[of]!r}" for of in known)


def _label(name: str, value: object) -> str:
    """A label as Prometheus has it; its value may be anything."""
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{{{name}="{escaped}"}}'


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
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", "for this machine only\n")
            return
        if self.path not in pages:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "no such page\n")
            return
        kind, text = pages[self.path]
        try:
            status = read_status(self.server.folder)
            with refuse_strange_state(status.state.path):
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
    """Serves the state of a federation on a port of this machine; 0: any that is free."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        try:
            super().__init__(("127.0.0.1", port), StatusHandler)
        except OSError as error:
            what = f"cannot listen ({error.strerror})"
            raise ConfigError("in-use", "--port", what, found=port, allowed="a free port") from None

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://127.0.0.1:{self.server_port}/"


SAME = "#6b7682"  # of the curve of the same clients, which is no group's
MOST_CLIENTS = 12  # with a curve each
GROUP_NOTE = (
    "Over the clients that were scored in each round. If some were missing, another curve is "
    "over those that were scored in all rounds."
)
CLIENT_NOTE = (
    "Each client on its own test samples. A client that was missing has no point in that round."
)


@dataclass(frozen=True, slots=True)
class StatusCurve:
    """A line of the chart: ``round,value`` pairs, values negative since SVG draws downwards."""

    name: str
    colour: str
    points: Sequence[str]

    @classmethod
    def of(cls, name: str, colour: str, values: Mapping[int, float]) -> StatusCurve:
        """The line of values by the number of their round."""
        return cls(name, colour, [f"{round + 1},{-value:.6g}" for round, value in values.items()])


@dataclass(frozen=True, slots=True)
class StatusChart:
    """The headline metric over rounds, in a ``box`` of left, top, width and height."""

    title: str
    note: str
    curves: Sequence[StatusCurve]
    box: str
    top: str
    bottom: str
    first: int
    end: int


def headline_chart(status: FederationStatus) -> StatusChart | None:
    """The headline metric by group over rounds, and of the same clients where some were away;
    ``None`` before two rounds were scored."""
    headline = status.state.headline
    rows = [row for row in status.state.scored if row.get(headline.keys.groups)]
    groups: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for row in rows:
        for group, value in enumerate(row[headline.keys.groups]):
            # A group without clients has no value.
            if value is not None:
                groups[group][int(row["round"])] = float(value)
    lines = {
        f"group {group}": (GROUPS[group % len(GROUPS)], groups[group]) for group in sorted(groups)
    }
    # A group's curve rises when a client that is served badly leaves, and this one does not.
    same = status.same
    if same.away and same.values:
        lines["same clients"] = (SAME, dict(same.values))
    rounds = [int(row["round"]) for row in rows]
    return _chart(f"{headline.capital} by group", GROUP_NOTE, lines, rounds, headline)


def client_chart(status: FederationStatus) -> StatusChart | None:
    """The headline metric of each client over rounds; ``None`` before two rounds were scored, for
    many clients, and where single ones may not be shown."""
    if not status.shows_clients:
        return None
    rows = [row for row in status.state.scored if row.get(COLUMN)]
    clients: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        for name, (value, _) in row[COLUMN].items():
            if value is not None:
                clients[str(name)][int(row["round"])] = float(value)
    if len(clients) > MOST_CLIENTS:
        return None
    lines = {
        name: (GROUPS[i % len(GROUPS)], clients[name]) for i, name in enumerate(sorted(clients))
    }
    headline = status.state.headline
    rounds = [int(row["round"]) for row in rows]
    return _chart(f"{headline.capital} by client", CLIENT_NOTE, lines, rounds, headline)


def _chart(
    title: str,
    note: str,
    lines: Mapping[str, tuple[str, Mapping[int, float]]],
    rounds: Sequence[int],
    headline: Headline,
) -> StatusChart | None:
    """A chart of lines by name, each with its colour; ``None`` where there is nothing to see."""
    values = [value for _, points in lines.values() for value in points.values()]
    if len(rounds) < 2 or not values:
        return None
    low = min(values)
    high = max(values)
    first = rounds[0] + 1
    end = rounds[-1] + 1
    # A box without a height would show nothing.
    box = f"{first} {-high:.6g} {max(1, end - first)} {(high - low) or 1.0:.6g}"
    curves = [StatusCurve.of(name, colour, points) for name, (colour, points) in lines.items()]
    return StatusChart(
        title, note, curves, box, headline.text(high), headline.text(low), first, end
    )
