"""Every partition: disjoint, complete, of the sizes its recipe says, and the same for the same
key."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie as ct
from coterie.core.keys import Key
from coterie.data import (
    PARTITIONS,
    Partition,
    Samples,
    load_partition,
    make_partition,
    populate,
)
from coterie.errors import Code, ConfigError, DataError
from tests.conftest import real_labels
from tests.data.partition_files import write_partition
from tests.refusals import refuses

KINDS = (
    *("power_law", "classes", "dirichlet", "ditto", "femnist10", "natural", "iid", "planted"),
    *("planted_mixture", "shards", "quantity_skew", "feature_noise", "dirichlet_by_size"),
)
SMALL = {
    "power_law": {"clients": 12},
    "classes": {"clients": 12},
    "dirichlet": {"clients": 6, "beta": 0.5, "min_size": 4},
    "ditto": {"clients": 30, "classes_per_client": 3},
    "femnist10": {"clients": 3, "classes_per_client": 2},
    "natural": {"column": "site"},
    "iid": {"clients": 9},
    "planted": {"clients": 6, "groups": 2},
    "planted_mixture": {"clients": 6, "groups": 2},
    "shards": {"clients": 6},
    "quantity_skew": {"clients": 9},
    "feature_noise": {"clients": 9},
    "dirichlet_by_size": {"clients": 6, "beta": 0.5},
}


def samples(
    labels: np.ndarray, classes: int, train_rows: int, x: torch.Tensor | None = None
) -> Samples:
    sites = np.array([f"s{i % 7}" for i in range(len(labels))])
    x = torch.zeros(len(labels), 1) if x is None else x
    return Samples(x, torch.from_numpy(labels), classes, train_rows, {"site": sites})


def union(parts: Partition) -> np.ndarray:
    return np.concatenate([*parts.train, *parts.test])


def same(a: Partition, b: Partition) -> bool:
    pairs = zip((*a.train, *a.test), (*b.train, *b.test), strict=True)
    return a.names == b.names and all(np.array_equal(x, y) for x, y in pairs)


@st.composite
def some_samples(draw: st.DrawFn) -> tuple[Samples, int]:
    seed = draw(st.integers(0, 2**32))
    classes = draw(st.integers(4, 8))
    rng = np.random.default_rng(seed)
    labels = np.concatenate(
        [np.repeat(np.arange(classes), 120), rng.integers(0, classes, draw(st.integers(0, 300)))]
    )
    labels = rng.permutation(labels).astype(np.int64)
    return samples(labels, classes, len(labels) - 200), seed


def test_the_kinds_are_these() -> None:
    """``rfedavg`` reuses samples by design, ``given`` deals what the source says; they have their
    own tests."""
    assert (
        tuple(kind for kind in PARTITIONS if kind not in ("rfedavg", "given"))
        == KINDS
        == tuple(SMALL)
    )


@pytest.mark.parametrize("kind", KINDS)
@given(case=some_samples())
@settings(max_examples=12, deadline=None)
def test_train_and_test_are_disjoint_and_the_key_decides(
    kind: str, case: tuple[Samples, int]
) -> None:
    data, seed = case
    table = {"kind": kind, **SMALL[kind]}
    try:
        parts = make_partition(data, table, Key(seed))
    except DataError as error:
        if kind != "femnist10" or "expected at most" not in str(error):
            raise
        return
    for train, test in zip(parts.train, parts.test, strict=True):
        own = np.concatenate([train, test])
        assert len(np.unique(own)) == len(own)
        assert train.dtype == test.dtype == np.int64
        assert len(train) > 0
    assert union(parts).min() >= 0
    assert union(parts).max() < len(data)
    if kind != "ditto":
        assert len(np.unique(union(parts))) == parts.samples, "a sample went to two clients"
    assert same(parts, make_partition(data, table, Key(seed)))
    if kind not in ("ditto", "natural", "femnist10"):
        assert not same(parts, make_partition(data, table, Key(seed + 1)))


def test_shards_are_of_equal_size_and_hold_few_classes() -> None:
    data = samples(np.repeat(np.arange(10), 60), 10, 600)
    parts = make_partition(data, {"kind": "shards", "clients": 20}, Key(3))
    assert {len(rows) for rows in parts.train} <= {26, 27, 28}
    for train, test in zip(parts.train, parts.test, strict=True):
        held = set(data.labels[train].tolist())
        # A shard of 13 or 14 of 54 rows a class reaches into two classes at most.
        assert len(held) <= 4
        assert set(data.labels[test].tolist()) <= held
    with refuses(DataError, "out-of-range", "data.partition.clients"):
        make_partition(data, {"kind": "shards", "clients": 300}, Key(3))


def test_sizes_follow_the_skew() -> None:
    data = samples(np.zeros(1100, np.int64), 1, 1000)
    square = make_partition(
        data, {"kind": "quantity_skew", "clients": 10, "skew": "square"}, Key(0)
    )
    held = np.array([len(rows) for rows in square.train])
    expected = 1 + 990 * np.arange(1, 11) ** 2 / 385
    assert np.abs(held - expected).max() <= 1
    narrow, wide = (
        np.std([len(rows) for rows in make_partition(data, {**table, "beta": beta}, Key(0)).train])
        for table in [{"kind": "quantity_skew", "clients": 10}]
        for beta in (100.0, 0.3)
    )
    assert narrow < 20 < wide


def test_exponential_sizes_give_the_last_client_most() -> None:
    data = samples(np.zeros(1000, np.int64), 1, 1000)
    table = {"kind": "quantity_skew", "clients": 800, "skew": "exponential"}
    # A client that has one sample trains on it, so that none is left to test on.
    held = [len(rows) for rows in make_partition(data, table, Key(0)).train]
    assert min(held) == 1
    whole = [
        len(train) + len(test)
        for parts in [make_partition(data, {**table, "clients": 10}, Key(0))]
        for train, test in zip(parts.train, parts.test, strict=True)
    ]
    expected = 1 + 990 * np.exp(np.arange(10)) / np.exp(np.arange(10)).sum()
    assert np.abs(whole - expected).max() <= 1


def test_dirichlet_by_size_gives_each_client_its_size_and_a_mix_of_its_own() -> None:
    data = samples(np.repeat(np.arange(10), 400), 10, 4000)
    sizes = (900, 600, 300, *[100] * 7)
    table = {"kind": "dirichlet_by_size", "clients": 10, "sizes": sizes}
    parts = make_partition(data, {**table, "beta": 0.1}, Key(5))
    assert tuple(map(len, parts.train)) == sizes
    even = make_partition(data, {**table, "beta": 1000.0}, Key(5))

    def largest(parts: Partition) -> float:
        """The mean share of a client's most frequent class."""
        shares = [np.bincount(data.labels[rows]).max() / len(rows) for rows in parts.train]
        return float(np.mean(shares))

    assert largest(even) < 0.2 < 0.5 < largest(parts)
    # Tests have the mix of the training samples.
    for train, test in zip(even.train, even.test, strict=True):
        assert abs(len(test) / len(train) - 400 / 3600) < 0.1
    with refuses(DataError, "wrong-shape", "data.partition.sizes"):
        make_partition(data, {**table, "sizes": (1, 2)}, Key(0))
    with refuses(DataError, "out-of-range", "data.partition.sizes") as caught:
        make_partition(data, {**table, "sizes": (3000, *[100] * 9)}, Key(0))
    assert caught.value.problems[0].allowed == "at most 3600"


@pytest.mark.parametrize(
    "kind",
    [
        *("dirichlet", "natural", "iid", "planted", "planted_mixture", "shards", "quantity_skew"),
        *("feature_noise", "dirichlet_by_size"),
    ],
)
@given(case=some_samples())
@settings(max_examples=10, deadline=None)
def test_every_sample_is_dealt(kind: str, case: tuple[Samples, int]) -> None:
    data, seed = case
    parts = make_partition(data, {"kind": kind, **SMALL[kind]}, Key(seed))
    assert sorted(union(parts).tolist()) == list(range(len(data)))


@given(case=some_samples(), clients=st.integers(1, 40), each=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_classes_deals_every_held_class_and_power_law_leaves_little(
    case: tuple[Samples, int], clients: int, each: int
) -> None:
    data, seed = case
    labels = data.y.numpy()
    for kind in ("classes", "power_law"):
        table = {"kind": kind, "clients": clients, "classes_per_client": each}
        try:
            parts = make_partition(data, table, Key(seed))
        except DataError as error:
            limit = int(str(error).split("at most ")[1])
            assert limit < clients
            assert make_partition(data, {**table, "clients": limit}, Key(seed)).clients == limit
            continue
        whole = [np.concatenate(pair) for pair in zip(parts.train, parts.test, strict=True)]
        for rows, train in zip(whole, parts.train, strict=True):
            counts = np.bincount(labels[rows], minlength=data.classes)
            assert (counts > 0).sum() == each
            assert counts[counts > 0].min() >= 5
            assert len(train) == int(0.9 * len(rows))
        held = np.unique(labels[np.concatenate(whole)])
        if kind == "classes":
            assert len(union(parts)) == np.isin(labels, held).sum()
        else:
            assert all(
                sorted(set(labels[r])) == sorted((u + j) % data.classes for j in range(each))
                for u, r in enumerate(whole)
            )


def test_dirichlet_tests_in_proportion_or_on_labels_present() -> None:
    rng = np.random.default_rng(0)
    data = samples(rng.integers(0, 5, 3000), 5, 2400)
    labels = data.y.numpy()
    proportional = make_partition(data, {"kind": "dirichlet", "clients": 10}, Key(3))
    present = make_partition(
        data, {"kind": "dirichlet", "clients": 10, "test": "labels_present"}, Key(3)
    )
    assert all(map(np.array_equal, proportional.train, present.train))
    for train, some, every in zip(proportional.train, proportional.test, present.test, strict=True):
        held = np.unique(labels[train])
        assert np.array_equal(np.sort(every), 2400 + np.flatnonzero(np.isin(labels[2400:], held)))
        got = np.bincount(labels[some], minlength=5) / 600
        assert np.abs(got - np.bincount(labels[train], minlength=5) / 2400).max() < 0.04
    assert min(map(len, present.train)) >= 10


def test_femnist10_released_shares_samples_from_the_start_of_each_class() -> None:
    data = samples(np.repeat(np.arange(10), 500), 10, 5000)
    table = {"kind": "femnist10", "clients": 40, "overlap": "released"}
    parts = make_partition(data, table, Key(1))
    sizes = [len(a) + len(b) for a, b in zip(parts.train, parts.test, strict=True)]
    assert all(size % 3 == 0 for size in sizes)
    assert len(np.unique(union(parts))) < parts.samples
    assert not same(parts, make_partition(data, table, Key(2)))
    largest: dict[int, set[int]] = {}
    for u in np.argsort(sizes)[::-1]:
        rows = np.concatenate([parts.train[u], parts.test[u]])
        for c in (u + np.arange(3)) % 10:
            mine = set(rows[data.y.numpy()[rows] == c].tolist())
            assert mine <= largest.setdefault(int(c), mine)
    for tiny in ({"clients": 40, "per_class": 20}, {"clients": 400}):
        with refuses(DataError, "out-of-range", "data.partition.clients"):
            make_partition(data, {"kind": "femnist10", **tiny}, Key(1))


def test_natural_keeps_the_split_of_the_source_or_draws_one() -> None:
    labels = np.zeros(12, np.int64)
    sites = np.array(list("aabbaabbcddd"))
    data = Samples(torch.zeros(12, 1), torch.from_numpy(labels), 1, 6, {"site": sites})
    table = {"kind": "natural", "column": "site"}
    kept = make_partition(data, table, Key(0))
    assert kept.names == ("a", "b", "d")
    assert [rows.tolist() for rows in kept.train] == [[0, 1, 4, 5], [2, 3], []]
    assert [rows.tolist() for rows in kept.test] == [[], [6, 7], [9, 10, 11]]
    drawn = make_partition(
        data, {**table, "split": "random", "min_size": 3, "test_fraction": 0.5}, Key(0)
    )
    assert drawn.names == ("a", "b", "d")
    assert [(len(a), len(b)) for a, b in zip(drawn.train, drawn.test, strict=True)] == [
        (2, 2),
        (2, 2),
        (1, 2),
    ]
    apart = Samples(data.x, data.y, 1, 8, {"site": sites})
    assert all(len(rows) for rows in make_partition(apart, table, Key(0)).train), (
        "no client in both: pooled"
    )
    with refuses(DataError, "not-found", "data.partition.column"):
        make_partition(data, {**table, "column": "sit"}, Key(0))
    with refuses(DataError, "out-of-range", "data.partition.min_size"):
        make_partition(data, {**table, "min_size": 5}, Key(0))


def test_planted_labels_are_disjoint_between_groups() -> None:
    data = samples(np.tile(np.arange(10), 60), 10, 600)
    parts = make_partition(data, {"kind": "planted", "clients": 9, "groups": 3}, Key(0))
    population = populate(data, parts)
    assert population.planted is not None
    held = [
        set(np.flatnonzero(population.histograms()[population.planted == g].sum(0)))
        for g in range(3)
    ]
    assert held == [{0, 1, 2, 3}, {4, 5, 6}, {7, 8, 9}]


def test_planted_swap_gives_each_group_its_own_labels() -> None:
    data = samples(np.tile(np.arange(10), 60), 10, 600)
    parts = make_partition(
        data, {"kind": "planted", "clients": 9, "groups": 4, "how": "swap"}, Key(0)
    )
    population = populate(data, parts)
    assert parts.planted is not None
    assert parts.relabel is not None
    assert all(len(set(column)) == 4 for column in parts.relabel.T), "two groups agree on a label"
    for i, g in enumerate(parts.planted):
        rows = parts.train[i]
        assert population.labels[rows].tolist() == parts.relabel[g][data.y.numpy()[rows]].tolist()
    assert data.y.tolist() == np.tile(np.arange(10), 60).tolist(), "the source is not changed"


@pytest.mark.parametrize("how", ["labels", "swap", "rotate"])
def test_planted_clients_may_be_small(how: str) -> None:
    data = samples(np.tile(np.arange(10), 60), 10, 600, torch.zeros(600, 1, 2, 2))
    table = {"kind": "planted", "clients": 4, "groups": 2, "how": how, "test_fraction": 0.25}
    parts, whole = (make_partition(data, table | more, Key(0)) for more in ({"size": 20}, {}))
    assert [len(rows) for rows in parts.train] == [15] * 4
    assert [len(rows) for rows in parts.test] == [5] * 4
    assert len(set(union(parts).tolist())) == 80
    assert same(whole, make_partition(data, table | {"size": 10_000}, Key(0)))
    with refuses(ConfigError, "out-of-range", "data.partition.size"):
        make_partition(data, table | {"size": 1}, Key(0))


@pytest.mark.parametrize("how", ["labels", "swap", "rotate"])
def test_every_round_tells_how_well_planted_groups_are_found(how: str) -> None:
    data = ct.load("digits", partition={"kind": "planted", "clients": 12, "groups": 3, "how": how})
    local = ct.Solver(epochs=2, lr=0.1)
    method = ct.fedgroup(groups=3, alpha=4)
    rows = ct.run(
        method,
        data=data,
        model="mclr",
        local=local,
        rounds=3,
        clients_per_round=12,
        engine="serial",
    ).rows
    assert [set(row["agreement"]) for row in rows] == [{"ari", "nmi"}] * 3
    assert rows[-1]["agreement"]["ari"] == 1


def test_planted_rotate_turns_the_images() -> None:
    x = torch.arange(4.0).reshape(1, 1, 2, 2).repeat(40, 1, 1, 1)
    data = samples(np.zeros(40, np.int64), 1, 40, x)
    parts = make_partition(
        data, {"kind": "planted", "clients": 8, "groups": 4, "how": "rotate"}, Key(0)
    )
    population = populate(data, parts)
    for i, g in enumerate(parts.planted if parts.planted is not None else ()):
        assert torch.equal(
            population.x[parts.train[i][0]], torch.rot90(x[0], int(g), dims=(-2, -1))
        )
    assert torch.equal(data.x, x)
    flat = samples(np.zeros(40, np.int64), 1, 40)
    with refuses(DataError, "does-not-fit", "data.partition.how"):
        populate(flat, parts)


@pytest.mark.parametrize(
    ("table", "path", "allowed"),
    [
        ({"kind": "planted", "groups": 5, "how": "rotate"}, "groups", "at most 4"),
        ({"kind": "planted", "groups": 11}, "groups", "at most 10"),
        ({"kind": "planted", "clients": 5000}, "clients", "at most 300"),
        ({"kind": "iid", "clients": 5000}, "clients", "at most 600"),
        (
            {"kind": "power_law", "classes_per_client": 11},
            "classes_per_client",
            "1 to 10, the number of classes",
        ),
        ({"kind": "ditto"}, "kind", ""),
        ({"kind": "natural", "column": "site", "split": "source"}, "kind", ""),
        ({"kind": "dirichlet", "clients": 100}, "clients", "at most 54"),
    ],
)
def test_too_little_data_is_said_in_one_line(
    table: dict[str, object], path: str, allowed: str
) -> None:
    data = samples(np.tile(np.arange(10), 60), 10, 600)
    code: Code = "out-of-range" if allowed else "does-not-fit"
    with refuses(DataError, code, f"data.partition.{path}") as caught:
        make_partition(data, table, Key(0))
    assert caught.value.problems[0].allowed == allowed
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "refusal"),
    [
        ({"kind": "idd"}, ("unknown-choice", "data.partition.kind")),
        ({"kind": "iid", "client": 3}, ("unknown-key", "data.partition.client")),
        ({"kind": "iid", "clients": 0}, ("out-of-range", "data.partition.clients")),
        ({"kind": "iid", "labels": []}, ("unknown-key", "data.partition.labels")),
        ({"kind": "dirichlet", "test": "all"}, ("unknown-choice", "data.partition.test")),
        ({}, ("unknown-choice", "data.partition.kind")),
    ],
)
def test_a_wrong_table_is_said_in_one_line(
    table: dict[str, object], refusal: tuple[Code, str]
) -> None:
    with refuses(ConfigError, *refusal) as caught:
        make_partition(samples(np.zeros(9, np.int64), 1, 9), table, Key(0))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("how", ["labels", "swap", "rotate"])
def test_parts_round_trip(how: str, tmp_path: Path) -> None:
    data = samples(np.tile(np.arange(10), 60), 10, 600)
    parts = make_partition(data, {"kind": "planted", "how": how}, Key(0))
    write_partition(tmp_path / "partition.npz", parts)
    back = load_partition(tmp_path / "partition.npz")
    assert same(parts, back)
    assert back.transform == parts.transform
    assert np.array_equal(back.planted, parts.planted)  # type: ignore[arg-type]
    assert (back.relabel is None) == (parts.relabel is None)
    assert [file.name for file in tmp_path.iterdir()] == ["partition.npz"]


def test_damaged_parts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "partition.npz"
    write_partition(
        path,
        Partition(
            (np.array([0, 1]), np.array([2])), (np.array([3]), np.array([], np.int64)), ("a", "b")
        ),
    )
    whole = path.read_bytes()
    with np.load(path) as archive:
        arrays = dict(archive)
    damages: list[dict[str, np.ndarray]] = [
        {"train": np.array([0.5])},
        {"train": -arrays["train"]},
        {"test_offsets": np.array([0, 9])},
        {"train_offsets": np.array([0, 3, 3, 3])},
        {"names": np.array(["a"])},
        {"names": np.array([{}], dtype=object)},
        {"planted": np.array([0, -1])},
        {"transform": np.array("eval")},
        {"relabel": np.array([[0, 0]])},
    ]
    for damage in damages:
        np.savez(path, **{**arrays, **damage})
        with refuses(DataError, "cannot-be-read", "partition.npz"):
            load_partition(path)
    for bad in (b"", b"not npz", whole[: len(whole) // 2], whole[:60] + bytes(60) + whole[120:]):
        path.write_bytes(bad)
        with refuses(DataError, "cannot-be-read", "partition.npz"):
            load_partition(path)
    with refuses(DataError, "cannot-be-read", "none.npz"):
        load_partition(tmp_path / "none.npz")


def test_ditto_gives_the_published_count_of_fashion_mnist() -> None:
    parts = make_partition(real_labels("fashion_mnist"), {"kind": "ditto"}, Key(0))
    assert (sum(map(len, parts.train)), sum(map(len, parts.test))) == (61_251, 11_254)


def test_power_law_on_mnist_is_like_the_published_file() -> None:
    data = real_labels("mnist", 10, "writer_id")
    parts = make_partition(data, {"kind": "power_law"}, Key(0))
    sizes = np.array([len(a) + len(b) for a, b in zip(parts.train, parts.test, strict=True)])
    assert parts.clients == 1000
    assert 68_500 < sizes.sum() < 69_500  # the released file has 69,035
    assert sizes.min() >= 10
    assert 60 < sizes.std() < 250
    writers = make_partition(data, {"kind": "natural", "column": "writer_id"}, Key(0))
    assert writers.clients == 836
    assert writers.samples == 70_000


def test_femnist10_on_letters_and_writers_of_femnist() -> None:
    letters = make_partition(real_labels("emnist_letters_aj"), {"kind": "femnist10"}, Key(0))
    assert letters.clients == 200
    assert 10_000 < letters.samples < 30_000
    writers = make_partition(
        real_labels("femnist", 62, "writer_id"), {"kind": "natural", "column": "writer_id"}, Key(0)
    )
    assert (writers.clients, sum(map(len, writers.train)), sum(map(len, writers.test))) == (
        300,
        41_258,
        4_700,
    )
