"""Flower's simulation on Ray: one actor per core, which stay; ``FedAvg`` of its message API."""

import os
import sys
import time

import numpy as np
from flower_client import client, held
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from task import say, wait_for_round

CORES = int(os.environ["CORES"])
FILE = sys.argv[1]
OUT = sys.argv[2]


class PacedFedAvg(FedAvg):
    """FedAvg that waits to be told before each round, and says how long it took."""

    def configure_train(self, server_round, arrays, config, grid):
        if not wait_for_round(server_round - 1):
            os._exit(0)
        self.begun = time.perf_counter()
        config["file"] = FILE
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        say("done", time.perf_counter() - self.begun)
        if server_round == 1:
            np.save(OUT, np.concatenate([a.ravel() for a in arrays.to_numpy_ndarrays()]))
        return arrays, metrics


server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    from nets import load, net

    task = held(FILE)
    module = net(task.model)
    load(module, task.w0)
    say("ready")
    strategy = PacedFedAvg(
        fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=task.clients
    )
    strategy.start(grid, ArrayRecord(module.state_dict()), num_rounds=10_000)


if __name__ == "__main__":
    backend = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": CORES, "address": "local"},
    }
    run_simulation(server, client, num_supernodes=held(FILE).clients, backend_config=backend)
