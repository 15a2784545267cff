"""Nodes that come, go, fail and answer garbage."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

import coterie as ct
from coterie.errors import ConfigError, QuorumError
from coterie.flower import ClusteredResult, ClusteredStrategy
from tests.flower.strategy.ordinary import (
    AppGrid,
    config,
    first_arrays,
    largest_gap,
    node_ids,
    rotated_digits,
    torch_app,
)
from tests.refusals import refuses

NODES = node_ids(6)
HOSTILE = sorted(NODES)[2]
ROUNDS = 3


def start(
    grid: AppGrid, method: ct.Method | None = None, timeout: float = 0.2, **options: object
) -> ClusteredResult:
    """A run of three rounds; nobody waits long for nodes in this process."""
    strategy = ClusteredStrategy(method or ct.fedgroup(groups=2, alpha=3), **options)
    return strategy.start(grid, first_arrays(), ROUNDS, timeout, config())


def arrays_changed(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[RecordDict], None]:
    def meddle(content: RecordDict) -> None:
        if "arrays" in content:
            arrays = content["arrays"].items()
            content["arrays"] = ArrayRecord({n: Array(change(a.numpy())) for n, a in arrays})

    return meddle


def metric_changed(**values: object) -> Callable[[RecordDict], None]:
    def meddle(content: RecordDict) -> None:
        kept = {name: value for name, value in content["metrics"].items() if name not in values}
        given = {name: value for name, value in values.items() if value is not None}
        content["metrics"] = MetricRecord({**kept, **given})

    return meddle


def renamed(content: RecordDict) -> None:
    if "arrays" in content:
        arrays = content["arrays"].items()
        content["arrays"] = ArrayRecord({f"module.{name}": array for name, array in arrays})


def twice(content: RecordDict) -> None:
    content["more"] = MetricRecord({"num-examples": 1})


def emptied(content: RecordDict) -> None:
    content.clear()


def lying_header(content: RecordDict) -> None:
    if "arrays" in content:
        first = next(iter(content["arrays"]))
        array = content["arrays"][first]
        content["arrays"][first] = Array("float32", (2, 2), "numpy.ndarray", array.data[:40])


GARBAGE: dict[str, tuple[Callable[[RecordDict], None], str]] = {
    "nan": (arrays_changed(lambda a: np.full_like(a, np.nan)), "not finite"),
    "infinite": (arrays_changed(lambda a: np.full(a.shape, 1e39)), "not finite"),
    "huge": (arrays_changed(lambda a: np.full(a.shape, 1e20)), "magnitude"),
    "transposed": (arrays_changed(lambda a: np.ascontiguousarray(a.T)), "malformed"),
    "whole_numbers": (arrays_changed(lambda a: a.astype(np.int64)), "malformed"),
    "renamed": (renamed, "malformed"),
    "lying_header": (lying_header, "malformed"),
    "two_metric_records": (twice, "malformed"),
    "nothing": (emptied, "malformed"),
    "no_samples": (metric_changed(**{"num-examples": 0}), "size"),
    "negative": (metric_changed(**{"num-examples": -5}), "size"),
    "uncounted": (metric_changed(**{"num-examples": None}), "keys"),
    "a_list": (metric_changed(**{"num-examples": [1, 2]}), "keys"),
    "nan_samples": (metric_changed(**{"num-examples": float("nan")}), "not finite"),
}


@functools.cache
def without_the_node() -> ClusteredResult:
    """A federation in which the hostile node does not answer."""

    def silent(request: Message, reply: Message) -> Message | None:
        return None if request.metadata.dst_node_id == HOSTILE else reply

    return start(AppGrid(torch_app(rotated_digits(6, 2)), NODES, silent))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_changes_nothing_but_its_own_count(name: str) -> None:
    """The result is that of a federation in which the node does not answer."""
    meddle, reason = GARBAGE[name]
    app = torch_app(rotated_digits(6, 2))

    def forged(request: Message, reply: Message) -> Message:
        if request.metadata.dst_node_id == HOSTILE:
            meddle(reply.content)
        return reply

    attacked = start(AppGrid(app, NODES, forged))
    without = without_the_node()
    assert largest_gap(attacked.arrays, without.arrays) == 0.0
    assert attacked.groups == without.groups
    assert all(row["refused"].get(reason, 0) >= 1 for row in attacked.rows)
    assert all(row["refused"].get("no answer", 0) >= 1 for row in without.rows)


def test_other_metrics_than_those_of_most_are_left_out() -> None:
    app = torch_app(rotated_digits(6, 1))

    def forged(request: Message, reply: Message) -> Message:
        if request.metadata.dst_node_id == HOSTILE:
            metric_changed(eval_acc=[1.0, 2.0], train_loss=[1e9])(reply.content)
        return reply

    result = start(AppGrid(app, NODES, forged), ct.fedavg())
    assert 0 < result.evaluate_metrics_clientapp[ROUNDS]["eval_acc"] < 1
    assert result.train_metrics_clientapp[ROUNDS]["train_loss"] < 3


def test_an_app_that_fails_is_left_out_and_its_error_is_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = torch_app(rotated_digits(6, 2))
    failing = NODES[HOSTILE]

    def fails(message: Message, context: object) -> Message:
        if context.node_config["partition-id"] == failing:
            raise RuntimeError("no such table: patients")
        return app(message, context)

    result = start(AppGrid(fails, NODES))
    assert all(row["refused"] == {"failed": row["refused"]["failed"]} for row in result.rows)
    assert HOSTILE not in result.groups
    assert len(result.groups) == 5
    assert any(
        str(HOSTILE) in line and "no such table: patients" in line for line in caplog.messages
    )


def test_a_node_that_comes_later_joins_the_group_of_its_like() -> None:
    held = rotated_digits(8, 2)
    ids = node_ids(8)
    late = dict(list(ids.items())[6:])
    early = {node: part for node, part in ids.items() if node not in late}

    def arrive(grid: AppGrid, exchange: int) -> None:
        if exchange == 4:
            grid.parts |= late

    grid = AppGrid(torch_app(held), dict(early), before=arrive)
    result = start(grid)
    joined = [event for row in result.rows for event in row["attendance"]]
    assert [event["kind"] for event in joined] == ["joined"]
    assert sorted(joined[0]["clients"]) == sorted(map(str, late))
    by_turn = {
        turn: {result.groups[node] for node in ids if ids[node] % 2 == turn} for turn in (0, 1)
    }
    assert [len(groups) for groups in by_turn.values()] == [1, 1]
    assert by_turn[0] != by_turn[1]


def test_a_node_that_leaves_keeps_its_group() -> None:
    gone = sorted(NODES)[0]

    def leave(grid: AppGrid, exchange: int) -> None:
        if exchange == 3:
            del grid.parts[gone]

    grid = AppGrid(torch_app(rotated_digits(6, 2)), dict(NODES), before=leave)
    result = start(grid)
    assert result.groups[gone] in (0, 1)
    assert largest_gap(result.arrays_of(gone), result.models[result.groups[gone]]) == 0.0
    events = [event for row in result.rows for event in row["attendance"]]
    assert events == [{"kind": "left", "clients": [str(gone)]}]
    with refuses(ConfigError, "not-found", "node_id"):
        result.arrays_of(1)


def test_places_are_limited() -> None:
    def arrive(grid: AppGrid, exchange: int) -> None:
        grid.parts |= {10**10 + exchange: exchange}

    grid = AppGrid(torch_app(rotated_digits(12, 1)), dict(NODES), before=arrive)
    result = start(grid, ct.fedavg(), max_nodes=7)
    assert len(result.groups) == 7


def test_max_nodes_holds_from_the_start() -> None:
    grid = AppGrid(torch_app(rotated_digits(6, 1)), dict(NODES))
    result = start(grid, ct.fedavg(), max_nodes=4)
    assert set(result.groups) == set(sorted(NODES)[:4])
    assert {one.metadata.dst_node_id for one in grid.sent} == set(result.groups)


def test_too_few_nodes_are_not_waited_for_without_end() -> None:
    few = dict(list(NODES.items())[:1])
    with refuses(QuorumError, "too-few", "min_available_nodes"):
        start(AppGrid(torch_app(rotated_digits(6, 1)), few))


def test_too_few_replies_skip_the_round() -> None:
    def lost(request: Message, reply: Message) -> Message | None:
        return None if request.metadata.dst_node_id != HOSTILE else reply

    grid = AppGrid(torch_app(rotated_digits(6, 1)), NODES, lost)
    result = start(grid, ct.fedavg(), timeout=0.1, min_replies=2)
    assert [row["skipped"] for row in result.rows] == [True] * ROUNDS
    assert largest_gap(result.arrays, first_arrays()) == 0.0


def test_losses_that_no_reply_has_are_asked_for_by_name() -> None:
    app = torch_app(rotated_digits(6, 2))

    def without(request: Message, reply: Message) -> Message:
        if "eval_loss" in reply.content["metrics"]:
            metrics = reply.content["metrics"]
            metrics["penalty"] = metrics.pop("eval_loss")
        return reply

    with refuses(ConfigError, "missing", "loss_key"):
        start(AppGrid(app, NODES, without), ct.ifca(groups=2))
    result = start(AppGrid(app, NODES, without), ct.ifca(groups=2), loss_key="penalty")
    assert len(result.groups) == 6
    # Methods that compare no losses need none.
    start(AppGrid(app, NODES, without), ct.fedavg())


# --- arrays ---------------------------------------------------------------------------------------


def echo(message: Message, context: object) -> Message:
    """A client that adds one to all it is sent."""
    metrics = MetricRecord({"num-examples": 5, "loss": 1.0})
    content = RecordDict({"metrics": metrics})
    if message.metadata.message_type == "train":
        arrays = message.content["arrays"].items()
        content["arrays"] = ArrayRecord(
            {name: Array(np.asarray(a.numpy() + 1)) for name, a in arrays}
        )
    return Message(content, reply_to=message)


def test_any_arrays_keep_their_order_types_and_shapes() -> None:
    first = ArrayRecord(
        {
            "steps": Array(np.array(7, np.int64)),
            "w": Array(np.zeros((2, 3))),
            "mask": Array(np.array([1, 0], np.int32)),
            "scale": Array(np.array(0.5, np.float32)),
            "half": Array(np.zeros((1, 2, 2), np.float16)),
            "none": Array(np.zeros((0, 4), np.float32)),
        }
    )
    result = ClusteredStrategy(ct.fedavg()).start(AppGrid(echo, NODES), first, 2, 1.0)
    assert list(result.arrays) == list(first)
    for name, array in result.arrays.items():
        assert (array.dtype, array.shape) == (first[name].dtype, first[name].shape)
        moved = 2 if np.dtype(array.dtype).kind == "f" else 0
        assert np.array_equal(array.numpy(), first[name].numpy() + moved)


def test_a_list_of_numpy_arrays_is_one_again() -> None:
    first = ArrayRecord([np.zeros((3, 4)), np.ones(3)])
    result = ClusteredStrategy(ct.fedavg()).start(AppGrid(echo, NODES), first, 1, 1.0)
    coefficients, intercept = result.arrays_of(HOSTILE).to_numpy_ndarrays()
    assert coefficients.tolist() == np.ones((3, 4)).tolist()
    assert intercept.tolist() == [2.0] * 3


@pytest.mark.parametrize(
    ("array", "code"),
    [
        (np.zeros(3, np.complex64), "wrong-type"),
        (np.zeros(3, np.int64), "missing"),
        (np.array([np.nan]), "not-finite"),
    ],
)
def test_arrays_that_cannot_be_averaged_are_refused(array: np.ndarray, code: str) -> None:
    grid = AppGrid(echo, NODES)
    with refuses(ConfigError, code, "initial_arrays"):  # type: ignore[arg-type]
        ClusteredStrategy(ct.fedavg()).start(grid, ArrayRecord([array]), 1, 1.0)
    assert not grid.sent


def test_the_final_layer_can_be_named() -> None:
    sent = []

    def backwards(request: Message, reply: Message) -> Message:
        sent.append(list(request.content["arrays"]))
        return reply

    torch_first = first_arrays()
    first = ArrayRecord({n: torch_first[n] for n in reversed(list(torch_first))})
    method = ct.fedclust(groups=2)
    grid = AppGrid(torch_app(rotated_digits(6, 2)), NODES, backwards)
    options = {"num_rounds": 2, "train_config": ConfigRecord({"lr": 0.1})}
    named = ClusteredStrategy(method, final_layer="fc2").start(grid, first, **options)
    assert sent[0] == list(first) == list(named.arrays)
    plain = AppGrid(torch_app(rotated_digits(6, 2)), NODES)
    usual = ClusteredStrategy(method).start(plain, torch_first, **options)
    assert named.groups == usual.groups
    assert largest_gap(named.models[0], ArrayRecord({n: usual.models[0][n] for n in first})) < 1e-6
    with refuses(ConfigError, "unknown-choice", "final_layer"):
        ClusteredStrategy(method, final_layer="head").start(plain, first, **options)
