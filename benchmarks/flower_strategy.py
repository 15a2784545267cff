"""Coterie's methods as a strategy of an ordinary Flower app, in Flower's simulation runtime.

30 nodes hold digits, turned by one of four angles, and a ``ClientApp`` with PyTorch trains and
evaluates the models that it is sent. One ``flwr run`` does all of it on the same nodes:

``groups``  each method in the app beside `ct.run` with the same first models and the same batches:
            the adjusted Rand index of the groups, and the accuracy after the last round.
``cost``    the seconds of a round with Flower's own ``FedAvg`` and with ``ClusteredStrategy``, in
            turn, and the ratio of the medians.

    python -m benchmarks.flower_strategy groups [--rounds 8] [--cfl-rounds 16] [--out FILE.json]
    python -m benchmarks.flower_strategy cost [--rounds 6] [--pairs 5] [--out FILE.json]

What makes both sides alike: the app draws the order of its samples as `ct.run` does in a round; it
reports the loss on its training samples, on which `ct.run` compares models; and FedGroup's cold
start trains as long as a round does. In a cold start, and in FedClust's first training, the app
takes the batches of the round, and `ct.run` draws others.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

import coterie as ct
from coterie.core.vectors import Layout
from coterie.flower import ClusteredStrategy
from coterie.flower.processes.flower_commands import (
    FEDERATION,
    environment,
    run_flwr,
    write_connection,
)
from coterie.flower.processes.process import free_ports, start, stop, wait_for_port
from coterie.models import initial_models

NODES = 30
TURNS = 4
SEED = 0
EPOCHS = 10
BATCH = 10
RATE = 0.1
METHODS: dict[str, Callable[[], ct.Method]] = {
    "FedAvg": ct.fedavg,
    "FedGroup": lambda: ct.fedgroup(groups=TURNS, alpha=8, pretrain="epochs"),
    "IFCA": lambda: ct.ifca(groups=TURNS),
    # A turned image changes the weights of the first layer, and hardly those of the last.
    "FedClust": lambda: ct.fedclust(layer="1"),
    # The mean update of all nodes is shorter than 0.6 from round 8 on. The longest update of a group
    # is longer than 1.5 as long as the group has nodes of several angles.
    "CFL": lambda: ct.cfl(eps1=0.6, eps2=1.5, after=6),
    "CLoVE": lambda: ct.clove(groups=TURNS),
}
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "turned"
version = "1.0.0"
license = {{ file = "LICENSE" }}
dependencies = ["flwr"]
[tool.flwr.app]
publisher = "coterie"
[tool.flwr.app.components]
serverapp = "benchmarks.flower_strategy:server_app"
clientapp = "benchmarks.flower_strategy:client_app"
[tool.flwr.app.config]
{options}
"""


@cache
def turned_digits() -> ct.Population:
    """Digits of 30 clients whose images are turned by one of four angles."""
    partition = {"kind": "planted", "clients": NODES, "groups": TURNS, "how": "rotate"}
    return ct.load("digits", partition={**partition, "test_fraction": 0.3}, seed=SEED)


def network() -> nn.Module:
    """The network with its first weights."""
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


# --- the app ----------------------------------------------------------------------------------------

client_app = ClientApp()


def received(message: Message, context: Context, split: str) -> tuple[nn.Module, Any, Any, int]:
    """The model that the node was sent, its samples, and its number."""
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    client = int(context.node_config["partition-id"])
    data = turned_digits()
    rows = torch.from_numpy(getattr(data, split)[client])
    return model, data.x[rows], data.y[rows], client


@client_app.train()
def train(message: Message, context: Context) -> Message:
    model, x, y, client = received(message, context, "train")
    config = message.content["config"]
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    # As `ct.run` draws the order of a client's samples in the training of a round.
    key = ct.Key(SEED, round=config["server-round"] - 1).of("train").client(client)
    rng = key.of("shuffle").generator()
    for _ in range(EPOCHS):
        for rows in torch.from_numpy(rng.permutation(len(y))).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    metrics = MetricRecord({"num-examples": len(y)})
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)


@client_app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    model, x, y, _ = received(message, context, "test")
    _, x_train, y_train, _ = received(message, context, "train")
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(x_train), y_train).item()
        accuracy = (model(x).argmax(1) == y).double().mean().item()
    metrics = {"loss": loss, "accuracy": accuracy, "num-examples": len(y)}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


@client_app.query()
def query(message: Message, context: Context) -> Message:
    """The number of the node's share of the data."""
    metrics = MetricRecord({"partition": int(context.node_config["partition-id"])})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


server_app = ServerApp()


@server_app.main()
def main_of_server(grid: Grid, context: Context) -> None:
    options = context.run_config
    while len(list(grid.get_node_ids())) < NODES:
        time.sleep(0.1)
    if options["what"] == "groups":
        found: Any = grouped(grid, json.loads(str(options["rounds"])))
    else:
        found = timed(grid, int(options["rounds"]), int(options["pairs"]))
    out = Path(str(options["out"]))
    # Renamed into place, since the program waits for the file.
    out.with_suffix(".part").write_text(json.dumps(found))
    out.with_suffix(".part").rename(out)


def run_strategy(strategy: FedAvg, grid: Grid, rounds: int, **options: Any) -> Any:
    first = ArrayRecord(network().state_dict())
    return strategy.start(grid, first, rounds, 600, ConfigRecord({"lr": RATE}), **options)


def partitions(grid: Grid) -> dict[int, int]:
    """Node id -> the number of its share of the data."""
    messages = [Message(RecordDict(), node, "query") for node in grid.get_node_ids()]
    replies = grid.send_and_receive(messages, timeout=600)
    return {
        reply.metadata.src_node_id: int(reply.content["metrics"]["partition"]) for reply in replies
    }


def grouped(grid: Grid, rounds: dict[str, int]) -> dict[str, Any]:
    """The group of each client, and the rows of each method's rounds."""
    share = partitions(grid)
    found = {}
    for name, count in rounds.items():
        options = {"first_models": first_arrays, "seed": SEED}
        result = run_strategy(ClusteredStrategy(METHODS[name](), **options), grid, count)
        group = {share[node]: group for node, group in result.groups.items()}
        accuracy = result.rows[-1]["accuracy"]
        model = [value for array in result.arrays.to_numpy_ndarrays() for value in array.ravel()]
        groups = [group[client] for client in range(NODES)]
        found[name] = {"groups": groups, "accuracy": accuracy, "model": list(map(float, model))}
        print(name, groups, accuracy, flush=True)
    return found


def first_arrays(number: int) -> ArrayRecord:
    """The arrays that model ``number`` begins with, those of `ct.run`."""
    net = network()
    vector = initial_models(net, ct.Key(SEED))(number)
    views = Layout.of(net).views(vector)
    return ArrayRecord({name: views[name].clone() for name in net.state_dict()})


def timed(grid: Grid, rounds: int, pairs: int) -> dict[str, list[list[float]]]:
    """Seconds of the rounds of each run but for its first, by strategy."""
    found: dict[str, list[list[float]]] = {"Flower": [], "fedavg": [], "cfl": []}
    strategies: dict[str, Callable[[], FedAvg]] = {
        "Flower": FedAvg,
        "fedavg": lambda: ClusteredStrategy(ct.fedavg()),
        "cfl": lambda: ClusteredStrategy(ct.cfl()),
    }
    for pair in range(pairs):
        # The order changes, so that a load that grows or shrinks is shared.
        order = list(strategies)[:: 1 if pair % 2 == 0 else -1]
        for name in order:
            ends: list[float] = []
            run_strategy(
                strategies[name](),
                grid,
                rounds + 1,
                evaluate_fn=lambda number, arrays, ends=ends: ends.append(time.perf_counter()),
            )
            seconds = [after - before for before, after in pairwise(ends[1:])]
            found[name].append(seconds)
            print(name, " ".join(f"{one:.2f}" for one in seconds), flush=True)
    return found


# --- the program ------------------------------------------------------------------------------------


def run_app(options: dict[str, Any]) -> Any:
    """What the ServerApp found in one run of the app in the simulation runtime."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "home"
        out = Path(place) / "found.json"
        app = Path(place) / "app"
        app.mkdir()
        options = {**options, "out": str(out)}
        lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
        (app / "pyproject.toml").write_text(PROJECT.format(options="\n".join(lines)))
        (app / "LICENSE").write_text("none\n")
        (port,) = free_ports(1)
        command = ["flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess"]
        log = Path(place) / "superlink.log"
        process = start(
            [*command, "--host", "127.0.0.1", "--port", str(port)], environment(home), log
        )
        try:
            wait_for_port(port, "superlink", process, log)
            write_connection(home, f"127.0.0.1:{port}", None)
            nodes = f"num-supernodes={NODES}"
            run = run_flwr(home, ["run", str(app), FEDERATION, "--federation-config", nodes])
            while not out.is_file():
                time.sleep(2.0)
                runs = run_flwr(home, ["list", FEDERATION, "--run-id", str(run["run-id"])])["runs"]
                if str(runs[0]["status"]).startswith("finished") and not out.is_file():
                    sys.exit(f"{runs[0]['status']}\n{log.read_text()[-3000:]}")
            return json.loads(out.read_text())
        finally:
            stop([process])


def compare_groups(rounds: dict[str, int]) -> dict[str, Any]:
    """Both sides of each method."""
    from sklearn.metrics import adjusted_rand_score

    data = turned_digits()
    found = run_app({"what": "groups", "rounds": json.dumps(rounds)})
    for name, count in rounds.items():
        result = ct.run(
            METHODS[name](),
            data=data,
            model=network(),
            local=ct.Solver(epochs=EPOCHS, batch_size=BATCH, lr=RATE),
            rounds=count,
            clients_per_round=NODES,
            seed=SEED,
            engine="serial",
        )
        app = found[name]
        ours = {
            "app": [adjusted_rand_score(data.planted, app["groups"]), 100 * app["accuracy"]],
            "ct.run": [adjusted_rand_score(data.planted, result.groups), 100 * result.accuracy[-1]],
        }
        mean = torch.tensor(app.pop("model"))
        gap = None
        # Of one model alone: of several the groups may have other numbers.
        if name == "FedAvg":
            gap = float((mean - result.vector_for(0)).abs().max())
        found[name] = {**ours, "rounds": count, "largest difference": gap}
        words = ", ".join(
            f"{side}: ARI {ari:.2f}, {acc:.2f} %" for side, (ari, acc) in ours.items()
        )
        print(f"{name} ({count} rounds): {words}, largest difference {gap}", flush=True)
    return found


def compare_cost(rounds: int, pairs: int) -> dict[str, Any]:
    """Medians of a round, and the ratio to Flower's own."""
    found = run_app({"what": "cost", "rounds": rounds, "pairs": pairs})
    medians = {
        name: [statistics.median(seconds) for seconds in runs] for name, runs in found.items()
    }
    for name, values in medians.items():
        ratios = [ours / theirs for ours, theirs in zip(values, medians["Flower"], strict=True)]
        middle = statistics.median(values)
        words = " ".join(f"{one:.2f}" for one in ratios)
        ratio = f"ratio {statistics.median(ratios):.2f} (asked at most 1.1), pairs {words}"
        print(f"{name}: {middle:.3f} s a round, {ratio}", flush=True)
    return {"seconds": found, "medians": medians}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["groups", "cost"])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--cfl-rounds", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.what == "groups":
        rounds = dict.fromkeys(args.methods, args.rounds or 8)
        if "CFL" in rounds:
            rounds["CFL"] = args.cfl_rounds
        found = compare_groups(rounds)
    else:
        found = compare_cost(args.rounds or 6, args.pairs)
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
