"""Planted mixtures: the shares are exact, samples are changed by concept, and errors are measured."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import coterie as ct
from coterie.core.keys import Key
from coterie.data import Samples, load_partition, make_partition, populate
from coterie.errors import DataError
from coterie.measures.groups import share_error
from tests.data.partition_files import write_partition
from tests.refusals import refuses


def some_samples(x: torch.Tensor | None = None) -> Samples:
    x = torch.zeros(600, 1) if x is None else x
    return Samples(x, torch.arange(10).repeat(60), 10, 600)


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_shares_are_as_planted_to_a_sample(groups: int, share: float) -> None:
    table = {"kind": "planted_mixture", "clients": 12, "groups": groups, "share": share}
    population = populate(some_samples(), make_partition(some_samples(), table, Key(0)))
    shares = population.planted_shares()
    assert shares is not None
    assert population.planted is not None
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    first = shares[np.arange(12), population.planted]
    assert (np.abs(first - share) <= 0.5 / population.sizes("train")).all()
    # The rest is of one other concept, and each two concepts meet.
    assert ((shares > 0).sum(axis=1) == 2).all()
    assert len({tuple(np.flatnonzero(row)) for row in shares}) == groups * (groups - 1) // 2


def test_each_sample_has_the_labels_of_its_concept() -> None:
    data = some_samples()
    table = {"kind": "planted_mixture", "clients": 6, "groups": 3, "how": "swap"}
    parts = make_partition(data, table, Key(0))
    population = populate(data, parts)
    assert parts.relabel is not None
    assert parts.concept is not None
    assert population.labels.tolist() == parts.relabel[parts.concept, data.y.numpy()].tolist()
    assert data.y.tolist() == np.tile(np.arange(10), 60).tolist(), "the source is not changed"


def test_each_image_is_turned_by_its_concept() -> None:
    image = torch.arange(4.0).reshape(1, 2, 2)
    data = some_samples(image.repeat(600, 1, 1, 1))
    parts = make_partition(
        data, {"kind": "planted_mixture", "clients": 6, "groups": 4, "how": "rotate"}, Key(0)
    )
    population = populate(data, parts)
    assert parts.concept is not None
    for row, concept in enumerate(parts.concept[:50]):
        assert torch.equal(population.x[row], torch.rot90(image, int(concept), dims=(-2, -1)))


def test_a_mixture_is_stored(tmp_path: Path) -> None:
    parts = make_partition(some_samples(), {"kind": "planted_mixture", "clients": 6}, Key(0))
    write_partition(tmp_path / "partition.npz", parts)
    assert np.array_equal(load_partition(tmp_path / "partition.npz").concept, parts.concept)  # type: ignore[arg-type]
    with np.load(tmp_path / "partition.npz") as archive:
        damaged = {**archive, "concept": -np.ones(600, np.int64)}
    np.savez(tmp_path / "partition.npz", **damaged)
    with refuses(DataError, "cannot-be-read", "partition.npz"):
        load_partition(tmp_path / "partition.npz")


def test_too_many_concepts_are_said_in_one_line() -> None:
    table = {"kind": "planted_mixture", "groups": 5, "how": "rotate"}
    with refuses(DataError, "out-of-range", "data.partition.groups"):
        make_partition(some_samples(), table, Key(0))


@given(
    weights=arrays(float, (5, 3), elements=st.floats(0.1, 1.0)),
    order=st.permutations(range(3)),
)
def test_the_order_of_groups_does_not_matter(weights: np.ndarray, order: list[int]) -> None:
    shares = weights / weights.sum(axis=1, keepdims=True)
    assert share_error(shares[:, order], shares) == pytest.approx(0.0, abs=1e-12)


def test_one_group_for_two_concepts() -> None:
    planted = np.array([[0.7, 0.3], [0.3, 0.7]])
    # |1 - 0.7| + |0 - 0.3| and |1 - 0.3| + |0 - 0.7|, over four shares.
    assert share_error(np.ones((2, 1)), planted) == pytest.approx(0.5)
    assert share_error(np.zeros((2, 1)), planted) is None


def test_a_run_measures_and_writes_shares(tmp_path: Path) -> None:
    data = ct.load("digits", partition={"kind": "planted_mixture", "clients": 12})
    run = ct.run(
        ct.fedsoft(groups=2),
        data=data,
        model="mclr",
        local=ct.Solver(epochs=5, lr=0.1),
        rounds=12,
        clients_per_round=12,
        engine="serial",
        out=tmp_path / "run",
    )
    # A hard group of the right clients would be wrong by 0.3.
    assert run.rows[-1]["share_error"] < 0.15
    with (tmp_path / "run" / "shares.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["client", "group_0", "group_1"]
    assert len(rows) == 12
    for row in rows:
        assert float(row["group_0"]) + float(row["group_1"]) == pytest.approx(1.0)


def test_hard_groups_have_an_error_and_no_file(tmp_path: Path) -> None:
    data = ct.load("digits", partition={"kind": "planted_mixture", "clients": 12})
    run = ct.run(
        ct.fedavg(),
        data=data,
        model="mclr",
        rounds=1,
        clients_per_round=4,
        engine="serial",
        out=tmp_path / "run",
    )
    assert run.rows[0]["share_error"] == pytest.approx(0.5, abs=0.01)
    assert not (tmp_path / "run" / "shares.csv").exists()
