"""Noise in the inputs of clients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from coterie.core.keys import Key
from coterie.data import (
    Samples,
    load_partition,
    load_samples,
    make_partition,
    populate,
)
from coterie.errors import DataError
from coterie.sweep.data_hash import hash_partition
from tests.data.partition_files import write_partition
from tests.refusals import refuses

TABLE = {"kind": "feature_noise", "clients": 5, "noise": 0.8}


def test_noise_grows_from_client_to_client_and_is_drawn_once(tmp_path: Path) -> None:
    x = torch.randn(4000, 8, generator=torch.Generator().manual_seed(0))
    data = Samples(x, torch.arange(4).repeat_interleave(1000), 4, 3200)
    parts = make_partition(data, TABLE, Key(3))
    population = populate(data, parts)
    for client, expected in enumerate([0.0, 0.2, 0.4, 0.6, 0.8]):
        for rows in (parts.train[client], parts.test[client]):
            added = (population.x - x)[torch.from_numpy(rows)]
            assert float(added.std()) == pytest.approx(expected, rel=0.05)
    assert torch.equal(data.x, x)
    assert not torch.equal(population.x, x)
    write_partition(tmp_path / "partition.npz", parts)
    again = populate(data, load_partition(tmp_path / "partition.npz"))
    assert torch.equal(again.x, population.x)
    other = populate(data, make_partition(data, TABLE, Key(4)))
    assert hash_partition(parts) != hash_partition(make_partition(data, TABLE, Key(4)))
    assert not torch.equal(other.x, population.x)


def test_tokens_have_no_noise() -> None:
    words = torch.zeros(40, 5, dtype=torch.int64)
    tokens = Samples(words, torch.arange(4).repeat_interleave(10), 4, 32)
    with refuses(DataError, "does-not-fit", "data.partition.kind"):
        populate(tokens, make_partition(tokens, TABLE, Key(0)))


def test_a_table_gets_its_noise_after_scaling(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [f"{value:.3f},{value > 5000}" for value in rng.normal(5000, 900, 2000)]
    (tmp_path / "rows.csv").write_text("\n".join(["size,large", *lines]) + "\n")
    source = {
        "source": "file",
        "path": str(tmp_path / "rows.csv"),
        "features": "*",
        "label": "large",
        "encode": {},
    }
    samples = load_samples(source)
    parts = make_partition(samples, {**TABLE, "clients": 2}, Key(0))
    x = populate(samples, parts).x
    spread = [float(x[torch.from_numpy(rows)].std()) for rows in parts.train]
    # Scaled values spread by 1, and the noise of the last client by 0.8 beside it.
    assert spread == pytest.approx([1.0, 1.64**0.5], rel=0.06)
