"""RFedAvg's partition: few classes a client, one of which it holds most of."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.core.keys import Key
from coterie.data import make_partition, populate
from coterie.data.samples import Samples
from tests.conftest import real_labels
from tests.refusals import refuses


def samples(per_class: int = 200, test: int = 35) -> Samples:
    y = np.concatenate([np.repeat(np.arange(10), per_class), np.repeat(np.arange(10), test)])
    return Samples(torch.zeros(len(y), 1), torch.from_numpy(y), 10, 10 * per_class)


@pytest.mark.parametrize("each", [10, 5, 2, 1])
def test_devices_hold_so_many_classes_and_one_of_them_most(each: int) -> None:
    pool = samples()
    population = populate(
        pool, make_partition(pool, {"kind": "rfedavg", "classes_per_client": each}, Key(4))
    )
    histograms = population.histograms()
    assert population.clients == 100
    assert ((histograms > 0).sum(axis=1) == each).all()
    assert histograms.max() <= 100
    assert all(len(np.unique(rows)) == len(rows) for rows in population.train)
    top = np.bincount(histograms.argmax(axis=1), minlength=10)
    assert top[3:7].sum() > top[[0, 1, 8, 9]].sum()


def test_every_test_sample_is_dealt_once_and_evenly() -> None:
    pool = samples()
    parts = make_partition(pool, {"kind": "rfedavg", "clients": 40}, Key(4))
    assert np.sort(np.concatenate(parts.test)).tolist() == list(range(2000, 2350))
    assert {len(rows) for rows in parts.test} == {8, 9}


def test_a_class_that_runs_out_is_read_again() -> None:
    pool = samples(per_class=100)
    parts = make_partition(pool, {"kind": "rfedavg", "clients": 60}, Key(4))
    used = np.bincount(np.concatenate(parts.train), minlength=1000)
    spread = used.reshape(-1)[:1000].reshape(10, 100)
    assert used.max() > 1
    assert (
        (spread.max(axis=1) - spread.min(axis=1)) <= 1
    ).all()  # nobody's second time before everybody's first
    with refuses(ct.DataError, "out-of-range", "data.partition.largest"):
        make_partition(samples(per_class=90), {"kind": "rfedavg"}, Key(4))


def test_clipping_piles_up_at_the_ends() -> None:
    pool = samples()
    ends = []
    for truncation in ("rejection", "clip"):
        partition = {
            "kind": "rfedavg",
            "clients": 400,
            "classes_per_client": 1,
            "truncation": truncation,
        }
        held = populate(pool, make_partition(pool, partition, Key(4))).histograms().argmax(axis=1)
        ends.append(np.isin(held, [0, 9]).sum())
    assert ends[1] > 1.3 * ends[0]


def test_real_mnist_is_as_unbalanced_as_the_recipe_says() -> None:
    from coterie.measures.optional import evenness

    samples = real_labels("mnist")
    partition = {"kind": "rfedavg", "classes_per_client": 1}
    key = Key(0).of("data")
    data = populate(samples, make_partition(samples, partition, key), key)
    assert sum(map(len, data.test)) == 10_000
    assert 3 < evenness(data.histograms().sum(axis=0))["beta"] < 20
