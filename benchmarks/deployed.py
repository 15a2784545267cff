"""An exchange over Flower: Coterie's FedAvg, with workers at the nodes and without, beside Flower's
own and an app that does nothing, on the same nodes, in turn.

A SuperLink and three SuperNodes with TLS and node keys on this machine; both FedAvgs train MCLR on
each node's share of digits, one epoch of batches of ten, and score the model in every round. An
exchange is from sending the messages to the last reply: Coterie's has training and scoring in one,
Flower's own has one for each. The app that does nothing imports Flower alone: it is the floor.

What is measured: seconds of an exchange and of a whole round; the parts of Coterie's exchanges (requests
sent, first answer, last answer, reading); and the processor time of a message at a node, which is that
of the process that Flower starts for it and of the node's worker. A run before the first turn starts the
workers and is not counted.

    python benchmarks/deployed.py [--nodes 3] [--rounds 6] [--turns 2] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coterie.config.toml_text import read
from coterie.experiment import Experiment, check
from coterie.flower.app import WORKER
from coterie.flower.operate.folder import init
from coterie.flower.operate.local import local_federation
from coterie.flower.operate.submit import follow, run_status, submit
from coterie.flower.processes.flower_commands import FEDERATION, flower_home, run_flwr
from coterie.flower.processes.process import descendants
from coterie.flower.server.live import LIVE
from coterie.flower.settings import DeploymentSettings, load_deployment

CONFIG = """
[data]
source = "digits"
partition = {{kind = "iid", clients = {nodes}}}
[model]
name = "mclr"
[local]
epochs = 1
batch_size = 10
lr = 0.1
[train]
rounds = {rounds}
clients_per_round = {nodes}
evaluate_every = 1
[algorithm]
name = "fedavg"
"""
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "plain"
version = "1.0.0"
description = "FedAvg as Flower's documentation has it"
license = { file = "LICENSE" }
dependencies = ["flwr"]
[tool.flwr.app]
publisher = "plain"
license = { file = "LICENSE" }
fab-include = ["*.py", "LICENSE"]
[tool.flwr.app.components]
serverapp = "server:app"
clientapp = "client:app"
[tool.flwr.app.config]
rounds = 1
nodes = 1
out = ""
"""
SERVER = """
import json
import time

import torch
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


class Timed(FedAvg):
    seconds = []
    rounds = []

    def configure_train(self, *given):
        self.begun = time.perf_counter()
        return super().configure_train(*given)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        self.seconds.append(time.perf_counter() - self.begun)
        return super().aggregate_train(server_round, replies)

    def aggregate_evaluate(self, server_round, replies):
        replies = list(replies)
        self.rounds.append(time.perf_counter() - self.begun)
        return super().aggregate_evaluate(server_round, replies)


@app.main()
def main(grid, context):
    given = context.run_config
    nodes = int(given["nodes"])
    least = dict(min_train_nodes=nodes, min_evaluate_nodes=nodes, min_available_nodes=nodes)
    strategy = Timed(**least)
    strategy.start(grid, ArrayRecord(torch.nn.Linear(64, 10).state_dict()), int(given["rounds"]))
    with open(given["out"], "w") as file:
        json.dump({"exchange": strategy.seconds, "round": strategy.rounds}, file)
"""
CLIENT = """
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits

app = ClientApp()


def data(context):
    nodes, share = int(context.run_config["nodes"]), int(context.node_config["share"])
    x, y = (torch.tensor(values)[share::nodes] for values in load_digits(return_X_y=True))
    return x.float() / 16, y


def model(message):
    net = torch.nn.Linear(64, 10)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return net


@app.train()
def train(message, context):
    x, y = data(context)
    net = model(message)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    for rows in torch.randperm(len(y)).split(10):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimiser.step()
    metrics = MetricRecord({"num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate(message, context):
    x, y = data(context)
    right = int((model(message)(x).argmax(1) == y).sum())
    metrics = MetricRecord({"num-examples": len(y), "accuracy": right / len(y)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)
"""
EMPTY_SERVER = """
import json
import time

from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


def exchange(grid, nodes):
    begun = time.perf_counter()
    sent = [Message(RecordDict(), node, "train") for node in nodes]
    left = set(grid.push_messages(sent))
    pause = 0.25
    while left:
        left -= {reply.metadata.reply_to_message_id for reply in grid.pull_messages(left)}
        if left:
            time.sleep(pause)
            pause = min(2.0, 1.2 * pause)
    return time.perf_counter() - begun


@app.main()
def main(grid, context):
    given = context.run_config
    while len(list(grid.get_node_ids())) < int(given["nodes"]):
        time.sleep(0.5)
    nodes = list(grid.get_node_ids())
    seconds = [exchange(grid, nodes) for _ in range(int(given["rounds"]))]
    with open(given["out"], "w") as file:
        json.dump({"exchange": seconds, "round": seconds}, file)
"""
EMPTY_CLIENT = """
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    return Message(RecordDict(), reply_to=message)
"""


Figures = dict[str, list[float]]
TICKS = os.sysconf("SC_CLK_TCK")
MESSAGE = "processor time of a message"
# What is measured -> the key of a row's seconds.
ROWS = {"exchange": "training", "round": "total"}
# The most that a median may be of another one's, as issue 23 asks: warm -> beside it.
LIMITS = {
    ("exchange", "empty"): 1.2,
    ("exchange", "flower"): 0.5,
    ("round", "flower"): 0.3,
    (MESSAGE, "empty"): 1.2,
}


# --- processor time -------------------------------------------------------------------------------


def node_seconds(nodes: Sequence[int]) -> float:
    """Processor time so far of all messages of these nodes.

    Flower's process beside a SuperNode starts one for each message. Linux counts those that it has
    taken note of as its children, and others have their own count. A worker is no child of it.

    Args:
        nodes: numbers of the SuperNodes' processes.
    """
    started = {one.pid for node in nodes for one in descendants(node)}
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
            name, _, rest = (folder / "stat").read_text().rpartition(")")
        except OSError:
            continue
        own, children = times(rest.split())
        is_worker = WORKER in words and any(str(node) in words for node in nodes)
        below = int(folder.name) in started
        if is_worker or (below and "flwr-clientapp" in name):
            ticks += own
        elif below and any(word.endswith("flower-superexec") for word in words):
            ticks += children
    return ticks / TICKS


def times(fields: Sequence[str]) -> tuple[int, int]:
    """Ticks of a process itself and of its children that ended, from ``/proc/PID/stat``."""
    return int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])


# --- one run of each app --------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where apps run.

    Args:
        folder: of the deployment.
        nodes: numbers of the SuperNodes' processes.
        rounds: of each run.
    """

    folder: Path
    nodes: Sequence[int]
    rounds: int


def other_app(place: Place, name: str, server: str, client: str, messages: int) -> Figures:
    """An app that is none of Coterie's: exchanges and rounds but for the first of each.

    Args:
        place: where it runs.
        name: of the app.
        server: the code of its server.
        client: the code of its client.
        messages: that each node gets in a round.
    """
    folder = place.folder.parent / name
    folder.mkdir(exist_ok=True)
    out = folder / "seconds.json"
    out.unlink(missing_ok=True)
    files = {
        "pyproject.toml": PROJECT.replace('"plain"', f'"{folder.name}"'),
        "server.py": server,
        "client.py": client,
        "LICENSE": "MIT\n",
    }
    for file, text in files.items():
        (folder / file).write_text(text)
    before = node_seconds(place.nodes)
    given = f"rounds={place.rounds} nodes={len(place.nodes)} out='{out}'"
    home = flower_home(place.folder)
    run = int(run_flwr(home, ["run", str(folder), FEDERATION, "--run-config", given])["run-id"])
    while not run_status(home, run).startswith("finished"):
        time.sleep(1.0)
    spent = node_seconds(place.nodes) - before
    found: Figures = {what: all[1:] for what, all in json.loads(out.read_text()).items()}
    return found | {MESSAGE: [spent / (messages * place.rounds * len(place.nodes))]}


def coterie_app(
    place: Place, config: Experiment, settings: DeploymentSettings, out: Path
) -> Figures:
    """Coterie's FedAvg: rounds but for the first and the last, which scores once more."""
    before = node_seconds(place.nodes)
    run = submit(place.folder, config, settings, str(out), False)
    follow(flower_home(place.folder), config, run)
    spent = node_seconds(place.nodes) - before
    rows = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()][1:-1]
    assert all(row["exchanges"] == 1 for row in rows)
    found: Figures = {what: [row["seconds"][key] for row in rows] for what, key in ROWS.items()}
    # Who a client is, a message for each round, and one to score the last models.
    messages = (place.rounds + 2) * len(place.nodes)
    return found | parts_of(out) | {MESSAGE: [spent / messages]}


def parts_of(run: Path) -> Figures:
    """Seconds of the parts of a run's exchanges, without the first and the last."""
    exchanges = json.loads((run / LIVE).read_bytes())["exchanges"][1:-1]
    return {
        "requests sent": [one["sending"] for one in exchanges],
        "first answer": [min(one["answered"].values()) for one in exchanges],
        "last answer": [max(one["answered"].values()) for one in exchanges],
        "reading": [one["reading"] for one in exchanges],
    }


def measure(folder: Path, nodes: int, rounds: int, turns: int) -> dict[str, Figures]:
    """All apps in turn on one set of nodes."""
    _, settings = load_deployment(folder)
    config = check(read(folder / "run.toml"))
    found: dict[str, Figures] = {}
    with local_federation(folder, nodes) as federation:
        known = replace(federation.settings(settings), longest_wait=300.0, reply_wait=300.0)
        place = Place(folder, [one.pid for one in federation.nodes.values()], rounds)
        coterie_app(place, config, known, folder / "runs" / "first")
        for turn in range(turns):
            figures = {
                "coterie": coterie_app(place, config, known, folder / "runs" / f"run-{turn}"),
                # Each of its rounds has a message to train and one to score.
                "flower": other_app(place, "plain", SERVER, CLIENT, 2),
                "empty": other_app(place, "empty", EMPTY_SERVER, EMPTY_CLIENT, 1),
            }
            for app, parts in figures.items():
                for what, values in parts.items():
                    found.setdefault(app, {}).setdefault(what, []).extend(values)
                    print(app, what, " ".join(f"{one:.2f}" for one in values), flush=True)
    return found


def report(name: str, found: dict[str, Figures]) -> None:
    """Print the medians, and what the issue asks of the warm nodes."""
    median = {
        app: {what: statistics.median(values) for what, values in parts.items()}
        for app, parts in found.items()
    }
    for what, value in median["coterie"].items():
        print(f"{name}: {what}: {value:.2f} s")
    for (what, other), limit in LIMITS.items():
        ours = median["coterie"][what]
        theirs = median[other][what]
        asked = f" (asked at most {limit})" if name == "warm" else ""
        ratio = f"ratio {ours / theirs:.2f}{asked}"
        print(f"{name}: {what}: {ours:.2f} s, {other} {theirs:.2f} s, {ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    all: dict[str, dict[str, Figures]] = {}
    for name, on in (("warm", "1"), ("cold", "0")):
        # The nodes inherit it.
        os.environ["COTERIE_WORKER"] = on
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "d"
            config = Path(place) / "run.toml"
            config.write_text(CONFIG.format(nodes=args.nodes, rounds=args.rounds))
            init(folder, config)
            all[name] = measure(folder, args.nodes, args.rounds, args.turns)
        report(name, all[name])
        if args.out is not None:
            args.out.write_text(json.dumps(all, indent=1))


if __name__ == "__main__":
    main()
