"""A finished run that tests of exports share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from coterie.core.vectors import Layout, state_dict
from coterie.experiment import check
from coterie.rules.assigning import by_group
from coterie.runs.compose import compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config

CLIENTS = ["ann", 'b"|<script>alert(1)</script>', "c\u202ed", "dan", "eve", "fay"]


LABELS = ["cat", "<b>|dog`"]


def tables(path: Path, **changes: object) -> dict[str, object]:
    return {
        "data": {
            "source": "file",
            "path": str(path),
            "partition": {"kind": "natural", "column": "client"},
        },
        "model": {"name": "mlp", "hidden": 5},
        "local": {"epochs": 2, "lr": 0.1},
        "train": {"rounds": 3, "clients_per_round": 3},
        "algorithm": {"name": "fedgroup", "groups": 2, "alpha": 2, "pretrain_steps": 5},
        "engine": {"name": "serial"},
        **changes,
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six clients in two populations that mean different things by the same inputs."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "table.parquet"
    owner = np.repeat(np.arange(6), 30)
    x = rng.normal(size=(180, 4)).astype(np.float32)
    y = (x[:, 0] > 0) ^ (owner % 2 == 1)
    columns = {
        "x": list(x),
        "y": [LABELS[int(label)] for label in y],
        "client": [CLIENTS[i] for i in owner],
    }
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that has met five of the six clients at most: somebody may have no group."""
    path = tmp_path_factory.mktemp("runs") / "run"
    run_config(check(tables(table, train={"rounds": 1, "clients_per_round": 2})), path)
    return path


def reference(run: Path) -> tuple[list[nn.Module], np.ndarray, torch.Tensor]:
    """The run's own networks, auxiliary one last, who has which, and all inputs."""
    folder = RunFolder.open(run)
    composed = compose(check(folder.resolved), run / "partition.npz")
    checkpoint = folder.checkpoints.latest()
    served = by_group(checkpoint.groups)
    networks = []
    for vector in served.models:
        network = build_as(composed.module)
        network.load_state_dict(state_dict(Layout.of(network), vector), strict=False)
        networks.append(network.eval())
    return networks, served.row, composed.population.x


def build_as(module: nn.Module) -> nn.Module:
    import copy

    return copy.deepcopy(module)
