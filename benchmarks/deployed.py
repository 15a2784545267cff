"""Seconds of an exchange over Flower: Coterie's FedAvg, with workers at the nodes and without,
beside Flower's own and an app that does nothing, on the same nodes, in turn.

A SuperLink and three SuperNodes with TLS and node keys on this machine; both FedAvgs train MCLR on
each node's share of digits, one epoch of batches of ten, and score the model in every round. An
exchange is from sending the messages to the last reply: Coterie's has training and scoring in one,
Flower's own has one for each. The app that does nothing imports Flower alone: it is the floor.

    python benchmarks/deployed.py [--nodes 3] [--rounds 6] [--turns 2]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from coterie.config import RunConfig, check
from coterie.config.reading import read
from coterie.deploy.flower_commands import FEDERATION, flower_home, run_flwr
from coterie.deploy.folder import init
from coterie.deploy.follow import follow, run_status
from coterie.deploy.local import local_federation
from coterie.deploy.settings import DeploymentSettings, load_deployment
from coterie.deploy.submit import submit

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


Seconds = dict[str, list[float]]


def other_app(
    folder: Path, home: Path, server: str, client: str, nodes: int, rounds: int
) -> Seconds:
    """Exchanges and rounds of an app that is none of Coterie's, but for the first of each."""
    folder.mkdir(exist_ok=True)
    out = folder / "seconds.json"
    out.unlink(missing_ok=True)
    files = {
        "pyproject.toml": PROJECT.replace('"plain"', f'"{folder.name}"'),
        "server.py": server,
        "client.py": client,
        "LICENSE": "MIT\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    given = f"rounds={rounds} nodes={nodes} out='{out}'"
    run = int(run_flwr(home, ["run", str(folder), FEDERATION, "--run-config", given])["run-id"])
    while not run_status(home, run).startswith("finished"):
        time.sleep(1.0)
    return {what: seconds[1:] for what, seconds in json.loads(out.read_text()).items()}


def coterie_app(
    folder: Path, config: RunConfig, settings: DeploymentSettings, out: Path
) -> Seconds:
    """Exchanges of Coterie but for the first and the last, which scores once more."""
    run = submit(folder, config, settings, str(out), False)
    follow(flower_home(folder), config, run)
    rows = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()][1:-1]
    assert all(row["exchanges"] == 1 for row in rows)
    return {what: [row["seconds"][key] for row in rows] for what, key in PARTS.items()}


# What is measured -> the key of a row's seconds.
PARTS = {"exchange": "training", "round": "total"}


def measure(folder: Path, nodes: int, rounds: int, turns: int, name: str) -> dict[str, Seconds]:
    """All apps in turn on one set of nodes."""
    config, settings = load_deployment(folder)
    config = check(read(folder / "run.toml"))
    found: dict[str, Seconds] = {}
    with local_federation(folder, nodes) as federation:
        known = replace(federation.settings(settings), longest_wait=300.0, reply_wait=300.0)
        home = flower_home(folder)
        for turn in range(turns):
            out = folder / "runs" / f"run-{name}-{turn}"
            place = folder.parent
            seconds = {
                name: coterie_app(folder, config, known, out),
                f"flower beside {name}": other_app(
                    place / "plain", home, SERVER, CLIENT, nodes, rounds
                ),
                f"empty beside {name}": other_app(
                    place / "empty", home, EMPTY_SERVER, EMPTY_CLIENT, nodes, rounds
                ),
            }
            for app, parts in seconds.items():
                for what, values in parts.items():
                    found.setdefault(app, {}).setdefault(what, []).extend(values)
                    print(app, what, " ".join(f"{one:.1f}" for one in values), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--turns", type=int, default=2)
    args = parser.parse_args()
    for name, on in (("warm", "1"), ("cold", "0")):
        # The nodes inherit it.
        os.environ["COTERIE_WORKER"] = on
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "d"
            config = Path(place) / "run.toml"
            config.write_text(CONFIG.format(nodes=args.nodes, rounds=args.rounds))
            init(folder, config)
            found = measure(folder, args.nodes, args.rounds, args.turns, name)
        for what in PARTS:
            median = {app: statistics.median(parts[what]) for app, parts in found.items()}
            for other in (f"flower beside {name}", f"empty beside {name}"):
                ratio = median[name] / median[other]
                print(
                    f"{what}: {name} {median[name]:.2f} s, {other} {median[other]:.2f} s, ratio {ratio:.2f}"
                )


if __name__ == "__main__":
    main()
