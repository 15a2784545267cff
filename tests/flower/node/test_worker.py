"""The worker of a node: what Flower's process for a message hands over to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PATIENCE

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")
if sys.platform != "linux":
    pytest.skip("workers need Linux", allow_module_level=True)

from flwr.app import Message
from flwr.common.serde import recorddict_to_proto

from coterie.flower.node import worker_link
from coterie.flower.node.worker import NodeWorker
from coterie.flower.node.worker_link import check_peer, receive, send
from coterie.flower.processes.flower_commands import SUPERNODE
from coterie.flower.processes.process import ProcessId
from tests.engines.fake_grid import FakeGrid
from tests.engines.test_flower import deploy, nodes, tables

pytestmark = pytest.mark.flower

NODE = """
import subprocess, sys
for line in sys.stdin:
    print(subprocess.run([sys.executable, *line.split()]).returncode, flush=True)
"""
MESSAGE = """
import json, sys
from pathlib import Path
from flwr.app import Context, Message, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as Packed
from flwr.supercore.task_identity import TaskIdentity
from coterie.flower.app import client

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
folder = Path(sys.argv[1])
head = json.loads((folder / "head.json").read_text())
content = recorddict_from_proto(Packed.FromString((folder / "content").read_bytes()))
context = Context(1, 100, head["node"], RecordDict(), head["run"])
reply = client(Message(content, 100, head["type"]), context)
(folder / "reply").write_bytes(recorddict_to_proto(reply.content).SerializeToString())
heavy = [name for name in ("torch", "numba", "sklearn") if name in sys.modules]
(folder / "modules.json").write_text(json.dumps(heavy))
"""


@dataclass
class Node:
    """A process with the name of Flower's SuperNode, which starts one for each message."""

    folder: Path
    process: subprocess.Popen[str]
    count: int = 0

    def ask(self, message: Message, node_config: dict[str, Any], run: dict[str, Any]) -> Path:
        """Have a message worked on; returns the folder of what it left."""
        self.count += 1
        folder = self.folder / f"message-{self.count}"
        folder.mkdir()
        head = {"type": message.metadata.message_type, "node": node_config, "run": run}
        (folder / "head.json").write_text(json.dumps(head))
        content = recorddict_to_proto(message.content).SerializeToString()
        (folder / "content").write_bytes(content)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{self.folder / 'message.py'} {folder}\n")
        self.process.stdin.flush()
        (folder / "code").write_text(self.process.stdout.readline())
        return folder

    def workers(self) -> list[int]:
        """The processes that are workers of this node."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = file.read_bytes().split(b"\0")
            except OSError:
                continue
            mine = str(self.process.pid).encode() in words
            if mine and any(b"import work; work()" in word for word in words):
                found.append(int(file.parent.name))
        return found


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    (tmp_path / SUPERNODE).write_text(NODE)
    (tmp_path / "message.py").write_text(MESSAGE)
    # A path of a socket has at most 107 bytes, fewer than some of pytest's have.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="cw-") as place:
        process = subprocess.Popen(
            [sys.executable, "-P", str(tmp_path / SUPERNODE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": place},
        )
        made = Node(tmp_path, process)
        try:
            yield made
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()
            for pid in made.workers():
                os.kill(pid, signal.SIGKILL)


@dataclass
class Played:
    """The messages of a run to node 100, as a process without a worker answered them."""

    sent: list[Message]
    replied: list[Message]
    node_config: dict[str, Any]
    run_config: dict[str, Any]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("played")
    grid: FakeGrid = nodes(folder, tables())
    deploy(folder, tables(), grid)
    pairs = zip(grid.sent, grid.replied, strict=True)
    mine = [pair for pair in pairs if pair[0].metadata.dst_node_id == 100]
    context = grid.contexts[100]
    sent = [one for one, _ in mine]
    return Played(sent, [one for _, one in mine], context.node_config, context.run_config)


def ask(node: Node, played: Played, at: int, **options: Any) -> Path:
    # A fake grid has no workers.
    found = {**played.node_config, "worker": True, **options}
    return node.ask(played.sent[at], found, played.run_config)


def test_the_process_of_a_message_imports_no_torch_and_the_answers_are_the_same(
    node: Node, played: Played
) -> None:
    pids = set()
    for at, expected in enumerate(played.replied):
        folder = ask(node, played, at)
        packed = recorddict_to_proto(expected.content).SerializeToString()
        assert (folder / "reply").read_bytes() == packed
        assert json.loads((folder / "modules.json").read_text()) == []
        pids |= set(node.workers())
    assert len(pids) == 1


def test_a_worker_can_be_switched_off(node: Node, played: Played) -> None:
    folder = ask(node, played, 0, worker=False)
    assert "torch" in json.loads((folder / "modules.json").read_text())
    assert node.workers() == []


def test_a_worker_that_died_is_replaced(node: Node, played: Played) -> None:
    ask(node, played, 0)
    (first,) = node.workers()
    os.kill(first, signal.SIGKILL)
    assert (ask(node, played, 1) / "reply").exists()
    assert node.workers() != [first]


def test_a_message_that_ends_its_worker_fails_alone(
    node: Node, played: Played, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text("import os\ndef load_client(context):\n    os._exit(3)\n")
    folder = ask(node, played, 1, loader=str(tmp_path / "broken.py"))
    assert not (folder / "reply").exists()
    assert (folder / "code").read_text().strip() == "1"
    assert (ask(node, played, 1) / "reply").exists()


def test_a_worker_that_is_too_large_is_replaced(node: Node, played: Played) -> None:
    pids = []
    for at in (0, 1):
        assert (ask(node, played, at, worker_memory=0.01) / "reply").exists()
        pids.append(node.workers())
    assert not set(pids[0]) & set(pids[1])


def test_a_worker_ends_with_its_node(node: Node, played: Played) -> None:
    ask(node, played, 0)
    assert len(node.workers()) == 1
    node.process.kill()
    node.process.wait()
    end = time.monotonic() + PATIENCE
    while node.workers() and time.monotonic() < end:
        time.sleep(0.05)
    assert node.workers() == []


# --- the socket -----------------------------------------------------------------------------------


def served(worker: NodeWorker) -> threading.Thread:
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    return thread


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="cw-") as folder:
        yield Path(folder)


def listening(file: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(file))
    listener.listen(4)
    return listener


def connected(file: Path) -> Connection:
    return Client(str(file), "AF_UNIX")


def test_what_is_no_message_ends_nothing(place: Path) -> None:
    # It would end for want of work while a busy machine keeps this test waiting: not before the end.
    worker = NodeWorker(
        listening(place / "s"), lambda head, body: ({}, body[::-1]), 2**50, idle=60.0
    )
    thread = served(worker)
    deep = b"[" * 5_000 + b"]" * 5_000
    deep = len(deep).to_bytes(4, "big") + deep
    for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 12, b"\x00\x00\x00\x02[]", deep):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            other.connect(str(place / "s"))
            other.sendall(garbage)
    with connected(place / "s") as connection:
        send(connection, {"identity": 1}, b"abc")
        assert receive(connection) == ({"taken": True}, b"")
        assert receive(connection) == ({}, b"cba")
    with connected(place / "s") as connection:
        # Another version of the app: the next worker's.
        send(connection, {"identity": 2}, b"abc")
        assert receive(connection) == ({"taken": False}, b"")
    thread.join(60.0)
    assert not thread.is_alive()


def test_a_message_starts_no_thread(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory is short a thread may never say that it began: the worker hung, and its node
    answered nothing any more."""
    worker = NodeWorker(listening(place / "s"), lambda head, body: ({}, body), 2**50, idle=60.0)
    thread = served(worker)

    def no_memory(thread: threading.Thread) -> None:
        raise MemoryError

    for _ in range(2):
        with connected(place / "s") as connection:
            send(connection, {"identity": 1}, b"abc")
            assert receive(connection) == ({"taken": True}, b"")
            assert receive(connection) == ({}, b"abc")
        # From the second message on.
        monkeypatch.setattr(threading.Thread, "start", no_memory)
    with connected(place / "s") as connection:
        send(connection, {"identity": 2}, b"abc")
        assert receive(connection) == ({"taken": False}, b"")
    thread.join(60.0)
    assert not thread.is_alive()


def test_a_worker_that_listens_no_longer_ends_though_its_last_answer_is_lost(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise BrokenPipeError("the other process ended")

    worker = NodeWorker(listening(place / "s"), lambda head, body: ({}, b""), 2**50, idle=300.0)
    worker.identity = 1
    monkeypatch.setattr("coterie.flower.node.worker.send", lost)
    thread = served(worker)
    with connected(place / "s") as connection:
        send(connection, {"identity": 2}, b"")
        thread.join(60.0)
    assert not thread.is_alive()


def test_processes_of_other_users_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other:
        check_peer(one)
        monkeypatch.setattr(worker_link.os, "getuid", lambda: os.geteuid() + 1)
        with pytest.raises(PermissionError, match="a process of another user"):
            check_peer(one)


def test_a_folder_that_others_may_enter_is_not_used(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setattr(worker_link, "_node_above", lambda: ProcessId(os.getpid(), 1))
    found = worker_link.find_place({}, "pass")
    assert found is not None
    assert found.folder.stat().st_mode & 0o777 == 0o700
    found.folder.chmod(0o755)
    assert worker_link.find_place({}, "pass") is None
    found.folder.rmdir()
    found.folder.symlink_to(place / "elsewhere")
    assert worker_link.find_place({}, "pass") is None
