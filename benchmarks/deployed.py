"""Seconds of an exchange over Flower: Coterie's FedAvg beside Flower's own, on the same nodes, in
turn.

A SuperLink and three SuperNodes with TLS and node keys on this machine; both apps train MCLR on
each node's share of digits, one epoch of batches of ten, and score nothing. An exchange is from
sending a round's messages to the last reply.

    python benchmarks/deployed.py [--nodes 3] [--rounds 6] [--turns 2]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from coterie.config import check
from coterie.config.reading import read
from coterie.deploy.flower_commands import FEDERATION, flower_home, run_flwr
from coterie.deploy.folder import init
from coterie.deploy.follow import follow, run_status
from coterie.deploy.local import local_federation
from coterie.deploy.settings import load_deployment
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
evaluate_every = {rounds}
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

    def configure_train(self, *given):
        self.begun = time.perf_counter()
        return super().configure_train(*given)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        self.seconds.append(time.perf_counter() - self.begun)
        return super().aggregate_train(server_round, replies)


@app.main()
def main(grid, context):
    given = context.run_config
    nodes = int(given["nodes"])
    strategy = Timed(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    strategy.start(grid, ArrayRecord(torch.nn.Linear(64, 10).state_dict()), int(given["rounds"]))
    with open(given["out"], "w") as file:
        json.dump(strategy.seconds, file)
"""
CLIENT = """
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits

app = ClientApp()


@app.train()
def train(message, context):
    nodes, share = int(context.run_config["nodes"]), int(context.node_config["share"])
    x, y = (torch.tensor(values)[share::nodes] for values in load_digits(return_X_y=True))
    x = x.float() / 16
    net = torch.nn.Linear(64, 10)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    for rows in torch.randperm(len(y)).split(10):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimiser.step()
    metrics = MetricRecord({"num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)
"""


def plain(folder: Path, home: Path, nodes: int, rounds: int) -> list[float]:
    """Exchanges of Flower's own FedAvg."""
    folder.mkdir(exist_ok=True)
    out = folder / "seconds.json"
    out.unlink(missing_ok=True)
    files = {
        "pyproject.toml": PROJECT,
        "server.py": SERVER,
        "client.py": CLIENT,
        "LICENSE": "MIT\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    given = f"rounds={rounds} nodes={nodes} out='{out}'"
    run = int(run_flwr(home, ["run", str(folder), FEDERATION, "--run-config", given])["run-id"])
    while not run_status(home, run).startswith("finished"):
        time.sleep(1.0)
    return list(json.loads(out.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--turns", type=int, default=2)
    args = parser.parse_args()
    found: dict[str, list[float]] = {"coterie": [], "flower": []}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "d"
        (Path(place) / "run.toml").write_text(CONFIG.format(nodes=args.nodes, rounds=args.rounds))
        init(folder, Path(place) / "run.toml")
        config, settings = load_deployment(folder)
        config = check(read(folder / "run.toml"))
        with local_federation(folder, args.nodes) as federation:
            known = federation.settings(settings)
            known = replace(known, longest_wait=300.0, reply_wait=300.0)
            home = flower_home(folder)
            for turn in range(args.turns):
                out = folder / "runs" / f"run-{turn}"
                run = submit(folder, config, known, str(out), False)
                follow(home, config, run)
                rows = [
                    json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()
                ]
                found["coterie"] += [row["seconds"]["training"] for row in rows[1:]]
                seconds_of_flower = plain(Path(place) / "plain", home, args.nodes, args.rounds)
                found["flower"] += seconds_of_flower[1:]
                for name, seconds in found.items():
                    print(name, " ".join(f"{s:.1f}" for s in seconds), flush=True)
    median = {name: statistics.median(seconds) for name, seconds in found.items()}
    for name, seconds in median.items():
        print(
            f"{name}: median {seconds:.2f} s, {seconds / median['flower']:.2f} of Flower's own (asked: 1.10)"
        )


if __name__ == "__main__":
    main()
