"""BlazeFL: its FedAvg, with processes or threads, as its quick start has it."""

import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.multiprocessing as mp
from blazefl.contrib import (
    FedAvgBaseServerHandler,
    FedAvgProcessPoolClientTrainer,
    FedAvgThreadPoolClientTrainer,
)
from networks import NETWORKS, accuracy
from recipe_file import Recipe, report
from torch.utils.data import DataLoader, TensorDataset

CORES = int(os.environ["CORES"])
MODE = os.environ["MODE"]


class Selector:
    """Makes the network; one thread each, as clients share the cores."""

    def __init__(self, recipe: Recipe) -> None:
        self.network = recipe.network
        self.shape = recipe.x.shape[1:]
        self.classes = recipe.classes

    def select_model(self, name: str) -> torch.nn.Module:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        return NETWORKS[self.network](self.shape, self.classes)


class Partitioned:
    """Each client's samples, in shared memory, so that processes are sent handles."""

    def __init__(self, recipe: Recipe) -> None:
        rows = [recipe.client(number) for number in range(recipe.clients)]
        self.held = [
            TensorDataset(
                torch.from_numpy(recipe.x[mine]).share_memory_(),
                torch.from_numpy(recipe.y[mine]).share_memory_(),
            )
            for mine in rows
        ]

    def get_dataset(self, type_, cid):
        return self.held[cid]

    def set_dataset(self, type_, cid, dataset):
        return None

    def get_dataloader(self, type_, cid, batch_size, generator):
        return DataLoader(self.held[cid], batch_size, shuffle=True, generator=generator)


def main() -> None:
    recipe = Recipe(sys.argv[1])
    selector = Selector(recipe)
    data = Partitioned(recipe)
    own = {
        "model_selector": selector,
        "model_name": recipe.network,
        "dataset": data,
        "device": "cpu",
        "num_clients": recipe.clients,
        "batch_size": recipe.batch,
        "seed": 0,
    }
    handler = FedAvgBaseServerHandler(
        **own, global_round=recipe.rounds, sample_ratio=recipe.cohort / recipe.clients
    )
    training = own | {"epochs": recipe.epochs, "lr": recipe.lr, "num_parallels": CORES}
    with tempfile.TemporaryDirectory() as folder:
        if MODE == "processes":
            trainer = FedAvgProcessPoolClientTrainer(
                **training,
                share_dir=Path(folder, "share"),
                state_dir=Path(folder, "state"),
                ipc_mode="shared_memory",
            )
        else:
            trainer = FedAvgThreadPoolClientTrainer(**training)
        x = torch.from_numpy(recipe.x[recipe.test])
        y = torch.from_numpy(recipe.y[recipe.test])
        last = 0.0
        while not handler.if_stop():
            trainer.local_process(handler.downlink_package(), handler.sample_clients())
            for package in trainer.uplink_package():
                handler.load(package)
            if handler.round % recipe.every == 0:
                last = accuracy(handler.model, x, y)
        report(last)


if __name__ == "__main__":
    mp.set_sharing_strategy("file_system")  # a thousand clients are more files than may be open
    main()
