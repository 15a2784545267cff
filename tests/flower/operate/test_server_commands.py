"""``coterie server`` and ``coterie node`` without processes of Flower's."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.refusals import refuses

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from coterie.cli.main import invoke
from coterie.cli.signals import stop_once
from coterie.errors import ConfigError, RemoteError
from coterie.flower.keys import key_fingerprint, make_node_key
from coterie.flower.node import site
from coterie.flower.node.site import NodeWatch, Site, killed_node, make_key, run_node
from coterie.flower.operate import server_folder, server_up
from coterie.flower.operate.server_folder import DATABASE, add_node, added_nodes
from coterie.flower.operate.server_up import check_server, serve_until_end
from coterie.flower.processes.process import free_ports
from coterie.flower.settings import load_deployment


@pytest.fixture
def superlink(deployment: Path) -> Iterator[socket.socket]:
    """Something that listens where the SuperLink of the deployment would."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        set_port(deployment, 18101, listener.getsockname()[1])
        yield listener


@pytest.fixture
def up(
    deployment: Path, superlink: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, list[list[str]]]:
    """A deployment whose server seems to be up, and the words that Flower's command was given."""
    (deployment / ".flwr").mkdir()
    calls: list[list[str]] = []

    def answer(home: Path, arguments: Sequence[str], timeout: float = 0.0) -> dict[str, Any]:
        calls.append(list(arguments))
        return {"node-id": f"{len(calls)}"}

    monkeypatch.setattr(server_folder, "run_flwr", answer)
    return deployment, calls


def set_port(deployment: Path, before: int, port: int) -> None:
    """Give a deployment another port of nodes or of the SuperLink."""
    for name in ("nginx.conf", "deploy.toml"):
        text = (deployment / name).read_text()
        text = text.replace(f":{before}", f":{port}").replace(f"listen {before}", f"listen {port}")
        (deployment / name).write_text(text)


def key(folder: Path, name: str) -> Path:
    return make_node_key(folder, name).with_suffix(".pub")


def test_what_clients_send_is_in_a_private_file(
    deployment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []

    def start(*_: object) -> None:
        modes.append((deployment / DATABASE).stat().st_mode & 0o777)
        raise RemoteError("failed", "start", "enough")

    for before, port in zip((18101, 18001), free_ports(2), strict=True):
        set_port(deployment, before, port)
    monkeypatch.setattr(server_up, "start", start)
    monkeypatch.setattr(server_up, "find_nginx", lambda: "nginx")
    with refuses(RemoteError, "failed", "start"):
        serve_until_end(deployment)
    assert modes == [0o600]


def test_a_key_has_one_name_and_a_name_one_key(
    up: tuple[Path, list[list[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, calls = up
    public = str(key(tmp_path, "hospital-3"))
    monkeypatch.chdir(tmp_path)
    assert invoke(["server", "add", str(folder), "hospital-3.pub"]) == 0
    assert calls[-1] == ["supernode", "register", public, "coterie", "--name", "hospital-3"]
    assert invoke(["server", "add", str(folder), public]) == 0
    assert "already added" in capsys.readouterr().out
    assert len(calls) == 1
    # A key that no comment names, as one of an earlier version.
    plain = tmp_path / "plain.pub"
    plain.write_text(" ".join(Path(public).read_text().split()[:2]))
    with refuses(ConfigError, "in-conflict", "plain.pub") as refused:
        add_node(folder, plain, "hospital-4", replace=False)
    assert "coterie node join" in str(refused.value)
    other = str(key(tmp_path / "new", "hospital-3"))
    assert invoke(["server", "add", str(folder), other]) == 2
    assert "another key" in capsys.readouterr().err
    assert invoke(["server", "add", str(folder), other, "--replace"]) == 0
    assert calls[-2] == ["supernode", "unregister", "1", "coterie"]
    assert added_nodes(folder)["hospital-3"].key == key_fingerprint(Path(other))
    # Also more than `clients` of deploy.toml: a run makes places for those who come.
    for name in ("b", "c", "d"):
        assert invoke(["server", "add", str(folder), str(key(tmp_path, name))]) == 0
    assert invoke(["server", "remove", str(folder), "b"]) == 0
    assert sorted(added_nodes(folder)) == ["c", "d", "hospital-3"]
    assert invoke(["server", "remove", str(folder), "b"]) == 2


def test_a_key_is_added_with_the_name_that_its_site_gave_it(
    up: tuple[Path, list[list[str]]], tmp_path: Path
) -> None:
    folder, calls = up
    sent = key(tmp_path, "va").rename(tmp_path / "va2.pub")
    with refuses(ConfigError, "differs", "va2.pub") as refused:
        add_node(folder, sent, "va2", replace=False)
    assert "--name va" in str(refused.value)
    assert not calls
    # Its file may have another name.
    assert "va2.pub" in add_node(folder, sent, None, replace=False)
    assert list(added_nodes(folder)) == ["va"]


def test_a_key_that_flower_had_before_is_refused_and_its_name_is_free(
    up: tuple[Path, list[list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = up
    old, spent, new = (key(tmp_path / place, "a") for place in ("old", "spent", "new"))
    add_node(folder, old, None, replace=False)

    def refuse_spent(home: Path, arguments: Sequence[str], timeout: float = 0.0) -> dict[str, Any]:
        if str(spent) in arguments:
            raise RemoteError(
                "failed", "flwr supernode register", found="Public key already in use."
            )
        return {"node-id": "9"}

    monkeypatch.setattr(server_folder, "run_flwr", refuse_spent)
    with refuses(ConfigError, "in-use", "a.pub"):
        add_node(folder, spent, None, replace=True)
    # The old key was taken away before, so its node is no longer said to be there.
    assert "a" not in added_nodes(folder)
    add_node(folder, new, None, replace=False)
    assert added_nodes(folder)["a"].node == "9"


def test_files_that_are_no_public_keys_are_refused(tmp_path: Path) -> None:
    private = make_node_key(tmp_path, "a")
    with refuses(ConfigError, "does-not-fit", "a.key"):
        key_fingerprint(private)
    for text in ("", "ssh-ed25519 AAAA", "no key\n"):
        (tmp_path / "x.pub").write_text(text)
        with refuses(ConfigError, "does-not-fit", "x.pub"):
            key_fingerprint(tmp_path / "x.pub")
    with refuses(ConfigError, "cannot-be-read", "none.pub"):
        key_fingerprint(tmp_path / "none.pub")


def test_names_that_are_paths_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("../etc", ".hidden", "-n", "", "a\x1b[2J", "x" * 65):
        assert invoke(["node", "key", "--", name]) == 2, name
        assert "--name: " in capsys.readouterr().err


def test_a_server_that_is_down_says_so(
    deployment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    set_port(deployment, 18101, free_ports(1)[0])
    assert invoke(["server", "add", str(deployment), str(key(tmp_path, "a"))]) == 7
    assert "the server is down: start it with" in capsys.readouterr().err
    assert invoke(["server", "status", str(deployment)]) == 7
    seen = capsys.readouterr()
    assert "certificate: valid until" in seen.out
    assert "nodes: 0 added" in seen.out
    assert "coterie server up" in seen.err


def test_a_server_that_is_up_is_not_started_again(
    up: tuple[Path, list[list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    need_nginx()
    assert invoke(["server", "up", str(up[0])]) == 10
    assert "superlink: port" in capsys.readouterr().err


def need_nginx() -> None:
    from coterie.flower.operate.proxy import find_nginx

    if find_nginx() is None:
        pytest.skip("nginx is not installed")


def test_a_proxy_of_an_earlier_version_is_named(
    deployment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_nginx()
    for before_port, port in zip((18101, 18001), free_ports(2), strict=True):
        set_port(deployment, before_port, port)
    check_server(deployment)
    assert not capsys.readouterr().err
    file = deployment / "nginx.conf"
    file.write_text(file.read_text().replace("$request_uri", "$uri"))
    check_server(deployment)
    assert capsys.readouterr().err.startswith("warning: nginx.conf: ")


@pytest.mark.parametrize(
    ("file", "before", "after", "words"),
    [
        ("nginx.conf", "server 127.0.0.1:", "server 127.0.0.1:9", "a different SuperLink (127"),
        ("nginx.conf", "listen ", "# listen ", "no port: add listen"),
        (
            "deploy.toml",
            '"127.0.0.1:18101"',
            '"0.0.0.0:18101"',
            "deploy.toml: superlink: does not fit",
        ),
        ("keys/server.pem", "BEGIN", "NOT", "not a certificate; expected PEM"),
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
    need_nginx()
    path = deployment / file
    changed = path.read_text().replace(before, after)
    assert changed != path.read_text()
    path.write_text(changed)
    # Ports of its own: a server may run on this machine.
    for before_port, port in zip((18101, 18001), free_ports(2), strict=True):
        set_port(deployment, before_port, port)
    assert invoke(["server", "up", str(deployment)]) == 2
    assert words in capsys.readouterr().err


@pytest.fixture
def fake_flower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script that takes the place of Flower's and nginx's commands; it gets its port."""
    script = tmp_path / "fake.py"
    monkeypatch.setattr(
        server_up, "superlink_command", lambda port, *_: [sys.executable, str(script), str(port)]
    )
    monkeypatch.setattr(
        server_up, "nginx_command", lambda nginx, folder: [sys.executable, str(script), "nginx"]
    )
    monkeypatch.setattr(server_up, "find_nginx", lambda: "nginx")
    return script


def test_a_server_ends_with_either_of_its_processes(
    deployment: Path, fake_flower: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    control, outer = free_ports(2)
    set_port(deployment, 18101, control)
    set_port(deployment, 18001, outer)
    # The process that plays nginx ends when a connection has shown that it listens.
    fake_flower.write_text(
        "import socket, sys, time\n"
        f"port = {outer} if sys.argv[1] == 'nginx' else int(sys.argv[1])\n"
        "print('listens on', port, flush=True)\n"
        "listener = socket.create_server(('127.0.0.1', port))\n"
        "listener.accept() if sys.argv[1] == 'nginx' else time.sleep(97)\n"
        "sys.exit(3)\n"
    )
    assert invoke(["server", "up", str(deployment)]) == 7
    seen = capfd.readouterr()
    assert f"up: nodes connect to port {outer}" in seen.out
    assert "next: coterie server add" in seen.out
    # What its processes print is on its output.
    assert f"listens on {control}" in seen.out
    assert "nginx: ended with 3" in seen.err
    left = subprocess.run(["pgrep", "-f", str(fake_flower)], capture_output=True)
    assert left.stdout == b""


@pytest.mark.parametrize(
    ("live", "resumes"),
    [
        ({"doing": "asking"}, True),
        ({"doing": "waiting"}, True),
        ({"doing": "done"}, False),
        ({"doing": "failed"}, False),
        ([], False),
        (None, False),
    ],
)
def test_a_server_that_is_stopped_says_how_its_run_goes_on(
    live: object,
    resumes: bool,
    deployment: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, settings = load_deployment(deployment)
    run = Path(settings.folder) / "a"
    run.mkdir(parents=True)
    if live is not None:
        (run / "live.json").write_text(json.dumps(live))
        (deployment / "last-run.json").write_text(json.dumps({"out": str(run)}))
    for before, port in zip((18101, 18001), free_ports(2), strict=True):
        set_port(deployment, before, port)

    def start(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(server_up, "find_nginx", lambda: "nginx")
    monkeypatch.setattr(server_up, "start", start)
    with pytest.raises(SystemExit) as left:
        invoke(["server", "up", str(deployment)])
    assert left.value.code == 143
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1
    assert said[0].startswith("stopped")
    assert (f"coterie deploy run {deployment} --resume" in said[0]) == resumes


# --- nodes ----------------------------------------------------------------------------------------


@pytest.fixture
def fake_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Site, Path]:
    """A site, and the script that takes the place of its SuperNode."""
    script = tmp_path / "fake.py"
    monkeypatch.setattr(site, "supernode_command", lambda *_: [sys.executable, str(script)])
    monkeypatch.setattr(site, "AGAIN", 0.1)
    made = Site("localhost:1", tmp_path / "ca.crt", "hospital-3", tmp_path, {})
    return made, script


def test_a_node_waits_until_it_is_added_and_ends_with_its_process(
    fake_node: tuple[Site, Path], tmp_path: Path
) -> None:
    made, script = fake_node
    script.write_text(
        "import pathlib, sys\n"
        f"tries = pathlib.Path({str(tmp_path / 'tries')!r})\n"
        "number = int(tries.read_text()) + 1 if tries.exists() else 1\n"
        "tries.write_text(str(number))\n"
        "if number < 4:\n"
        "    print('ERROR: Exit Code: 305 ... Failed to activate SuperNode.')\n"
        "    sys.exit(1)\n"
        "print('INFO: SuperNode ID: 475')\n"
        "print('Flower gave up: status 500')\n"
        "print('Connection attempt failed, retrying in 0.85 seconds')\n"
        "sys.exit(5)\n"
    )
    said: list[str] = []
    with refuses(RemoteError, "failed", "node"):
        run_node(made, said.append)
    assert said[0].startswith("not added yet: send")
    assert said[1:] == [
        "joined as hospital-3; waiting for work",
        "no connection to the server; trying again",
    ]
    # Refused once more, it is one that was let in before.
    (tmp_path / "tries").write_text("2")
    said.clear()
    with pytest.raises(RemoteError):
        run_node(made, said.append)
    assert said[0].startswith(
        "not admitted: the server may still consider the previous process connected"
    )


def test_a_node_that_was_removed_says_so(fake_node: tuple[Site, Path]) -> None:
    """Flower ends it without a word of why: its last line was said to be the reason. Its processes
    then lose each other, and not the server."""
    made, script = fake_node
    lines = (
        "SuperNode ID: 475",
        "SuperNode terminated gracefully.",
        "Connection attempt failed, retrying in 0.06 seconds",
    )
    script.write_text("".join(f"print({line!r})\n" for line in lines))
    said: list[str] = []
    with refuses(RemoteError, "not-trusted", "node"):
        run_node(made, said.append)
    assert said == ["joined as hospital-3; waiting for work"]


def test_a_log_of_a_node_does_not_grow_for_ever_and_its_lines_have_times(
    fake_node: tuple[Site, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, script = fake_node
    monkeypatch.setattr(site, "LARGEST", 2000)
    script.write_text("for n in range(200):\n    print('\\x1b[92mINFO\\x1b[0m: line', n)\n")
    with refuses(RemoteError, "failed", "node"):
        run_node(made, lambda line: None, as_json=True)
    files = {one.name: one.read_text() for one in tmp_path.glob("node.log*")}
    assert sorted(files) == ["node.log", "node.log.1", "node.log.2", "node.log.3"]
    assert all(len(text) <= 2000 for text in files.values())
    newest = "".join(files[name] for name in sorted(files, reverse=True)).splitlines()
    lines = [json.loads(line) for line in newest]
    numbers = [int(line["line"].removeprefix("INFO: line ")) for line in lines]
    assert numbers == list(range(numbers[0], 200))
    assert all(line["time"].endswith("Z") and line["process"] == "node" for line in lines)


def test_a_node_says_when_something_changes(tmp_path: Path) -> None:
    said: list[str] = []
    watch = NodeWatch(said.append, "hospital-3", tmp_path)
    watch.begin()
    watch("WARNING: Connection attempt failed, retrying in 0.50 seconds")  # of its own processes
    watch("ERROR: Exit Code: 305 ... Failed to activate SuperNode.")
    assert (said, watch.refused) == ([], True)
    assert watch.state == "not added"
    watch.begin()
    assert watch.state == "starting"
    watch("INFO: SuperNode ID: 475")
    assert (said, watch.refused) == (["joined as hospital-3; waiting for work"], False)
    assert watch.state == "connected"
    watch("WARNING: Connection attempt failed, retrying in 0.50 seconds")
    watch("WARNING: Connection attempt failed, retrying in 0.75 seconds")
    assert watch.state == "no connection"
    watch("Connection successful after 3 tries")
    assert watch.state == "connected"
    assert said[1:] == ["no connection to the server; trying again", "connected again"]
    # What Flower prints of itself stays in the log.
    watch("INFO: Sending: query message")
    watch("INFO:      coterie: round 3: trained on 212 samples")
    watch("ERROR:     coterie: DataError: label: \x1b[2Jgone")
    assert said[3:] == ["round 3: trained on 212 samples", "DataError: label: \\x1b[2Jgone"]
    # A node that was killed is not admitted for a minute; its site has nothing to send.
    watch.begin()
    watch("ERROR: Exit Code: 305 ... Failed to activate SuperNode.")
    assert watch.state == "not admitted"


@pytest.mark.parametrize(
    "evidence",
    [
        "INFO: Connection successful after 2.50 seconds and 3 tries.",
        # The call that was retried was the push of a reply to a run that a restart ended.
        "INFO: Run ID 1258 is not in `RUNNING` status. Ignoring reply message 9f.",
        "INFO: Run ID 1258 is not in `RUNNING` status. Ignoring message 9f.",
        "INFO: Receiving: train message (ID: 9f)",
        "INFO: Received successfully",
        "INFO: Sent successfully",
        "ERROR: Failed to send message 9f: status 500",
    ],
)
def test_a_call_that_ends_shows_that_a_node_is_connected_again(
    evidence: str, tmp_path: Path
) -> None:
    said: list[str] = []
    watch = NodeWatch(said.append, "hospital-3", tmp_path)
    watch.begin()
    watch("INFO: SuperNode ID: 475")
    for _ in range(2):
        watch("WARNING: Connection attempt failed, retrying in 0.50 seconds")
        # What begins without the server, or goes on without it, shows nothing.
        watch("INFO: Sending: train message (ID: 9f)")
        watch("INFO:      coterie: round 3: trained on 212 samples")
        assert watch.state == "no connection"
        watch(evidence)
        assert watch.state == "connected"
    assert said.count("connected again") == 2


def test_a_node_that_is_stopped_says_so_last(fake_node: tuple[Site, Path]) -> None:
    made, script = fake_node
    script.write_text(
        "import signal, sys, time\n"
        "def end(*_):\n"
        "    print('Connection attempt failed, retrying in 0.85 seconds', flush=True)\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('INFO: SuperNode ID: 475', flush=True)\n"
        "time.sleep(97)\n"
    )
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if line.startswith("joined"):
            os.kill(os.getpid(), signal.SIGTERM)

    with stop_once(), pytest.raises(SystemExit) as left:
        run_node(made, say)
    assert left.value.code == 143
    assert said == ["joined as hospital-3; waiting for work", "stopped"]
    log = (made.folder / "node.log").read_text()
    assert "Connection attempt failed" in log


def test_a_folder_with_the_key_of_another_name_is_refused(
    fake_node: tuple[Site, Path],
) -> None:
    made, _ = fake_node
    make_key(made)
    make_key(made)
    with refuses(ConfigError, "differs", "--name") as caught:
        make_key(replace(made, name="hospital-33"))
    assert "hospital-3:" in str(caught.value)
    assert [file.name for file in made.folder.glob("*.key")] == ["hospital-3.key"]
    # Keys that were made on purpose are used.
    key(made.folder, "hospital-33")
    make_key(replace(made, name="hospital-33"))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere its processes may go on")
def test_a_node_that_was_killed_is_known_by_its_number(tmp_path: Path) -> None:
    watch = NodeWatch(lambda line: None, "hospital-3", tmp_path)
    watch.begin()
    watch("INFO: SuperNode ID: 475")
    # It runs.
    assert killed_node(tmp_path) == ""
    found = json.loads((tmp_path / "state.json").read_bytes())

    def number(**changed: Any) -> str:
        (tmp_path / "state.json").write_text(json.dumps({**found, **changed}))
        return killed_node(tmp_path)

    gone = found["born"] + 9
    assert number(born=gone) == "475"
    # It was not admitted; or it ran on another machine, where it may run still.
    assert number(born=gone, state="not admitted") == ""
    assert number(born=gone, host="elsewhere") == ""
    (tmp_path / "joined").write_text("")
    assert number(born=gone) == ""


def test_a_node_says_whether_it_is_connected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["node", "status", "hospital-3", "--folder", str(tmp_path)]
    assert invoke(asked) == 7
    assert "its node is down: start it with" in capsys.readouterr().err
    watch = NodeWatch(lambda line: None, "hospital-3", tmp_path)
    for state in ("starting", "not added", "not admitted", "no connection"):
        watch.note(state)
        assert invoke(asked) == 7
        assert f"hospital-3: {state} for" in capsys.readouterr().err
    watch.note("connected")
    assert invoke(asked) == 0
    assert f" s (process {os.getpid()})" in capsys.readouterr().out
    found = json.loads((tmp_path / "state.json").read_bytes())
    # The same number, born at another time: the number was given to another process.
    (tmp_path / "state.json").write_text(json.dumps({**found, "born": found["born"] + 9}))
    assert invoke(asked) == 7
    (tmp_path / "state.json").write_text("[]")
    assert invoke(asked) == 7


def test_a_health_check_asks_the_ports(
    deployment: Path, superlink: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["server", "status", str(deployment), "--quick"]
    with socket.socket() as nginx:
        nginx.bind(("127.0.0.1", 0))
        port = nginx.getsockname()[1]
        set_port(deployment, 18001, port)
        assert invoke(asked) == 7
        assert f"nginx is down: no process listens on port {port}" in capsys.readouterr().err
        nginx.listen()
        assert invoke(asked) == 0
        assert f"up: nodes connect to port {port}" in capsys.readouterr().out
    superlink.close()
    assert invoke(asked) == 7
    assert "the server is down" in capsys.readouterr().err
