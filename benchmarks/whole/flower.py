"""Flower's simulation on Ray: one actor per core, which stay; ``FedAvg`` of its message API."""

import os
import sys

import torch
from flower_client import client, held
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from networks import NETWORKS, accuracy
from recipe_file import report

CORES = int(os.environ["CORES"])
FILE = sys.argv[1]
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    recipe = held(FILE)
    torch.manual_seed(0)
    module = NETWORKS[recipe.network](recipe.x.shape[1:], recipe.classes)
    test = torch.from_numpy(recipe.test)
    x = torch.from_numpy(recipe.x)[test]
    y = torch.from_numpy(recipe.y)[test]
    found = {}

    def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if round == 0 or round % recipe.every:
            return None
        module.load_state_dict(arrays.to_torch_state_dict())
        found["accuracy"] = accuracy(module, x, y)
        return MetricRecord(found)

    strategy = FedAvg(
        fraction_train=recipe.cohort / recipe.clients,
        fraction_evaluate=0.0,
        min_available_nodes=recipe.clients,
    )
    strategy.start(
        grid,
        ArrayRecord(module.state_dict()),
        num_rounds=recipe.rounds,
        train_config=ConfigRecord({"file": FILE}),
        evaluate_fn=evaluate,
    )
    report(found["accuracy"])


if __name__ == "__main__":
    backend = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": CORES, "address": "local"},
    }
    run_simulation(server, client, num_supernodes=held(FILE).clients, backend_config=backend)
