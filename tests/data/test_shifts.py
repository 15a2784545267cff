"""Distribution shifts: what moves, what stays, and that they are pure functions."""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.config.identity import config_hash
from coterie.core.keys import Key
from coterie.data.population import Population
from coterie.data.shifts import (
    SHIFTS,
    FederationSnapshot,
    RoundSchedule,
    Shift,
    combined,
    make_shift,
)
from coterie.errors import Code, ConfigError, DataError
from coterie.experiment import check, load_config
from tests.conftest import SHIFT_OPTIONS, blobs
from tests.refusals import refuses


def by_label(clients: int, each: int = 6, classes: int = 4) -> Population:
    """Client ``i`` holds the labels ``i`` and ``i + 1``, in training and in test; no sample
    twice."""
    y = np.concatenate([np.tile([i % classes, (i + 1) % classes], each) for i in range(clients)])
    rows = np.arange(len(y)).reshape(clients, 2 * each)
    x = torch.arange(len(y), dtype=torch.float32)[:, None]
    return Population(
        x, torch.from_numpy(y), tuple(rows[:, : each + 2]), tuple(rows[:, each + 2 :]), classes
    )


def play(
    shift: Shift, population: Population, rounds: int, seed: int = 0, warm: Any = None
) -> Iterator[FederationSnapshot]:
    snapshot = FederationSnapshot.start(population)
    for t in range(rounds):
        met = np.ones(population.clients, bool) if warm is None else warm
        snapshot = shift(snapshot, population, t, met, Key(seed, "shift", t))
        yield snapshot


def same(one: Population, other: Population) -> bool:
    """Whether every client holds the identical arrays."""
    parts = zip((*one.train, *one.test), (*other.train, *other.test), strict=True)
    return one.y is other.y and all(a is b for a, b in parts)


def table(population: Population, split: str) -> list[tuple[float, int]]:
    rows = np.concatenate(population.parts(split))  # type: ignore[arg-type]
    return sorted(zip(population.x[rows, 0].tolist(), population.y[rows].tolist(), strict=True))


# --- all of them ----------------------------------------------------------------------------------


def test_the_names_are_these() -> None:
    # That of concepts needs copies of all samples, and has tests of its own.
    assert tuple(SHIFTS) == (*SHIFT_OPTIONS, "concepts")


@pytest.mark.parametrize("name", SHIFT_OPTIONS)
def test_unchanged_clients_keep_the_identical_arrays(name: str) -> None:
    population = blobs()
    moved = 0
    before = FederationSnapshot.start(population)
    for snapshot in play(SHIFTS[name](**SHIFT_OPTIONS[name]), population, 9):
        assert snapshot.population.x is population.x
        kept = np.setdiff1d(np.arange(12), snapshot.changed)
        for i in kept:
            assert snapshot.population.train[i] is before.population.train[i]
            assert snapshot.population.test[i] is before.population.test[i]
            rows = snapshot.population.train[i]
            assert torch.equal(snapshot.population.y[rows], before.population.y[rows])
        for i in snapshot.changed:
            rows = snapshot.population.train[i]
            old = before.population.train[i]
            assert rows is not old or not torch.equal(
                snapshot.population.y[rows], before.population.y[rows]
            )
        if not snapshot.events:
            assert snapshot.population is before.population
            assert np.array_equal(snapshot.present, before.present)
            assert not len(snapshot.changed)
        assert json.loads(json.dumps(snapshot.events)) == list(snapshot.events)
        assert all(event["shift"] for event in snapshot.events)
        moved += len(snapshot.events)
        before = snapshot
    assert moved


@pytest.mark.parametrize("name", SHIFT_OPTIONS)
def test_a_shift_is_a_pure_function(name: str) -> None:
    population = blobs()
    arrays = [rows.copy() for rows in (*population.train, *population.test)]
    y = population.y.clone()
    shift = SHIFTS[name](**SHIFT_OPTIONS[name])
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    one = list(play(shift, population, 6))
    other = list(play(SHIFTS[name](**SHIFT_OPTIONS[name]), population, 6))
    for a, b in zip(one, other, strict=True):
        assert a.events == b.events
        assert a.present.tolist() == b.present.tolist()
        for rows, again in zip(a.population.train, b.population.train, strict=True):
            assert rows.tolist() == again.tolist()
        assert torch.equal(a.population.y, b.population.y)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(arrays, (*population.train, *population.test), strict=True)
    )
    assert torch.equal(y, population.y)
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002
    seeds = [
        [snapshot.events for snapshot in play(shift, population, 9, seed)] for seed in range(3)
    ]
    assert name == "incremental" or seeds[0] != seeds[1] or seeds[1] != seeds[2]


@pytest.mark.parametrize("name", SHIFT_OPTIONS)
def test_resuming_in_the_middle_is_the_same(name: str) -> None:
    population = blobs()
    shift = SHIFTS[name](**SHIFT_OPTIONS[name])
    straight = list(play(shift, population, 8))
    middle = straight[3]
    copied = FederationSnapshot(
        replace(middle.population, train=tuple(rows.copy() for rows in middle.population.train)),
        middle.present.copy(),
    )
    for t in range(4, 8):
        copied = shift(copied, population, t, np.ones(12, bool), Key(0, "shift", t))
        assert copied.events == straight[t].events
        assert [r.tolist() for r in copied.population.train] == [
            r.tolist() for r in straight[t].population.train
        ]


# --- swaps ----------------------------------------------------------------------------------------


@given(
    name=st.sampled_from(["swap_all", "swap_part"]),
    clients=st.integers(1, 15),
    p=st.floats(0, 1),
    seed=st.integers(0, 2**32),
    rounds=st.integers(1, 4),
)
def test_swaps_leave_the_global_data_unchanged(
    name: str, clients: int, p: float, seed: int, rounds: int
) -> None:
    population = by_label(clients)
    for snapshot in play(SHIFTS[name](p=p), population, rounds, seed):
        for split in ("train", "test"):
            assert table(snapshot.population, split) == table(population, split)
        for event in snapshot.events:
            flat = [i for pair in event["pairs"] for i in pair]
            assert len(set(flat)) == len(flat)
            assert sorted(flat) == snapshot.changed.tolist()


@pytest.mark.parametrize(("n", "p"), [(1000, 0.05), (21, 0.3)])
def test_the_number_of_swapped_pairs_is_binomial(n: int, p: float) -> None:
    population = Population(
        torch.zeros(n, 1), torch.zeros(n).long(), tuple(np.arange(n)[:, None]), ([],) * n, 1
    )
    shift = SHIFTS["swap_all"](p=p)
    snapshot = FederationSnapshot.start(population)
    rounds = 200
    counts = [
        sum(
            len(e["pairs"])
            for e in shift(snapshot, population, t, np.ones(n, bool), Key(1, "", t)).events
        )
        for t in range(rounds)
    ]
    mean = p * (n // 2)
    deviation = (p * (1 - p) * (n // 2) / rounds) ** 0.5
    assert abs(np.mean(counts) - mean) < 4 * deviation


def test_swap_all_exchanges_everything_and_the_planted_group() -> None:
    population = blobs()
    (snapshot,) = play(SHIFTS["swap_all"](p=1.0), population, 1)
    now = snapshot.population
    assert len(snapshot.changed) == 12
    for a, b in snapshot.events[0]["pairs"]:
        assert now.train[a] is population.train[b]
        assert now.test[b] is population.test[a]
        assert population.planted is not None
        assert now.planted is not None
        assert now.planted[a] == population.planted[b]


def test_the_pool_is_who_is_warm_or_who_is_present() -> None:
    population = blobs()
    warm = np.arange(12) < 4
    for pool, able in (("warm", 4), ("all", 12)):
        (snapshot,) = play(SHIFTS["swap_all"](p=1.0, pool=pool), population, 1, warm=warm)
        assert snapshot.changed.tolist() == list(range(able))
    (nothing,) = play(SHIFTS["swap_all"](p=1.0), population, 1, warm=np.zeros(12, bool))
    assert same(nothing.population, population)
    gone = FederationSnapshot(population, np.arange(12) >= 6)
    snapshot = SHIFTS["swap_all"](p=1.0, pool="all")(gone, population, 0, warm, Key(0, "", 0))
    assert snapshot.changed.min() == 6


def test_swap_part_exchanges_one_label_each_way() -> None:
    population = by_label(2)  # labels 0, 1 against 1, 2
    (snapshot,) = play(SHIFTS["swap_part"](p=1.0), population, 1)
    (event,) = snapshot.events
    order = event["pairs"][0]
    labels = dict(zip(order, event["labels"][0], strict=True))
    assert labels == {0: 0, 1: 2}
    for parts in (snapshot.population.train, snapshot.population.test):
        assert [set(population.labels[rows].tolist()) for rows in parts] == [{1, 2}, {0, 1}]


def test_swap_part_skips_pairs_without_labels_to_trade_and_goes_on() -> None:
    y = torch.tensor([0, 0, 0, 0, 1, 1])
    population = Population(torch.zeros(6, 1), y, ([0], [1], [4]), ([2], [3], [5]), classes=2)
    shift = SHIFTS["swap_part"](p=1.0)
    outcomes = set()
    for seed in range(40):
        (snapshot,) = play(shift, population, 1, seed)
        outcomes.add(tuple(snapshot.changed.tolist()))
    assert outcomes == {(), (0, 2), (1, 2)}
    four = by_label(4)  # of two pairs, one may have the same labels: the other still goes
    alike = replace(four, y=torch.where(four.y == 3, 1, four.y))
    changed = {
        len(snapshot.changed) for seed in range(30) for snapshot in play(shift, alike, 1, seed)
    }
    assert 2 in changed or 4 in changed
    # clients i and i + 4 hold the same labels
    seven = by_label(7)
    skipped = 0
    for seed in range(30):
        (every,) = play(SHIFTS["swap_all"](p=1.0), seven, 1, seed)  # draws the same pairs
        drawn = every.events[0]["pairs"]
        differ = [abs(a - b) != 4 for a, b in drawn]
        (snapshot,) = play(shift, seven, 1, seed)
        traded = [pair for event in snapshot.events for pair in event["pairs"]]
        assert traded == [pair for pair, can in zip(drawn, differ, strict=True) if can]
        skipped += any(not can and any(differ[at:]) for at, can in enumerate(differ))
    assert skipped > 0, "in some draw a pair trades after one that could not"


def test_swap_part_counts_labels_present_in_both_splits() -> None:
    y = torch.tensor([0, 1, 2, 0, 1, 3])
    population = Population(torch.zeros(6, 1), y, ([0, 2], [1]), ([3], [4, 5]), classes=4)
    (snapshot,) = play(SHIFTS["swap_part"](p=1.0), population, 1)
    assert sorted(snapshot.events[0]["labels"][0]) == [0, 1]
    assert [r.tolist() for r in snapshot.population.train] == [[2, 1], [0]]


def test_schedules() -> None:
    population = blobs()
    shift = SHIFTS["swap_all"](p=1.0, start=2, stop=9, every=3)
    assert [t for t, snapshot in enumerate(play(shift, population, 12)) if snapshot.events] == [
        2,
        5,
        8,
    ]
    assert [t for t in range(9) if RoundSchedule(1, every=2, times=3).due(t)] == [1, 3, 5]


# --- release --------------------------------------------------------------------------------------


def one_client(n: int) -> Population:
    return Population(torch.zeros(n + 1, 1), torch.zeros(n + 1).long(), (np.arange(n),), ([n],), 1)


@pytest.mark.parametrize(
    ("release", "n", "sizes"),
    [
        ("cumulative", 100, [25, 50, 75, 100, 100]),
        ("flexcfl_code", 100, [25, 13, 10, 10, 10]),
        ("cumulative", 7, [2, 4, 6, 7, 7]),
        ("cumulative", 1, [1, 1, 1, 1, 1]),
        ("flexcfl_code", 1, [1, 1, 1, 1, 1]),
    ],
)
def test_released_sizes(release: str, n: int, sizes: list[int]) -> None:
    population = one_client(n)
    snapshots = list(play(SHIFTS["incremental"](release=release), population, 201))
    assert [len(snapshots[t].population.train[0]) for t in (0, 50, 100, 150, 200)] == sizes
    assert [len(snapshots[t].population.train[0]) for t in (49, 99)] == sizes[:2]
    for before, after in itertools.pairwise(snapshots):
        short, long = sorted((before.population.train[0], after.population.train[0]), key=len)
        assert long[: len(short)].tolist() == short.tolist()
        assert after.population.test[0] is population.test[0]
        assert bool(after.events) == (len(short) < len(long))


@pytest.mark.parametrize(
    ("release", "sizes"), [("cumulative", [20, 5, 10, 20]), ("flexcfl_code", [20, 5, 3, 3])]
)
def test_a_late_first_release_leaves_everything_until_then(release: str, sizes: list[int]) -> None:
    population = one_client(20)
    snapshots = list(play(SHIFTS["incremental"](release=release, every=4, start=3), population, 20))
    assert snapshots[2].population.train[0] is population.train[0]
    assert [len(snapshots[t].population.train[0]) for t in (2, 3, 7, 15)] == sizes
    assert [t for t, snapshot in enumerate(snapshots) if snapshot.events][:2] == [3, 7]


@pytest.mark.parametrize("release", ["cumulative", "flexcfl_code"])
def test_a_client_whose_only_sample_is_released_at_once_did_not_change(release: str) -> None:
    snapshots = play(SHIFTS["incremental"](release=release, every=2, start=1), one_client(1), 6)
    assert not any(len(snapshot.changed) or snapshot.events for snapshot in snapshots)


@pytest.mark.parametrize(
    ("kind", "parameters", "path"),
    [
        ("departures", {"round": 9, "count": 7}, "shift.count"),
        ("arrivals", {"round": 9, "count": 7}, "shift.count"),
        ("rotate_labels", {"round": 9, "count": 7}, "shift.count"),
        ("rotate_labels", {"round": 9, "count": 1, "pool": "warm"}, "shift.kind"),
    ],
)
def test_what_a_later_wave_would_refuse_is_refused_before_the_first_round(
    kind: str, parameters: dict[str, Any], path: str
) -> None:
    population = by_label(6)
    if path == "shift.kind":
        # Two clients share a sample.
        population = population.with_parts(
            (population.train[1], *population.train[1:]), population.test
        )
    with pytest.raises((ConfigError, DataError)) as caught:
        next(play(SHIFTS[kind](**parameters), population, 1, warm=np.zeros(6, bool)))
    assert caught.value.problems[0].path == path


def test_arrivals_of_several_tables_leave_somebody_to_begin_with() -> None:
    shift = as_shift([{"kind": "arrivals", "count": 2}, {"kind": "arrivals", "count": 3}])

    def first(seed: int) -> FederationSnapshot:
        return next(play(shift, by_label(4), 1, seed))

    with refuses(ConfigError, "out-of-range", "shift.waves"):
        all(first(seed).present.any() for seed in range(12))


def test_nothing_may_move_training_data_before_the_first_release() -> None:
    tables: list[dict[str, Any]] = [
        {"kind": "incremental", "start": 2},
        {"kind": "swap_all", "p": 1.0, "pool": "all"},
    ]
    with refuses(ConfigError, "in-conflict", "shift.start"):
        list(play(as_shift(tables), by_label(4), 4))
    tables[1]["start"] = 2
    before, after = list(play(as_shift(tables), by_label(4), 4))[1:3]
    assert [len(rows) for rows in before.population.train] == [8] * 4
    assert [len(rows) for rows in after.population.train] == [2] * 4


def as_shift(tables: list[dict[str, Any]]) -> Shift:
    shift = make_shift(tables)
    assert shift is not None
    return shift


def test_a_release_by_tenths_is_not_rounded_up() -> None:
    snapshots = play(SHIFTS["incremental"](share=0.1, every=1), one_client(10), 11)
    assert [len(snapshot.population.train[0]) for snapshot in snapshots] == [*range(1, 11), 10]


def test_the_order_of_release_is_random_and_each_clients_own() -> None:
    population = Population(
        torch.zeros(40, 1), torch.zeros(40).long(), (np.arange(20), np.arange(20, 40)), ([],) * 2, 1
    )
    *_, snapshot = play(SHIFTS["incremental"](share=1.0), population, 1)
    first, second = (rows.tolist() for rows in snapshot.population.train)
    assert sorted(first) == list(range(20))
    assert first != sorted(first)
    assert first != [i - 20 for i in second]


# --- coming and going -----------------------------------------------------------------------------


def test_arrivals_are_away_and_come() -> None:
    snapshots = list(play(SHIFTS["arrivals"](round=2, count=3, waves=2, every=3), blobs(), 8))
    assert [int(s.present.sum()) for s in snapshots] == [6, 6, 9, 9, 9, 12, 12, 12]
    awaited = snapshots[0].events[0]["clients"]
    come = snapshots[2].events[0]["clients"] + snapshots[5].events[0]["clients"]
    assert sorted(come) == awaited
    assert all(same(s.population, snapshots[0].population) for s in snapshots)


def test_departures_leave_somebody() -> None:
    snapshots = list(
        play(SHIFTS["departures"](round=1, fraction=0.5, waves=4, every=1), blobs(), 6)
    )
    assert [int(s.present.sum()) for s in snapshots] == [12, 6, 1, 1, 1, 1]
    assert not (snapshots[-1].present & ~snapshots[0].present).any()
    gone = snapshots[1].events[0]["clients"]
    assert not snapshots[1].present[gone].any()


def test_nobody_to_begin_with_is_refused() -> None:
    with refuses(ConfigError, "out-of-range", "shift.waves"):
        list(play(SHIFTS["arrivals"](count=6, waves=2), blobs(), 1))
    with refuses(ConfigError, "out-of-range", "shift.count"):
        list(play(SHIFTS["departures"](round=0, count=13), blobs(), 1))


# --- what labels mean -----------------------------------------------------------------------------


def test_labels_turn_for_the_clients_met_alone() -> None:
    population = blobs()
    *_, before, snapshot = play(SHIFTS["rotate_labels"](round=3, count=4, by=3), population, 4)
    assert same(before.population, population)
    met = snapshot.events[0]["clients"]
    assert snapshot.changed.tolist() == met
    assert len(met) == 4
    for split in ("train", "test"):
        for i, rows in enumerate(population.parts(split)):  # type: ignore[arg-type]
            turned = (population.labels[rows] + 3 * (i in met)) % 4
            assert snapshot.population.labels[rows].tolist() == turned.tolist()
    assert snapshot.population.planted is not None
    assert population.planted is not None
    groups = zip(population.planted.tolist(), snapshot.population.planted.tolist(), strict=True)
    pairs = {(p, i in met, q) for i, (p, q) in enumerate(groups)}
    assert len(pairs) == len({q for *_, q in pairs}) == len({(p, m) for p, m, _ in pairs})


def test_shared_samples_are_refused() -> None:
    population = Population(
        torch.zeros(2, 1), torch.tensor([0, 1]), ([0], [0]), ([1], []), classes=2
    )
    with refuses(DataError, "does-not-fit", "shift.kind"):
        list(play(SHIFTS["rotate_labels"](round=0, count=1), population, 1))


def test_samples_yet_to_be_released_turn_too() -> None:
    population = by_label(4)
    both = combined(
        [SHIFTS["incremental"](share=0.5, every=4), SHIFTS["rotate_labels"](round=1, count=2)]
    )
    snapshots = list(play(both, population, 5))
    met = set(snapshots[1].events[0]["clients"])
    last = snapshots[-1].population
    for i in range(4):
        rows = np.sort(last.train[i])
        assert rows.tolist() == population.train[i].tolist()
        assert last.labels[rows].tolist() == ((population.labels[rows] + (i in met)) % 4).tolist()


# --- several, and the configuration ---------------------------------------------------------------


def test_all_of_them_at_once() -> None:
    # In a fixed order: with `swap_part` after all others, nobody here has a label to trade.
    first = "incremental"
    order = [first, *(name for name in SHIFT_OPTIONS if name != first)]
    shift = make_shift([{"kind": name, **SHIFT_OPTIONS[name]} for name in order])
    assert shift is not None
    seen = set()
    for snapshot in play(shift, blobs(), 6):
        seen |= {event["shift"] for event in snapshot.events}
        assert np.all(np.diff(snapshot.changed) > 0)
    assert seen >= set(SHIFT_OPTIONS)


TABLES = tomllib.loads(
    """
    data = {source = "digits", partition = {kind = "iid", clients = 4}}
    model = {name = "mclr"}
    train = {rounds = 3, clients_per_round = 4}
    algorithm = {name = "fedavg"}
    """
)
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*shift*.toml"))


def test_a_configuration_names_none_or_one_or_several() -> None:
    plain = check(TABLES)
    assert plain.shifts() == []
    assert "shift" not in plain.resolved()
    one = check(TABLES | {"shift": {"kind": "swap_all", "p": 0.1}})
    assert one.shifts() == [
        {"kind": "swap_all", "p": 0.1, "pool": "warm", "start": 0, "stop": None, "every": 1}
    ]
    two = check(TABLES | {"shift": [{"kind": "incremental"}, {"kind": "arrivals", "count": 1}]})
    assert [shift["kind"] for shift in two.shifts()] == ["incremental", "arrivals"]
    for config in (plain, one, two):
        again = check(tomllib.loads(config.toml()))
        assert again.resolved() == config.resolved()
        assert (make_shift(config.shifts()) is None) == (config is plain)
    assert len({config_hash(config.resolved()) for config in (plain, one, two)}) == 3


@pytest.mark.parametrize(
    ("shift", "refusal"),
    [
        (
            {"kind": "swap_al"},
            ("unknown-choice", "shift.kind"),
        ),
        (
            {"kind": "swap_all", "p": 1.5},
            ("out-of-range", "shift.p"),
        ),
        ({"kind": "swap_all", "pol": "all"}, ("unknown-key", "shift.pol")),
        ({"p": 0.5}, ("missing", "shift.kind")),
        (3, ("wrong-type", "shift")),
        (
            [{"kind": "incremental"}, {"kind": "incremental", "share": 0}],
            ("out-of-range", "shift.1.share"),
        ),
        ([{"kind": "incremental"}, 3], ("wrong-type", "shift.1")),
        (
            {"kind": "swap_part", "start": 5, "stop": 5},
            ("out-of-range", "shift.stop"),
        ),
        (
            {"kind": "departures", "count": 1, "fraction": 0.1},
            ("in-conflict", "shift.fraction"),
        ),
    ],
)
def test_one_line_says_what_is_wrong(shift: Any, refusal: tuple[Code, str]) -> None:
    with refuses(ConfigError, *refusal) as caught:
        check(TABLES | {"shift": shift}, "c.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "refusal"),
    [
        ({"kind": "swap_al"}, ("unknown-choice", "shift.kind")),
        ({"kind": "swap_all", "p": 1.5}, ("out-of-range", "shift.p")),
        ({"kind": "swap_all", "pol": "all"}, ("unknown-key", "shift.pol")),
        ({"p": 0.5}, ("unknown-choice", "shift.kind")),
    ],
)
def test_a_table_in_python_is_held_to_the_same(
    table: dict[str, Any], refusal: tuple[Code, str]
) -> None:
    with refuses(ConfigError, *refusal):
        make_shift([table])


def test_every_shift_has_an_example() -> None:
    assert {table["kind"] for path in EXAMPLES for table in load_config(path).shifts()} == set(
        SHIFTS
    )
