"""``coterie server`` and ``coterie node`` without processes of Flower's."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.cli.main import invoke
from coterie.deploy.keys import make_node_key
from coterie.deploy.node.site import NodeWatch, StateFile
from coterie.deploy.operate import server_folder, server_up
from coterie.deploy.operate.server_folder import (
    ServerProcess,
    added_nodes,
    key_fingerprint,
    note_server,
    running_server,
)
from coterie.deploy.operate.server_up import DATABASE, keep_server_up
from coterie.deploy.processes.process import free_ports, identify
from coterie.deploy.processes.service import Service, ServiceLog, stop_services
from coterie.errors import ConfigError, RemoteError


@pytest.fixture
def up(deployment: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[list[str]]]:
    """A deployment whose server seems to be up, and the words that Flower's command was given."""
    me = identify(os.getpid())
    assert me is not None
    (deployment / ".flwr").mkdir()
    note_server(deployment, ServerProcess(me.pid, me.born, time.time(), 18001))
    calls: list[list[str]] = []

    def answer(home: Path, arguments: Sequence[str], timeout: float = 0.0) -> dict[str, Any]:
        calls.append(list(arguments))
        return {"node-id": f"{len(calls)}"}

    monkeypatch.setattr(server_folder, "run_flwr", answer)
    return deployment, calls


def key(folder: Path, name: str) -> Path:
    return make_node_key(folder, name).with_suffix(".pub")


def test_what_clients_send_is_in_a_private_file(
    deployment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []

    def start(service: Service) -> None:
        modes.append((deployment / DATABASE).stat().st_mode & 0o777)
        raise RemoteError("enough")

    monkeypatch.setattr(Service, "start", start)
    monkeypatch.setattr(server_up, "find_nginx", lambda: "nginx")
    with pytest.raises(RemoteError, match="enough"):
        keep_server_up(deployment, as_json=False)
    assert modes == [0o600]


def test_a_key_has_one_name_and_a_name_one_key(
    up: tuple[Path, list[list[str]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, calls = up
    public = str(key(tmp_path, "hospital-3"))
    assert invoke(["server", "add", str(folder), public]) == 0
    assert calls[-1] == ["supernode", "register", public, "coterie", "--name", "hospital-3"]
    assert invoke(["server", "add", str(folder), public]) == 0
    assert "was added before" in capsys.readouterr().out
    assert len(calls) == 1
    assert invoke(["server", "add", str(folder), public, "--name", "hospital-4"]) == 2
    assert "a key has one name, got 'hospital-4'; expected 'hospital-3'" in capsys.readouterr().err
    other = str(key(tmp_path / "new", "hospital-3"))
    assert invoke(["server", "add", str(folder), other]) == 2
    assert "has another key" in capsys.readouterr().err
    assert invoke(["server", "add", str(folder), other, "--replace"]) == 0
    assert calls[-2] == ["supernode", "unregister", "1", "coterie"]
    assert added_nodes(folder)["hospital-3"].key == key_fingerprint(Path(other))
    for name in ("b", "c"):
        assert invoke(["server", "add", str(folder), str(key(tmp_path, name))]) == 0
    assert invoke(["server", "add", str(folder), str(key(tmp_path, "d"))]) == 2
    assert "more nodes than clients, got 4; expected at most 3" in capsys.readouterr().err
    assert invoke(["server", "remove", str(folder), "b"]) == 0
    assert sorted(added_nodes(folder)) == ["c", "hospital-3"]
    assert invoke(["server", "remove", str(folder), "b"]) == 2


def test_files_that_are_no_public_keys_are_refused(tmp_path: Path) -> None:
    private = make_node_key(tmp_path, "a")
    with pytest.raises(ConfigError, match="a private key, got one that must not leave its site"):
        key_fingerprint(private)
    for text in ("", "ssh-ed25519 AAAA", "no key\n"):
        (tmp_path / "x.pub").write_text(text)
        with pytest.raises(ConfigError, match="no key on NIST P-384"):
            key_fingerprint(tmp_path / "x.pub")
    with pytest.raises(ConfigError, match="cannot be read"):
        key_fingerprint(tmp_path / "none.pub")


def test_names_that_are_paths_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("../etc", ".hidden", "-n", "", "a\x1b[2J", "x" * 65):
        assert invoke(["node", "key", "--", name]) == 2, name
        assert "--name: no name of a" in capsys.readouterr().err


def test_a_server_that_is_down_says_so(
    deployment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["server", "add", str(deployment), str(key(tmp_path, "a"))]) == 7
    assert "the server is down" in capsys.readouterr().err
    assert invoke(["server", "status", str(deployment)]) == 7
    seen = capsys.readouterr()
    assert "certificate: valid until" in seen.out
    assert "coterie server up" in seen.err
    assert invoke(["server", "stop", str(deployment)]) == 0
    assert "was down" in capsys.readouterr().out


def test_a_process_that_ended_or_is_another_one_is_no_server(deployment: Path) -> None:
    (deployment / ".flwr").mkdir()
    me = identify(os.getpid())
    assert me is not None
    assert running_server(deployment) is None
    # The same number, born at another time: the number was given to another process.
    note_server(deployment, ServerProcess(me.pid, me.born + 1, 0.0, 18001))
    assert running_server(deployment) is None
    note_server(deployment, ServerProcess(me.pid, me.born, 0.0, 18001))
    assert running_server(deployment) is not None
    (deployment / ".flwr" / "server.json").write_text("{")
    assert running_server(deployment) is None


@pytest.mark.parametrize(
    ("file", "before", "after", "words"),
    [
        ("nginx.conf", "server 127.0.0.1:", "server 127.0.0.1:9", "another SuperLink, got 127"),
        ("nginx.conf", "listen ", "# listen ", "no port; expected listen"),
        ("deploy.toml", '"127.0.0.1:18101"', '"0.0.0.0:18101"', "not this machine"),
        ("keys/server.pem", "BEGIN", "NOT", "no certificate, got other text"),
    ],
)
def test_what_is_wrong_before_a_server_starts(
    file: str,
    before: str,
    after: str,
    words: str,
    deployment: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from coterie.deploy.operate.proxy import find_nginx

    if find_nginx() is None:
        pytest.skip("nginx is not installed")
    # Ports of its own: a server may run on this machine.
    control, outer = free_ports(2)
    for name in ("nginx.conf", "deploy.toml"):
        text = (deployment / name).read_text()
        text = text.replace("listen 18001", f"listen {outer}")
        (deployment / name).write_text(text)
    path = deployment / file
    changed = path.read_text().replace(before, after)
    assert changed != path.read_text()
    path.write_text(changed.replace("18101", str(control)))
    if file != "deploy.toml":
        text = (deployment / "deploy.toml").read_text()
        (deployment / "deploy.toml").write_text(text.replace("18101", str(control)))
    assert invoke(["server", "up", str(deployment)]) == 2
    assert words in capsys.readouterr().err
    assert running_server(deployment) is None


# --- processes that are kept up -------------------------------------------------------------------


def test_a_log_of_server_or_node_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.deploy.processes.service.LARGEST", 1000)
    log = ServiceLog(tmp_path / "node.log", "node")
    for number in range(200):
        log.write(f"line {number}")
    log.close()
    files = {one.name: one.read_text() for one in tmp_path.iterdir()}
    assert sorted(files) == ["node.log", "node.log.1", "node.log.2", "node.log.3"]
    assert all(len(text) <= 1000 for text in files.values())
    newest = "".join(files[name] for name in sorted(files, reverse=True)).splitlines()
    assert newest[-1].endswith("line 199")
    numbers = [int(line.rsplit(" ", 1)[1]) for line in newest]
    assert numbers == list(range(numbers[0], 200))


def test_the_lines_of_a_process_have_times(tmp_path: Path) -> None:
    log = ServiceLog(tmp_path / "node.log", "node", as_json=True)
    code = "print('\\x1b[92mINFO\\x1b[0m: begun', flush=True)"
    service = Service([sys.executable, "-c", code], dict(os.environ), log)
    service.start()
    assert service.process is not None
    service.process.wait(30)
    service.drain()
    stop_services([service])
    (line,) = map(json.loads, (tmp_path / "node.log").read_text().splitlines())
    assert (line["process"], line["line"]) == ("node", "INFO: begun")
    assert line["time"].endswith("Z")


def test_a_process_that_ends_at_once_is_started_less_and_less_often(tmp_path: Path) -> None:
    service = Service([], {}, ServiceLog(tmp_path / "a.log", "a"))
    service.restarts.began = time.monotonic()
    assert [service.pause() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    service.restarts.began = time.monotonic() - 61.0
    assert service.pause() == 1
    stop_services([service])


def test_a_node_says_when_something_changes() -> None:
    said: list[str] = []
    watch = NodeWatch(said.append, "hospital-3")
    watch("WARNING: Connection attempt failed, retrying in 0.50 seconds")  # of its own processes
    watch("ERROR: Exit Code: 305 ... Failed to activate SuperNode.")
    assert (said, watch.unknown) == ([], True)
    assert watch.state == "not added"
    watch.begin()
    assert watch.state == "starting"
    watch("INFO: SuperNode ID: 475")
    assert (said, watch.unknown) == (["joined as hospital-3; waiting for work"], False)
    assert watch.state == "connected"
    watch("WARNING: Connection attempt failed, retrying in 0.50 seconds")
    watch("WARNING: Connection attempt failed, retrying in 0.75 seconds")
    assert watch.state == "no connection"
    watch("Connection successful after 3 tries")
    assert watch.state == "connected"
    assert said[1:] == ["no connection to the server; trying again", "connected again"]
    # What Flower prints of itself stays in the log.
    watch("INFO: Received: query message")
    watch("INFO:      coterie: round 3: trained on 212 samples")
    watch("ERROR:     coterie: DataError: label: \x1b[2Jgone")
    assert said[3:] == ["round 3: trained on 212 samples", "DataError: label: \\x1b[2Jgone"]
    # A node that was killed is not let in for a minute; its site has nothing to send.
    watch.begin()
    watch("ERROR: Exit Code: 305 ... Failed to activate SuperNode.")
    assert watch.state == "not let in"


def test_a_node_says_whether_it_is_connected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["node", "status", "hospital-3", "--folder", str(tmp_path)]
    assert invoke(asked) == 7
    assert "its node is down, got no process" in capsys.readouterr().err
    file = StateFile(tmp_path)
    for state in ("starting", "not added", "not let in", "no connection"):
        file.note(state)
        assert invoke(asked) == 7
        assert f"hospital-3: {state}, got this for" in capsys.readouterr().err
    file.note("connected")
    assert invoke(asked) == 0
    assert f" s (process {os.getpid()})" in capsys.readouterr().out
    found = json.loads((tmp_path / "state.json").read_bytes())
    # The same number, born at another time: the number was given to another process.
    (tmp_path / "state.json").write_text(json.dumps({**found, "born": found["born"] + 1}))
    assert invoke(asked) == 7
    (tmp_path / "state.json").write_text("[]")
    assert invoke(asked) == 7


def test_a_health_check_asks_the_port_of_nodes(
    deployment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["server", "status", str(deployment), "--quick"]
    assert invoke(asked) == 7
    assert "the server is down, got no process" in capsys.readouterr().err
    me = identify(os.getpid())
    assert me is not None
    (deployment / ".flwr").mkdir()
    with socket.socket() as nginx:
        nginx.bind(("127.0.0.1", 0))
        port = nginx.getsockname()[1]
        note_server(deployment, ServerProcess(me.pid, me.born, time.time(), port))
        assert invoke(asked) == 7
        assert f"no connection to port {port}, got" in capsys.readouterr().err
        nginx.listen()
        assert invoke(asked) == 0
        assert "up for" in capsys.readouterr().out


def test_the_reason_of_a_node_stands_before_what_its_own_processes_write(tmp_path: Path) -> None:
    log = ServiceLog(tmp_path / "node.log", "node")
    log.write("Flower gave up: status 500")
    log.write("Connection attempt failed, retrying in 0.85 seconds")
    assert log.last == "Flower gave up: status 500"
    log.begin()
    log.write("connected")
    assert log.last == "connected"
    log.close()
