"""What a run on real clients does, as the terminal, the page and Prometheus show it."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tests.refusals import refuses

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.cli.main import invoke
from coterie.errors import ConfigError, QuorumError
from coterie.flower.operate.server_folder import AddedNode, note_nodes
from coterie.flower.processes.process import identify
from coterie.flower.server.live import KEPT_EXCHANGES, LIVE, LiveState
from coterie.flower.settings import load_deployment
from coterie.flower.watch.page import (
    StatusServer,
    client_chart,
    headline_chart,
    metrics_text,
    status_page,
)
from coterie.flower.watch.status import FederationStatus, read_status
from coterie.flower.watch.tables import status_tables
from coterie.headline import Headline
from coterie.runs.state import RunState
from coterie.runs.summary import figures_of
from tests.conftest import PATIENCE
from tests.engines.test_flower import Reported, deploy, groups, nodes, tables
from tests.engines.test_flower_unlabelled import NAMES, configured, grid_of, run

HOSTILE = "<script>alert(1)</script>\"'&\x1b[2J"


def row(number: int, groups: list[float | None], **more: Any) -> dict[str, Any]:
    return {
        "round": number,
        "accuracy": 0.5,
        "accuracy_groups": groups,
        "sizes": [1] * len(groups),
        "notes": {"replies": 2},
        "refused": {},
        "transfers": {"down_bytes": 1000, "up_bytes": 2000},
        "seconds": {"total": 12.5},
        "moves": [],
        **more,
    }


def status_of(live: dict[str, Any], rows: list[dict[str, Any]], **more: Any) -> FederationStatus:
    known = {field.name for field in fields(RunState)}
    state = RunState(
        Path("runs/one"),
        {"algorithm": {"name": "fedavg"}, "data": {"source": "nodes"}},
        rounds=4,
        headline=Headline(),
        rows=rows,
        summary={},
        now=1000.0,
    )
    state = replace(state, **{name: more.pop(name) for name in known & more.keys()})
    names = ["hospital-3", "hospital-4"]
    status = FederationStatus(state, live, running=True, names=names, groups=[0, -1])
    return replace(status, **more)


ASKING = {
    "doing": "asking",
    "waiting": None,
    "connected": ["hospital-3", "hospital-4"],
    "clients": {
        "hospital-3": {"last": 990.0, "kind": "train", "answers": 3, "failed": {"no answer": 2}}
    },
    "lines": [{"time": 0.0, "line": "client 'hospital-5' left"}],
    "exchanges": [
        {
            "round": 1,
            "kind": "train",
            "began": 900.0,
            "until": 1090.0,
            "sending": 0.5,
            "awaited": ["hospital-4"],
            "answered": {"hospital-3": 7.25},
            "failed": {},
            "reading": 0.25,
            "seconds": None,
        }
    ],
}


def test_a_run_says_who_is_awaited_and_until_when() -> None:
    status = status_of(ASKING, [row(0, [0.5])])
    clock = time.strftime("%H:%M:%S", time.localtime(1090.0))
    assert status.sentence == (
        f"Round 2 of 4: training, waiting for 1 of 2 clients, for at most 1 min 30 s, until {clock}"
    )
    awaited = {"round": 1, "least": 3, "awaited": "1 client", "until": 1005.0}
    waiting = {**ASKING, "exchanges": [], "waiting": awaited}
    assert status_of(waiting, []).sentence.startswith(
        "Round 1 of 4: waiting for 1 client to connect, for at most 5.0 s"
    )
    assert "no process writes this run" in status_of(ASKING, [], running=False).sentence
    rows = [row(at, [0.5]) for at in range(4)]
    assert status_of(ASKING, rows).sentence == "All 4 rounds are complete"


def test_a_private_run_that_waits_for_a_client_does_not_name_it() -> None:
    waiting = {"round": 1, "least": 3, "awaited": "hospital-3", "until": 1005.0}
    live = {**ASKING, "exchanges": [], "connected": ["hospital-4", "x"], "waiting": waiting}
    config = {
        "algorithm": {"name": "fedavg"},
        "data": {"source": "nodes", "partition": {"kind": "natural"}},
        "privacy": {"noise": 1.0},
    }
    status = status_of(live, [], config=config)
    page = status_page(status)
    assert "waiting for 1 client to connect" in page
    assert "hospital" not in page + metrics_text(status)


def test_a_client_that_is_away_may_have_been_removed(deployment: Path, tmp_path: Path) -> None:
    config = tables("fedavg", rounds=1)
    deploy(tmp_path, config)
    out = Path(load_deployment(deployment)[1].folder) / "a"
    out.parent.mkdir()
    (tmp_path / "run").rename(out)
    (deployment / "last-run.json").write_text(json.dumps({"out": str(out)}))
    (deployment / ".flwr").mkdir()
    # Those of a trial on one machine are added by no operator.
    assert not read_status(deployment).removed
    note_nodes(deployment, {f"client-0{i}": AddedNode(str(i), "key") for i in range(4)})
    status = read_status(deployment)
    assert list(status.removed) == ["client-04", "client-05"]
    live = {**status.live, "connected": ["client-00", "client-05"]}
    clients = status_tables(replace(status, live=live, running=True))[0]
    assert {row[0]: row[1] for row in clients.rows} == {
        "client-00": "connected",
        **dict.fromkeys(("client-01", "client-02", "client-03"), "away"),
        "client-04": "removed",
        "client-05": "connected",
    }
    note_nodes(deployment, {})
    assert len(read_status(deployment).removed) == 6


def test_the_tables_name_clients_reasons_and_times() -> None:
    status = status_of(ASKING, [row(0, [0.5, None], refused={"malformed": 2})])
    clients, rounds, exchanges, refused, events = status_tables(status)
    assert clients.rows[0] == [
        *("hospital-3", "connected", "-", "10.0 s ago", "training", "3"),
        *("no answer in time (2 times)", "0"),
    ]
    assert clients.rows[1][:3] == ["hospital-4", "awaited", "-"]
    assert rounds.rows[0][:4] == ["1", "50.0 %", "-", "50.0 %, -"]
    assert exchanges.rows[0] == [
        "2",
        "training",
        "2",
        "1",
        "0.5 s",
        "7.2 s",
        "7.2 s",
        "0.2 s",
        "running",
    ]
    assert refused.rows == [["malformed", "the reply could not be decoded", "2"]]
    assert events.rows[0][1] == "client 'hospital-5' left"


def test_hostile_names_are_harmless() -> None:
    live = {
        **ASKING,
        "clients": {HOSTILE: ASKING["clients"]["hospital-3"]},
        "lines": [{"time": 0.0, "line": HOSTILE}],
    }
    rows = [row(at, [0.5, 0.6], refused={HOSTILE: 1}) for at in range(2)]
    named = {"algorithm": {"name": HOSTILE}, "data": {"source": HOSTILE}}
    status = status_of(live, rows, names=[HOSTILE], config=named)
    page = status_page(status)
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "script-src" not in page  # so none may run: the default is 'none'
    assert "default-src 'none'" in page
    text = metrics_text(status)
    assert '\\"' in text
    # A line break in a name would begin a figure of its own.
    broken = metrics_text(
        status_of({**live, "clients": {"a\nb 1": live["clients"][HOSTILE]}}, rows)
    )
    assert 'client="a\\nb 1"' in broken
    for line in (text + broken).splitlines():
        assert line.startswith(("# HELP coterie_", "# TYPE coterie_", "coterie_"))


def test_the_figures_for_prometheus_have_all_digits() -> None:
    client = {"last": 1795545278.25, "kind": "train", "answers": 3, "failed": {}}
    moved = {"down_bytes": 1_234_567_891, "up_bytes": 2000}
    status = status_of({**ASKING, "clients": {"a": client}}, [row(0, [0.5], transfers=moved)])
    lines = metrics_text(status).splitlines()
    assert "coterie_down_bytes_total 1234567891" in lines
    assert 'coterie_client_last_answer_seconds{client="a"} 1795545278.25' in lines


def test_the_chart_has_a_line_for_each_group() -> None:
    assert headline_chart(status_of(ASKING, [row(0, [0.5])])) is None
    rows = [row(0, [0.5, None]), row(1, [0.7, 0.2]), row(2, [0.9, 0.4])]
    chart = headline_chart(status_of(ASKING, rows))
    assert chart is not None
    assert [curve.name for curve in chart.curves] == ["group 0", "group 1"]
    assert [len(curve.points) for curve in chart.curves] == [3, 2]
    assert (chart.top, chart.bottom, chart.first, chart.end) == ("90.0 %", "20.0 %", 1, 3)


def test_a_weak_site_that_leaves_does_not_raise_the_figure_of_the_same_clients() -> None:
    both = {"strong": [0.9, 10], "weak": [0.3, 10]}
    rows = [
        row(0, [0.6], client_scores=both),
        row(1, [0.6], client_scores=both),
        row(2, [0.9], accuracy=0.9, client_scores={"strong": [0.9, 10]}),
    ]
    status = status_of(ASKING, rows, names=["strong", "weak"])
    clients, rounds, *_ = status_tables(status)
    assert {one[0]: one[2] for one in clients.rows[:2]} == {"strong": "90.0 %", "weak": "30.0 %"}
    chart = client_chart(status)
    assert chart is not None
    assert {curve.name: len(curve.points) for curve in chart.curves} == {"strong": 3, "weak": 2}
    assert client_chart(replace(status, shows_clients=False)) is None
    assert status_page(status).count("<polyline") == 4
    assert [one[1:3] for one in rounds.rows] == [
        ["90.0 %", "90.0 %"],
        ["50.0 %", "90.0 %"],
        ["50.0 %", "90.0 %"],
    ]
    assert "the mean of the 1 client in all rounds" in rounds.note
    chart = headline_chart(status)
    assert chart is not None
    assert [curve.name for curve in chart.curves] == ["group 0", "same clients"]
    metrics = metrics_text(status).splitlines()
    assert 'coterie_client_headline{client="strong"} 0.9' in metrics
    assert not any('client_headline{client="weak"}' in line for line in metrics)
    # A round without it is not the best one if the last one has it.
    again = row(3, [0.6], accuracy=0.6, client_scores=both)
    assert figures_of([*rows, again])["max"] == 0.6
    assert figures_of(rows)["max"] == 0.9
    # Nor is one before a client joined that is away in the last one.
    before = row(
        0, [0.95], accuracy=0.95, clients_assigned=1, client_scores=rows[-1]["client_scores"]
    )
    later = [{**one, "clients_assigned": 2} for one in rows]
    assert figures_of([before, *later])["max"] == 0.9


# --- the file that a run writes -------------------------------------------------------------------


def test_a_run_notes_what_it_asks_and_what_comes(tmp_path: Path) -> None:
    lost = {"left": 1}

    def lose(node: int, message: Any, replies: list[Any]) -> list[Any]:
        if node == 101 and message.metadata.message_type == "train" and lost["left"]:
            lost["left"] -= 1
            return []
        return replies

    config = tables("fedavg", rounds=2)
    grid = nodes(tmp_path, config, meddle=lose)
    deploy(tmp_path, config, grid, reply_wait=0.5)
    live = json.loads((tmp_path / "run" / LIVE).read_bytes())
    assert live["doing"] == "done"
    assert live["connected"] == [f"client-{i:02d}" for i in range(6)]
    assert live["clients"]["client-01"]["failed"] == {"no answer": 1}
    assert live["clients"]["client-00"]["failed"] == {}
    first = next(one for one in live["exchanges"] if one["kind"] == "train")
    assert first["failed"] == {"client-01": "no answer"}
    assert len(first["answered"]) == 5
    assert all(one["seconds"] >= 0 for one in live["exchanges"])
    assert not [file for file in (tmp_path / "run").iterdir() if file.name.endswith(".tmp")]
    status = read_status(tmp_path / "run")
    assert not status.running
    assert status.sentence == "All 2 rounds are complete"
    assert status.state.counted("refused") == {"no answer": 1}
    assert "client-01" in status_page(status)


class Killed(BaseException):
    """Ends the server where a kill would."""


class KilledAfter(Reported):
    """The server ends when a round is saved.

    Args:
        round: which one, from 0.
    """

    def __init__(self, round: int) -> None:
        super().__init__()
        self.round = round

    def __call__(self, what: str, value: Any) -> None:
        super().__call__(what, value)
        if what == "round" and value["round"] == self.round:
            raise Killed


def forget_process(run: Path) -> None:
    """Let the process of a run, which is that of the test, be gone."""
    live = json.loads((run / LIVE).read_bytes())
    (run / LIVE).write_text(json.dumps({**live, "process": None}))


def test_clients_without_labels_are_shown_with_their_groups(tmp_path: Path) -> None:
    """They have them in no row of a round, since they are placed after the last one."""
    config = configured("flux")
    run(tmp_path, config, grid_of(tmp_path, config))
    placed = groups(tmp_path / "run")
    assert min(placed) >= 0
    status = read_status(tmp_path / "run")
    assert list(status.groups) == placed
    (clients, *_) = status_tables(status)
    assert {line[0]: line[-1] for line in clients.rows}[NAMES[0]] == str(placed[2])


def test_a_run_that_was_killed_after_its_last_round_says_that_it_is_not_done(
    tmp_path: Path,
) -> None:
    config = configured("flux")
    grid = grid_of(tmp_path, config)
    with pytest.raises(Killed):
        run(tmp_path, config, grid, reported=KilledAfter(2))
    assert read_status(tmp_path / "run").sentence == (
        "All 3 rounds are complete: the server serves clients without labels and writes the results"
    )
    forget_process(tmp_path / "run")
    status = read_status(tmp_path / "run")
    assert status.sentence == (
        "All 3 rounds are complete, but no process writes the results and serves clients without "
        "labels; resume it with `coterie deploy run --resume`"
    )
    # In no group yet.
    assert [status.groups[client] for client in (2, 5)] == [-1, -1]
    again = run(tmp_path, config, grid, resume=True)
    assert not again.rows
    done = read_status(tmp_path / "run")
    assert done.sentence == "All 3 rounds are complete"
    assert list(done.groups) == groups(tmp_path / "run")
    assert min(done.groups) >= 0


class Waiting(Reported):
    """What is said while the server waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[str] = []

    def __call__(self, what: str, value: Any) -> None:
        super().__call__(what, value)
        if what == "waiting":
            self.waiting.append(value)


def test_a_run_that_waits_for_clients_says_for_whom(tmp_path: Path) -> None:
    config = tables("fedavg", rounds=2)
    reported = Waiting()
    grid = nodes(tmp_path, config, clients=4)
    with pytest.raises(QuorumError):
        deploy(tmp_path, config, grid, reported=reported, longest_wait=0.2)
    # Four of six have said who they are. What does not change is said once.
    assert reported.waiting[-1].startswith("waiting for 2 clients to connect, for at most ")
    assert len(reported.waiting) <= 2
    live = json.loads((tmp_path / "run" / LIVE).read_bytes())
    assert live["waiting"]["least"] == 6
    assert live["waiting"]["awaited"] == "2 clients"
    assert len(live["connected"]) == 4
    assert read_status(tmp_path / "run").state.rows == []


def test_a_run_names_the_client_that_it_waits_for_and_says_when_it_is_back(tmp_path: Path) -> None:
    config = tables("fedavg", rounds=3)
    grid = nodes(tmp_path, config)
    every = dict(grid.contexts)

    class Away(Waiting):
        def __call__(self, what: str, value: Any) -> None:
            super().__call__(what, value)
            if what == "round" and value["round"] == 0:
                grid.contexts.pop(104)
            if what == "waiting" and 104 not in grid.contexts:
                # What another process reads while the run waits.
                self.status = read_status(tmp_path / "run")
                grid.contexts[104] = every[104]

    reported = Away()
    deploy(tmp_path, config, grid, reported=reported, longest_wait=20.0)
    assert reported.waiting[-1].startswith("waiting for client-04 to connect, for at most ")
    assert "client 'client-04' is back" in reported.lines
    there = reported.status.live["connected"]
    assert "client-04" not in there
    assert len(there) == 5
    assert "waiting for client-04 to connect, for at most " in reported.status.sentence


def test_the_file_does_not_grow_and_a_full_disk_ends_no_run(tmp_path: Path) -> None:
    live = LiveState(tmp_path)
    for at in range(2 * KEPT_EXCHANGES):
        live.sent("train", at, 60.0, 0.0, {f"m{at}": "a"})
        live.arrived({f"m{at}": None}, 0.0)
    assert len(json.loads((tmp_path / LIVE).read_bytes())["exchanges"]) == KEPT_EXCHANGES
    live.dropped(["m1", "unknown"], "no answer")
    live.file = tmp_path / "none" / LIVE
    live.sent("train", 1, 60.0, 0.0, {"m": "a"})


# --- served ---------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[StatusServer]:
    with StatusServer(tmp_path, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def get(server: StatusServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE)
    try:
        connection.request(method, path, headers=headers)
        with connection.getresponse() as response:
            return response.status, response.read().decode()
    finally:
        connection.close()


def test_the_page_is_served_to_this_machine_alone(served: StatusServer, tmp_path: Path) -> None:
    assert served.server_address[0] == "127.0.0.1"
    assert get(served, "/")[0] == 503  # there is no run yet
    deploy(tmp_path, tables("fedavg", rounds=2))
    served.folder = tmp_path / "run"
    code, page = get(served, "/")
    assert (code, "All 2 rounds are complete" in page) == (200, True)
    code, text = get(served, "/metrics")
    assert code == 200
    assert "coterie_rounds_total 2" in text
    assert get(served, "/../../etc/passwd")[0] == 404
    assert get(served, "/", "POST")[0] == 501
    # A name of elsewhere that was made to mean this machine.
    assert get(served, "/", Host="evil.example:80")[0] == 403
    with refuses(ConfigError, "in-use", "--port"):
        StatusServer(tmp_path, served.server_port)


def test_the_command_shows_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deploy(tmp_path, tables("fedavg", rounds=2))
    run = tmp_path / "run"
    assert invoke(["deploy", "status", str(run)]) == 0
    seen = capsys.readouterr().out
    assert "All 2 rounds are complete" in seen
    assert "client-00" in seen
    assert invoke(["deploy", "status", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert 'http-equiv="refresh"' not in (tmp_path / "page.html").read_text()
    assert invoke(["deploy", "status", str(tmp_path)]) == 2
    assert "no run was started from here" in capsys.readouterr().err
    # Damaged, or written by somebody else.
    (run / LIVE).write_text(json.dumps({"process": [1], "exchanges": 3}))
    assert invoke(["deploy", "status", str(run)]) == 4


def test_a_process_that_is_gone_is_not_running(tmp_path: Path) -> None:
    deploy(tmp_path, tables("fedavg", rounds=2))
    file = tmp_path / "run" / LIVE
    live = json.loads(file.read_bytes())
    me = identify(os.getpid())
    assert me is not None
    for process, running in ((list(me), True), ([me.pid, me.born + 60], False), (None, False)):
        file.write_text(json.dumps({**live, "doing": "asking", "process": process}))
        assert read_status(tmp_path / "run").running is running
