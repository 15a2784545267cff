"""PACFL: subspaces go up and no model goes down for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import coterie as ct
from coterie.core.keys import Key
from coterie.data import load_samples, make_partition, populate
from coterie.local.statistics import subspaces
from coterie.math.clustering import agglomerate
from coterie.math.subspaces import entry_min, principal_angles
from tests.conftest import (
    two_classes_each,
    work_of,
)
from tests.rules.one_shot_runs import Run


def test_pacfl_sends_no_model_for_a_signature() -> None:
    run = Run(ct.pacfl(vectors=2), two_classes_each())
    run.step([0])
    down, up = (b for b in run.clients.ledger.blocks if b.what == "signatures")
    assert not down.bytes.any()
    assert up.bytes.tolist() == [4 * 6 * 2 * 4 + 4] * 12


def test_pacfl_describes_and_clusters_clients_of_cifar10_in_time(
    tenth_of_cifar10: Path,
) -> None:
    """A tenth of the images, ten clients, and a tenth of the time that all hundred may take."""
    samples = load_samples({"source": "cifar10", "pixels": "unit"}, root=tenth_of_cifar10)
    partition = {"kind": "dirichlet", "clients": 10, "beta": 0.1}
    data = populate(samples, make_partition(samples, partition, Key(0)), Key(0))
    assert len(data.y) == 6_000

    def describe_and_cluster() -> None:
        u = torch.from_numpy(subspaces(data, np.arange(10), 3))
        for angle in (entry_min, principal_angles):
            agglomerate(angle(u), "weighted")

    assert work_of(describe_and_cluster)[1] < 30
