"""PACFL: subspaces go up and no model goes down for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import coterie as ct
from coterie.core.keys import Key
from coterie.data import load_samples, make_partition, populate
from coterie.data.samples import Samples
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


def test_pacfl_describes_and_clusters_100_clients_of_cifar10_in_time(
    tenth_of_cifar10: Path,
) -> None:
    tenth = load_samples({"source": "cifar10", "pixels": "unit"}, root=tenth_of_cifar10)
    # As many images of that size as there are: what they show does not matter for the time.
    samples = Samples(
        tenth.x.repeat(10, 1, 1, 1), tenth.y.repeat(10), tenth.classes, 10 * tenth.train_rows
    )
    partition = {"kind": "dirichlet", "clients": 100, "beta": 0.1}
    data = populate(samples, make_partition(samples, partition, Key(0)), Key(0))
    assert len(data.y) == 60_000

    def describe_and_cluster() -> None:
        u = torch.from_numpy(subspaces(data, np.arange(100), 3))
        for angle in (entry_min, principal_angles):
            agglomerate(angle(u), "weighted")

    assert work_of(describe_and_cluster)[1] < 300
