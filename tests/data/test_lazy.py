"""Samples that are made client by client, and ranges in place of index arrays."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.core.keys import Key
from coterie.data import Samples, load_partition
from coterie.data.lazy import lazy_columns, ranges
from coterie.data.partitions import Partition, predefined
from coterie.data.shifts import swap_all
from coterie.errors import CoterieError, DataError
from tests.conftest import blobs
from tests.data.partition_files import write_partition
from tests.lazy_federations import federation, run_small
from tests.refusals import refuses


def test_a_source_that_is_a_table_has_a_seed_of_its_own() -> None:
    def sizes(data_seed: int, seed: int) -> list[int]:
        source = {"source": "synthetic", "seed": data_seed}
        return (
            ct.load(source, partition={"kind": "given"}, seed=seed, clients=3, lazy=True)
            .sizes("train")
            .tolist()
        )

    assert sizes(0, 0) == sizes(0, 1) != sizes(1, 0)


def test_a_lazy_federation_has_the_same_data() -> None:
    lazy, whole = federation(lazy=True), federation(lazy=False)
    assert lazy.lazy
    assert not whole.lazy
    for split in ("train", "test"):
        assert np.array_equal(lazy.sizes(split), whole.sizes(split))
        assert np.array_equal(lazy.histograms(split), whole.histograms(split))
    some = np.array([7, 2, 7])
    assert np.array_equal(
        federation(lazy=True).histograms_of(some), whole.histograms("train")[some]
    )
    rows = torch.tensor([900, 3, 5, 901, 4])
    assert torch.equal(lazy.x[rows], whole.x[rows])
    assert torch.equal(lazy.y[rows], whole.y[rows])
    assert lazy.x[rows[:0]].shape == (0, 60)
    again = pickle.loads(pickle.dumps(lazy.x))
    assert torch.equal(again[rows], whole.x[rows])


def test_what_was_asked_for_is_kept_only_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.data.lazy.KEEP", 3 * (8 * 4 + 8))  # three clients of one row
    calls: list[int] = []

    def make(k: int) -> tuple[Any, Any]:
        calls.append(k)
        return np.full((1, 8), k, np.float32), np.zeros(1, np.int64)

    x, y = lazy_columns(make, np.arange(11), (8,))
    for i in (0, 1, 2, 0, 1, 2):
        assert float(x[torch.tensor([i])][0, 0]) == i
        assert int(y[torch.tensor([i])][0]) == 0
    assert calls == [0, 1, 2]
    assert x[torch.arange(10)][:, 0].tolist() == list(range(10))
    assert len(calls) == 3 + 7
    x[torch.tensor([0])]
    assert len(calls) == 3 + 7 + 1, "the oldest had to go"


def test_the_smaller_rest_of_a_client_is_kept_with_it() -> None:
    calls: list[int] = []

    def make(k: int) -> tuple[Any, Any]:
        calls.append(k)
        return np.full((5, 8), k, np.float32), np.zeros(5, np.int64)

    x, y = lazy_columns(make, np.array([0, 5, 10]), (8,))
    assert x[torch.arange(4)].shape == (4, 8)  # training rows
    assert y[torch.tensor([4])].tolist() == [0]
    assert calls == [0]
    assert x[torch.tensor([9])].tolist() == [[1.0] * 8]  # a client that is only scored
    x[torch.arange(5, 9)]
    assert calls == [0, 1, 1]


def test_a_maker_that_breaks_its_promise_is_named() -> None:
    x, _ = lazy_columns(
        lambda k: (np.zeros((2, 3), np.float32), np.zeros(2, np.int64)), np.array([0, 2, 5]), (3,)
    )
    with refuses(DataError, "wrong-shape", "data.source"):
        x[torch.tensor([2])]
    x, _ = lazy_columns(
        lambda k: (np.zeros((2, 1), np.float32), np.zeros(2, np.int64)), np.array([0, 2]), (4,)
    )
    with refuses(DataError, "wrong-shape", "data.source"):
        x[torch.tensor([0])]


def test_what_needs_all_samples_says_so() -> None:
    data = federation(lazy=True)
    iid = {"kind": "iid", "clients": 3}
    uses: list[tuple[Any, str]] = [
        (lambda: data.labels, "data.source"),
        (lambda: data.x.reshape(1, -1), "data.source"),
        (lambda: data.y.clone(), "data.source"),
        (lambda: data.x.contiguous(), "data.source"),
        (lambda: run_small(data, shift=swap_all()), "shift"),
        (lambda: ct.load("synthetic", partition=iid, clients=9, lazy=True), "data.partition.kind"),
        (lambda: ct.load("digits", partition={"kind": "given"}), "data.partition.kind"),
    ]
    for use, path in uses:
        with pytest.raises(CoterieError) as caught:
            use()
        (problem,) = caught.value.problems
        assert problem.path == path
        assert problem.allowed
        assert "\n" not in str(problem)


def test_ranges_round_trip_and_damage_is_refused(tmp_path: Path) -> None:
    offsets = np.array([0, 10, 11, 13])
    y = torch.zeros(13, dtype=torch.int64)
    samples = Samples(torch.zeros(13, 1), y, classes=1, train_rows=13, offsets=offsets)
    parts = predefined(samples, Key(0))
    assert [len(rows) for rows in parts.train] == [9, 1, 1]
    assert [len(rows) for rows in parts.test] == [1, 0, 1]
    assert parts.samples == 13
    write_partition(tmp_path / "p.npz", parts)
    read = load_partition(tmp_path / "p.npz")
    for split in ("train", "test"):
        pairs = zip(getattr(read, split), getattr(parts, split), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs)
    write_partition(
        tmp_path / "p.npz",
        Partition(ranges(np.array([-1]), np.array([2])), ranges(np.array([0]), np.array([0]))),
    )
    with refuses(DataError, "cannot-be-read", "p.npz"):
        load_partition(tmp_path / "p.npz")
    assert (tmp_path / "p.npz").stat().st_size < 4096


def test_ranges_stand_in_for_index_arrays() -> None:
    whole = blobs(4)
    x = whole.x[:20]
    y = whole.y[:20]
    held = ranges(np.array([0, 5]), np.array([5, 5]))
    tests = ranges(np.array([10, 12]), np.array([2, 0]))
    one = ct.Population(x, y, held, tests, 4)
    other = ct.Population(x, y, tuple(held), tuple(tests), 4)
    assert np.array_equal(one.histograms("train"), other.histograms("train"))
    assert one.sizes("test").tolist() == [2, 0]
    assert held[-1].tolist() == [5, 6, 7, 8, 9]
    assert [len(rows) for rows in held[:1]] == [5]
    with refuses(DataError, "out-of-range", "population.train"):
        ct.Population(
            x, y, ranges(np.array([18]), np.array([3])), ranges(np.array([0]), np.array([0])), 4
        )
    with refuses(DataError, "missing", "population.train"):
        ct.Population(
            x, y, ranges(np.array([0]), np.array([0])), ranges(np.array([0]), np.array([3])), 4
        )
