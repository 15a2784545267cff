"""What a run writes at its end is what other programs read."""

from __future__ import annotations

import csv
import os

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from coterie.core.vectors import Layout, flatten
from coterie.runs.folder.store import RunFolder


def test_models_are_named_tensors(folder: RunFolder) -> None:
    module = nn.Linear(3, 2)
    folder.results.write_models(
        Layout.of(module), torch.stack([flatten(module), flatten(module) + 1])
    )
    tensors = load_file(folder.path / "models" / "group-1.safetensors")
    assert torch.equal(tensors["weight"], module.weight.detach() + 1)
    assert sorted(os.listdir(folder.path / "models")) == [
        "group-0.safetensors",
        "group-1.safetensors",
    ]


def test_groups_are_written_whatever_clients_are_called(folder: RunFolder) -> None:
    names = ["../../etc/passwd", 'a,"b"', "ü\nx"]
    folder.results.write_groups(names, np.array([0, -1, 1]), np.array([4, -1, 0]))
    with (folder.path / "groups.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["client", "group", "since_round"],
        [names[0], "0", "4"],
        [names[1], "-1", "-1"],
        [names[2], "1", "0"],
    ]
