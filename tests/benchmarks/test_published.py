"""The recipes of others: who holds what, their networks, and the figures beside the print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.personal import files
from benchmarks.published import lg_fedavg, pages, pfllib
from benchmarks.published.networks import four_layers
from benchmarks.published.pfllib_clients import (
    CLASSES,
    CLIENTS,
    FEWEST,
    SETTINGS,
    dirichlet,
    two_labels,
)
from benchmarks.results import records

# 2,000 images of ten classes.
LABELS = np.arange(2000) % CLASSES


@pytest.mark.parametrize("draw", SETTINGS.values(), ids=SETTINGS)
def test_every_image_has_one_client(draw: Callable[..., Any]) -> None:
    found = draw(LABELS, np.random.default_rng(0))
    assert len(found) == CLIENTS
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(len(LABELS)))


def test_four_clients_share_two_labels() -> None:
    found = two_labels(LABELS, np.random.default_rng(0))
    for client, rows in enumerate(found):
        first = 2 * (client // 4)
        assert set(LABELS[rows].tolist()) == {first, first + 1}


def test_no_client_of_a_dirichlet_split_is_too_small() -> None:
    found = dirichlet(LABELS, np.random.default_rng(0))
    assert min(len(rows) for rows in found) >= FEWEST


def test_networks_are_those_of_the_authors() -> None:
    """Parameters, counted from their code."""
    for network, count in (
        (four_layers((1, 28, 28), 10), 832 + 51264 + 524800 + 5130),
        (lg_fedavg.network((1, 28, 28), 10), 401920 + 131328 + 65792 + 32896 + 1290),
    ):
        assert sum(p.numel() for p in network.parameters()) == count
        outputs = network(torch.zeros(2, 1, 28, 28))
        assert outputs.shape == (2, 10)
        assert isinstance(network, nn.Module)


def test_the_page_has_the_best_round_beside_the_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recipes without runs in the folder keep what the page has."""
    written = {}
    monkeypatch.setattr(records, "write", lambda name, page: written.update({name: page}))
    run = {"setting": "two labels", "method": "FedPer", "seed": 3, "course": [0.5, 0.98, 0.97]}
    files.write(tmp_path, pfllib.NAME, [run])
    pages.write(tmp_path, "two cores", "7da2de5")
    page = written[pages.PAGE]
    best = page.find("PFLlib, two labels/FedPer/best round")
    assert (best.values, best.seeds, best.rounds, best.at_least) == ((98.0,), (3,), 3, 97.47)
    assert page.find("PFLlib, two labels/FedPer/published").values == (99.47,)
    assert page.find("PFLlib, two labels/FedPer/difference").values == (-1.47,)
    assert page.find("pFedMe's/pFedMe/published").values == (94.54,)
    command = page.measurements[pfllib.NAME].command
    assert command is not None
    assert command.endswith("--methods FedPer --rounds 3 --seeds 3")
