"""Hundreds of nodes over a real SuperLink, on one machine: time of an exchange, memory, and whether
the models are those of a simulation.

A SuperNode is a process, and two hundred of them do not fit on a small machine. Here one process is all
nodes: for each it opens Flower's own connection of a SuperNode (TLS, a key of its own, signed requests,
heartbeats), asks for messages every 3 s as a SuperNode does (or less often, where the machine is too
small to serve so many), and answers them with the code of a node.
SuperLink, nginx and ServerApp are the real ones, each its own process.

What it does not show: the time that nodes take to start a process for each message, and to train at the
same time as others. They train one after another here.

    python -m benchmarks.many_nodes --nodes 200 --rounds 4 --out many_nodes.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import tomli_w
from cryptography.hazmat.primitives import serialization
from flwr.app import Context, Message, RecordDict
from flwr.common.config import get_fused_config_from_fab
from flwr.proto.control_pb2 import RegisterNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_connection import http_request_response

from coterie.data.population import Population
from coterie.engines.flower.messages import ASK_IDENTITY
from coterie.experiment import check
from coterie.flower.keys import make_node_key
from coterie.flower.node.app import answer_requests, describe_client
from coterie.flower.operate.folder import init
from coterie.flower.operate.local import LocalFederation, client_names, local_federation
from coterie.flower.operate.submit import submit
from coterie.flower.settings import load_deployment
from coterie.runs.data import load_data
from coterie.runs.run import run_config
from tests.live.federations import difference
from tests.live.soak_processes import growth, sample

THREADS = 4
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedgroup": {"groups": 3, "alpha": 20},
    "ifca": {"groups": 3},
}


# --- the nodes ------------------------------------------------------------------------------------


@dataclass
class DrivenNode:
    """One node: its connection, and what it knows of the run.

    Args:
        name: of its client.
        config: of the node, as ``node.toml`` would have it.
        connection: Flower's callbacks, as a SuperNode gets them.
        every: seconds after which it asks again.
        due: when it asks for messages next.
        context: of the run.
    """

    name: str
    config: dict[str, Any]
    connection: tuple[Any, ...]
    every: float = 3.0
    due: float = 0.0
    context: Context | None = None

    def ask(self) -> bool:
        """Ask for a message, and answer it; returns whether there was one."""
        node_id, receive, send, get_run, get_fab, pull, push, confirm = self.connection
        received = receive()
        if received is None:
            self.due = time.monotonic() + self.every
            return False
        announced, tree = received
        run_id = announced.metadata.run_id
        if self.context is None or self.context.run_id != run_id:
            run = get_run(run_id)
            run_config = get_fused_config_from_fab(get_fab(run.fab_hash, run_id).content, run)
            self.context = Context(run_id, node_id, self.config, RecordDict(), run_config)
        names = [one.object_id for one in iterate_object_tree(tree)]
        contents = pull_objects(names, pull_object_fn=lambda name: pull(run_id, name))
        confirm(run_id, announced.metadata.message_id)
        message = inflate_object_from_contents(announced.metadata.message_id, contents)
        # Its name is that of its content, and so no part of it.
        message.metadata.__dict__["_message_id"] = announced.metadata.message_id
        begun = time.monotonic()
        reply = Message(self._answer(message), reply_to=message)
        self._send(reply, run_id, time.monotonic() - begun, send, push)
        self.due = 0.0
        return True

    def _answer(self, message: Message) -> RecordDict:
        answer = answer_requests
        if message.metadata.message_type == ASK_IDENTITY:
            answer = describe_client
        content: RecordDict = answer(message.content, self.context, None)
        return content

    def _send(self, reply: Message, run_id: int, seconds: float, send: Any, push: Any) -> None:
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            objects = {name: one.deflate() for name, one in get_all_nested_objects(reply).items()}
            wanted, session = send(reply, get_object_tree(reply), seconds)
            for name in wanted:
                push(run_id, session, name, objects[name])


@dataclass
class Driver:
    """All nodes, shared by a few threads.

    Args:
        nodes: their connections are open.
        over: set at the end.
        errors: what went wrong.
    """

    nodes: Sequence[DrivenNode]
    over: threading.Event = field(default_factory=threading.Event)
    errors: list[str] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Answer messages while the body runs."""
        shares = [self.nodes[number::THREADS] for number in range(THREADS)]
        threads = [threading.Thread(target=self._serve, args=(share,)) for share in shares]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join()

    def _serve(self, nodes: Sequence[DrivenNode]) -> None:
        while not self.over.is_set():
            now = time.monotonic()
            due = [node for node in nodes if node.due <= now]
            for node in due:
                try:
                    node.ask()
                except Exception as error:  # noqa: BLE001 - one node must not stop the others
                    self.errors.append(f"{node.name}: {type(error).__name__}: {error}")
                    node.due = time.monotonic() + node.every
            if not due:
                self.over.wait(0.05)


def open_nodes(
    stack: ExitStack,
    federation: LocalFederation,
    names: Sequence[str],
    folder: Path,
    every: float,
) -> list[DrivenNode]:
    """Connect all nodes, each with its own key.

    Args:
        stack: closes the connections.
        federation: whose SuperLink is up.
        names: of the clients.
        folder: of their files.
        every: seconds after which each asks again.
    """
    certificates = (federation.keys / "ca.crt").read_bytes()
    nodes = []
    for name in names:
        private = serialization.load_ssh_private_key(
            (federation.keys / f"{name}.key").read_bytes(), None
        )
        keys = (private, private.public_key())
        connection = http_request_response(federation.address, False, certificates, keys)
        config = {
            "client": name,
            "data": str(folder / name),
            "shape": "1,8,8",
            "cache": str(folder / "cache"),
        }
        nodes.append(DrivenNode(name, config, stack.enter_context(connection), every))
    return nodes


def register(federation: LocalFederation, names: Sequence[str]) -> None:
    """Register all keys, in this process: a command for each would take minutes."""
    certificates = (federation.keys / "ca.crt").read_bytes()
    speaks = [RuntimeVersionHttpInterceptor(component_name="flwr CLI")]
    with ControlHttpClient.from_server_address(
        federation.control, False, certificates, speaks
    ) as control:
        for name in names:
            key = make_node_key(federation.keys, name).with_name(f"{name}.pub")
            public = serialization.load_ssh_public_key(key.read_bytes())
            control.RegisterNode(
                RegisterNodeRequest(public_key=public_key_to_bytes(public), name=name)
            )


def write_shares(folder: Path, names: Sequence[str], population: Population) -> None:
    """The samples of each client as files, as a site has them."""
    x = population.x.numpy()
    y = population.y.numpy()
    for client, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for split in ("train", "test"):
            rows = population.parts(split)[client]
            columns = {"x": list(x[rows].reshape(len(rows), -1)), "label": y[rows]}
            parquet.write_table(pa.table(columns), folder / name / f"{split}.parquet")


# --- the measurement ------------------------------------------------------------------------------


def tables(method: str, nodes: int, cohort: int, rounds: int) -> dict[str, Any]:
    """The configuration of the run."""
    partition = {"kind": "planted", "clients": nodes, "groups": 3}
    return {
        "seed": 3,
        "data": {"source": "digits", "partition": partition},
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "lr": 0.1},
        "train": {"rounds": rounds, "clients_per_round": cohort, "evaluate_every": rounds},
        "algorithm": {"name": method, **METHODS[method]},
        "evaluate": {"order": "before"},
    }


def measure(method: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a method on so many nodes, and in a simulation."""
    nodes = options.nodes
    cohort = options.cohort
    rounds = options.rounds
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(temporary)
        made = tables(method, nodes, cohort, rounds)
        (folder / "run.toml").write_text(tomli_w.dumps(made))
        init(folder / "d", folder / "run.toml")
        names = client_names(nodes)
        write_shares(folder / "data", names, load_data(check(made))[2])
        begun = time.monotonic()
        federation = stack.enter_context(local_federation(folder / "d", 0))
        register(federation, names)
        registered = time.monotonic() - begun
        driver = Driver(open_nodes(stack, federation, names, folder / "data", options.ask_every))
        connected = time.monotonic() - begun - registered
        out = folder / "d" / "runs" / "one"
        with driver.running(), _memory(folder) as memory:
            config, settings = load_deployment(folder / "d")
            known = replace(federation.settings(settings), reply_wait=600.0, longest_wait=600.0)
            submit(folder / "d", config, known, str(out), False)
            _wait_for_end(out, options.longest)
        simulated = folder / "simulated"
        run_config(check({**made, "engine": {"name": "serial"}}), simulated)
        rows = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
        exchanges = json.loads((out / "live.json").read_text())["exchanges"]
        return {
            "method": method,
            "nodes": nodes,
            "ask_every": options.ask_every,
            "clients_per_round": cohort,
            "rounds": rounds,
            "difference": difference(out, simulated),
            "seconds_register": round(registered, 1),
            "seconds_connect": round(connected, 1),
            "seconds_round": [round(row["seconds"]["total"], 1) for row in rows],
            "exchanges": [_parts(one) for one in exchanges],
            "refused": [row["refused"] for row in rows],
            "memory_mib": {role: one["most"] for role, one in growth(memory).items()},
            "driver_mib": _peak_of_this_process(),
            "errors": driver.errors[:20],
        }


def _wait_for_end(run: Path, longest: float) -> None:
    """Wait for a run's summary. Its folder is looked at, since every command of Flower's would take
    processor time from it."""
    end = time.monotonic() + longest
    while not (run / "summary.json").exists():
        with suppress(OSError, ValueError):
            live = json.loads((run / "live.json").read_text())
            if live["doing"] == "failed":
                raise SystemExit(f"the run failed: {live['lines'][-1:]}")
        if time.monotonic() > end:
            raise SystemExit(f"the run did not end in {longest:g} s")
        time.sleep(1.0)


def _parts(exchange: dict[str, Any]) -> dict[str, Any]:
    answered = sorted(exchange["answered"].values())
    return {
        "kind": exchange["kind"],
        "clients": len(answered),
        "sending": round(exchange["sending"], 2),
        "first": round(answered[0], 2) if answered else None,
        "median": round(float(np.median(answered)), 2) if answered else None,
        "last": round(answered[-1], 2) if answered else None,
        "reading": round(exchange["reading"], 2),
    }


@contextmanager
def _memory(folder: Path) -> Iterator[Path]:
    """Sample the memory of all processes of a folder while the body runs."""
    file = folder / "memory.jsonl"
    over = threading.Event()

    def watch() -> None:
        begun = time.monotonic()
        with file.open("w") as out:
            while not over.wait(5.0):
                for row in sample(folder, time.monotonic() - begun):
                    out.write(json.dumps(row) + "\n")

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield file
    finally:
        over.set()
        thread.join()


def _peak_of_this_process() -> float:
    text = Path("/proc/self/status").read_text()
    kib = next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM"))
    return round(int(kib) / 1024, 1)


def main() -> int:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--cohort", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--ask-every", type=float, default=3.0, help="seconds; a SuperNode's: 3")
    parser.add_argument("--longest", type=float, default=3600.0, help="seconds of a run")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=["fedavg"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    # One thread: sums come in the order of a simulation's.
    os.environ["OMP_NUM_THREADS"] = "1"
    found = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join(["python -m benchmarks.many_nodes", *sys.argv[1:]]),
        "load": [round(one, 1) for one in os.getloadavg()],
        "runs": [],
    }
    for method in options.methods:
        found["runs"].append(measure(method, options))
        text = json.dumps(found, indent=1) + "\n"
        print(text, flush=True)
        if options.out is not None:
            options.out.write_text(text)
    return max(int(run["difference"] > 1e-6) for run in found["runs"])


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
