"""The strategy on an ordinary Flower app: the same as Flower's own FedAvg, and groups."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import Array, ArrayRecord, Message, MessageType, MetricRecord
from flwr.serverapp.strategy import FedAvg, FedAvgM, Strategy
from sklearn.metrics import adjusted_rand_score

import coterie as ct
from coterie.clients.bounds import Bounds
from coterie.errors import ConfigError
from coterie.flower import ClusteredResult, ClusteredStrategy
from coterie.rules.robust import coordinate_median
from tests.flower.strategy.ordinary import (
    AppGrid,
    ConvNet,
    Net,
    NormedNet,
    SmoothNet,
    config,
    first_arrays,
    largest_gap,
    node_ids,
    rotated_digits,
    torch_app,
)
from tests.refusals import refuses

ROUNDS = 10


def name_of(method: ct.Method) -> str:
    assert method.made_by is not None
    return str(method.made_by["name"])


def run(strategy: Strategy, grid: AppGrid, rounds: int, **options: object) -> ClusteredResult:
    options = {"initial_arrays": first_arrays(), "train_config": config(), **options}
    return strategy.start(grid=grid, num_rounds=rounds, **options)


def agreement(result: ClusteredResult, grid: AppGrid, turns: int) -> float:
    truth = [part % turns for part in grid.parts.values()]
    found = [result.groups[node] for node in grid.parts]
    return float(adjusted_rand_score(truth, found))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("ours", "theirs", "gap"),
    [
        (ct.fedavg(), FedAvg(), 1e-6),
        (
            ct.fedavgm(lr=1.0, beta=0.5),
            FedAvgM(server_learning_rate=1.0, server_momentum=0.5),
            1e-5,
        ),
    ],
)
def test_the_same_arrays_as_flowers_own_strategy(
    ours: ct.Method, theirs: Strategy, gap: float
) -> None:
    app = torch_app(rotated_digits(12, 1), SmoothNet)
    first = first_arrays(SmoothNet)
    flowers = run(theirs, AppGrid(app, node_ids(12)), ROUNDS, initial_arrays=first)
    result = run(ClusteredStrategy(ours), AppGrid(app, node_ids(12)), ROUNDS, initial_arrays=first)
    assert list(result.arrays) == list(flowers.arrays)
    assert largest_gap(result.arrays, flowers.arrays) <= gap
    assert [row.get("clipped") for row in result.rows] == [None] * ROUNDS
    for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp"):
        own = getattr(result, name)
        other = getattr(flowers, name)
        assert list(own) == list(other) == list(range(1, ROUNDS + 1))
        for number in own:
            assert dict(own[number]) == pytest.approx(dict(other[number]), rel=100 * gap)


@pytest.mark.slow
def test_each_round_of_a_network_with_kinks_gives_the_arrays_of_flowers_own() -> None:
    # Over ten rounds without a break, rounding grows, as between two runs of Flower's own.
    app = torch_app(rotated_digits(10, 1), ConvNet, momentum=0.9)
    arrays = first_arrays(ConvNet)
    for _ in range(ROUNDS):
        flowers = run(FedAvg(), AppGrid(app, node_ids(10)), 1, initial_arrays=arrays)
        strategy = ClusteredStrategy(ct.fedavg())
        ours = run(strategy, AppGrid(app, node_ids(10)), 1, initial_arrays=arrays)
        assert largest_gap(ours.arrays, flowers.arrays) <= 1e-6
        arrays = flowers.arrays


def test_running_statistics_are_averaged_and_counters_stay() -> None:
    app = torch_app(rotated_digits(6, 1), NormedNet)
    first = first_arrays(NormedNet)
    flowers = run(FedAvg(), AppGrid(app, node_ids(6)), 3, initial_arrays=first)
    strategy = ClusteredStrategy(ct.fedadam(lr=0.01))
    # Statistics take no adaptive step, so FedAdam's are FedAvg's where weights are: in round one.
    adam = run(strategy, AppGrid(app, node_ids(6)), 1, initial_arrays=first)
    one = run(FedAvg(), AppGrid(app, node_ids(6)), 1, initial_arrays=first)
    result = run(ClusteredStrategy(ct.fedavg()), AppGrid(app, node_ids(6)), 3, initial_arrays=first)
    counter = "norm.num_batches_tracked"
    assert list(result.arrays) == list(first)
    assert [array.dtype for array in result.arrays.values()] == [a.dtype for a in first.values()]
    assert result.arrays[counter].numpy() == first[counter].numpy()
    del flowers.arrays[counter], result.arrays[counter]
    assert largest_gap(result.arrays, flowers.arrays) <= 1e-6
    for name in ("norm.running_mean", "norm.running_var"):
        assert adam.arrays[name].numpy() == pytest.approx(one.arrays[name].numpy(), abs=1e-6)


METHODS: dict[str, Callable[[], ct.Method]] = {
    "fedgroup": lambda: ct.fedgroup(groups=2, alpha=6),
    "flexcfl": lambda: ct.flexcfl(groups=2, alpha=6, migration="none"),
    "cfl_gp": lambda: ct.cfl_gp(groups=2),
    "fedclust": lambda: ct.fedclust(groups=2),
    "flhc": lambda: ct.flhc(groups=2, warmup_rounds=2),
    "ifca": lambda: ct.ifca(groups=2),
    "clove": lambda: ct.clove(groups=2),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", METHODS)
def test_groups_are_found(name: str) -> None:
    grid = AppGrid(torch_app(rotated_digits(12, 2)), node_ids(12))
    result = run(ClusteredStrategy(METHODS[name]()), grid, 8)
    assert agreement(result, grid, 2) == 1.0
    assert len(result.models) == 2
    for node, group in result.groups.items():
        assert largest_gap(result.arrays_of(node), result.models[group]) == 0.0
    # Each group has figures of its own, of its own nodes.
    of_groups = result.evaluate_metrics_groups[8]
    assert set(of_groups) == {0, 1}
    whole = result.evaluate_metrics_clientapp[8]
    assert whole["eval_acc"] == pytest.approx(
        np.average([of_groups[j]["eval_acc"] for j in (0, 1)], weights=result.rows[-1]["sizes"]),
        abs=0.01,
    )


def test_known_groups_are_those_of_the_nodes_in_the_order_of_their_ids() -> None:
    grid = AppGrid(torch_app(rotated_digits(6, 2)), node_ids(6))
    group_of = {node: part // 2 for node, part in grid.parts.items()}
    nodes = sorted(grid.get_node_ids())
    assert nodes != list(grid.get_node_ids())
    method = ct.known_groups(members=[[group_of[node] for node in nodes]])
    result = run(ClusteredStrategy(method), grid, 2)
    assert result.groups == group_of


MORE_METHODS = [
    *(ct.fesem(groups=2), ct.cfl(), ct.sr_fca(), ct.fedgwc()),
    *(ct.feddrift(), ct.auxo(), ct.stocfl(lam=0.0), ct.ida()),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("method", MORE_METHODS, ids=name_of)
def test_more_methods_run_on_two_messages(method: ct.Method) -> None:
    grid = AppGrid(torch_app(rotated_digits(6, 2)), node_ids(6))
    result = run(ClusteredStrategy(method), grid, 3)
    assert set(result.groups) == set(grid.parts)
    assert {one.metadata.message_type for one in grid.sent} <= {"train", "evaluate"}
    assert all(row["refused"] == {} and not row["skipped"] for row in result.rows)


def test_a_robust_rule_outvotes_a_hostile_node() -> None:
    app = torch_app(rotated_digits(6, 1))

    def forge(request: Message, reply: Message) -> Message:
        if request.metadata.dst_node_id == hostile and "arrays" in reply.content:
            start = request.content["arrays"]
            arrays = {
                name: Array(10 * start[name].numpy() - 9 * array.numpy())
                for name, array in reply.content["arrays"].items()
            }
            reply.content["arrays"] = ArrayRecord(arrays)
        return reply

    ids = node_ids(6)
    hostile = next(iter(ids))

    def loss(method: ct.Method) -> float:
        strategy = ClusteredStrategy(method, bounds=Bounds(enabled=False))
        result = run(strategy, AppGrid(app, ids, forge), 4)
        return float(result.evaluate_metrics_clientapp[4]["eval_loss"])

    robust = replace(ct.fedavg(), aggregate=coordinate_median())
    assert loss(robust) < 1.0 < 2.0 < loss(ct.fedavg())


# --- what is sent ---------------------------------------------------------------------------------


def test_a_message_is_that_of_fedavg() -> None:
    app = torch_app(rotated_digits(4, 1))
    flowers = AppGrid(app, node_ids(4))
    ours = AppGrid(app, node_ids(4))
    options = {"train_config": config(depth=2), "evaluate_config": config(batch=8)}
    # One round: Flower's own shares its config with the messages of earlier rounds.
    run(FedAvg(), flowers, 1, **options)
    run(ClusteredStrategy(ct.fedavg()), ours, 1, **options)

    def sent(grid: AppGrid) -> list[tuple[object, ...]]:
        return sorted(
            (m.metadata.message_type, m.metadata.dst_node_id, sorted(m.content), *sorted(map(str, m.content["config"].items())))
            for m in grid.sent
        )  # fmt: skip

    assert sent(ours) == sent(flowers)
    # No node's message shares a record that an app may write into.
    assert len({id(m.content["config"]) for m in ours.sent}) == len(ours.sent) == 8


def test_the_weight_of_a_proximal_term_is_sent_as_flowers_fedprox_does() -> None:
    grid = AppGrid(torch_app(rotated_digits(3, 1)), node_ids(3))
    run(ClusteredStrategy(ct.fedprox(mu=0.25)), grid, 1)
    sent = {(m.metadata.message_type, m.content["config"].get("proximal-mu")) for m in grid.sent}
    assert sent == {("train", 0.25), ("evaluate", None)}


def test_ifca_scores_each_model_by_a_message_and_trains_the_best() -> None:
    grid = AppGrid(torch_app(rotated_digits(4, 2)), node_ids(4))
    run(ClusteredStrategy(ct.ifca(groups=3), fraction_evaluate=0.0), grid, 1)
    kinds = [message.metadata.message_type for message in grid.sent]
    assert kinds == [MessageType.EVALUATE] * 12 + [MessageType.TRAIN] * 4
    assert grid.exchanges == 2


def test_each_group_is_sent_its_own_model() -> None:
    grid = AppGrid(torch_app(rotated_digits(8, 2)), node_ids(8))
    result = run(ClusteredStrategy(ct.fedgroup(groups=2, alpha=4)), grid, 4)
    last = {one.metadata.dst_node_id: one.content["arrays"] for one in grid.sent[-8:]}
    for node, arrays in last.items():
        assert largest_gap(arrays, result.arrays_of(node)) == 0.0


def test_records_and_keys_are_named_as_one_likes() -> None:
    app = torch_app(rotated_digits(3, 1))

    def renamed(grid_message: Message, context: object) -> Message:
        content = grid_message.content
        content["arrays"] = content.pop("model")
        content["config"] = content.pop("options")
        reply = app(grid_message, context)
        metrics = reply.content["metrics"]
        metrics["rows"] = metrics.pop("num-examples")
        return reply

    grid = AppGrid(renamed, node_ids(3))
    strategy = ClusteredStrategy(
        ct.fedavg(), weighted_by_key="rows", arrayrecord_key="model", configrecord_key="options"
    )
    result = run(strategy, grid, 2)
    assert set(result.evaluate_metrics_clientapp[2]) == {"eval_loss", "eval_acc"}


def test_metrics_are_put_together_as_the_user_says() -> None:
    def worst(contents: list, weight: str) -> MetricRecord:
        records = [next(iter(one.metric_records.values())) for one in contents]
        return MetricRecord({"worst": min(one["eval_acc"] for one in records), "n": len(records)})

    seen = []

    def on_server(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        seen.append((number, list(arrays)))
        return MetricRecord({"number": number}) if number else None

    grid = AppGrid(torch_app(rotated_digits(6, 1)), node_ids(6))
    strategy = ClusteredStrategy(ct.fedavg(), fraction_evaluate=0.5, evaluate_metrics_aggr_fn=worst)
    result = run(strategy, grid, 2, evaluate_fn=on_server)
    assert result.evaluate_metrics_clientapp[2]["n"] == 3
    names = list(first_arrays())
    assert seen == [(0, names), (1, names), (2, names)]
    assert result.evaluate_metrics_serverapp == {n: {"number": n} for n in (1, 2)}
    assert result.evaluate_metrics_groups[2][0]["n"] == 3


def test_fractions_draw_as_many_nodes_as_flowers_own() -> None:
    app = torch_app(rotated_digits(10, 1))
    for fraction, least, expected in [(0.35, 2, 3), (0.1, 4, 4), (1.0, 2, 10), (0.0, 0, 0)]:
        grid = AppGrid(app, node_ids(10))
        strategy = ClusteredStrategy(
            ct.fedavg(), fraction_train=fraction, min_train_nodes=least, fraction_evaluate=0.0
        )
        run(strategy, grid, 1)
        assert len(grid.sent) == expected


def test_the_log_ends_as_that_of_flowers_own(caplog: pytest.LogCaptureFixture) -> None:
    def last_lines(strategy: Strategy) -> set[str]:
        caplog.clear()
        run(strategy, AppGrid(torch_app(rotated_digits(3, 1)), node_ids(3)), 1)
        words = " ".join(record.getMessage() for record in caplog.records)
        return {line for line in ("execution finished", "Final results", "MB)") if line in words}

    caplog.set_level("INFO", "flwr")
    flowers = last_lines(FedAvg())
    assert last_lines(ClusteredStrategy(ct.fedavg())) == flowers
    assert len(flowers) == 3


def test_seconds_of_a_round_count_the_evaluation_of_the_nodes() -> None:
    def slow(request: Message, reply: Message) -> Message:
        if request.metadata.message_type == MessageType.EVALUATE:
            time.sleep(0.1)
        return reply

    grid = AppGrid(torch_app(rotated_digits(3, 1)), node_ids(3), slow)
    (row,) = run(ClusteredStrategy(ct.fedavg()), grid, 1).rows
    assert row["seconds"]["evaluation"] >= 0.3
    assert row["seconds"]["total"] >= row["seconds"]["training"] + row["seconds"]["evaluation"]
    assert row["exchanges"] == 2


def test_a_reply_to_an_evaluation_that_is_missing_is_counted_in_its_round() -> None:
    def silent(request: Message, reply: Message) -> Message | None:
        missing = request.metadata.message_type == MessageType.EVALUATE and request is grid.sent[-1]
        return None if missing and len(grid.sent) == 6 else reply

    grid = AppGrid(torch_app(rotated_digits(3, 1)), node_ids(3), silent)
    result = run(ClusteredStrategy(ct.fedavg()), grid, 2, timeout=0.5)
    assert [row["refused"] for row in result.rows] == [{"no answer": 1}, {}]


def test_the_same_seed_gives_the_same_bits() -> None:
    def models(seed: int) -> list[bytes]:
        grid = AppGrid(torch_app(rotated_digits(8, 2)), node_ids(8))
        strategy = ClusteredStrategy(ct.ifca(groups=2), fraction_train=0.5, seed=seed)
        result = run(strategy, grid, 3)
        return [array.data for model in result.models for array in model.values()]

    assert models(1) == models(1) != models(2)


# --- what is refused ------------------------------------------------------------------------------


NEED_MORE = [
    *(ct.fedem(groups=2), ct.fedper(), ct.fedrep(), ct.ditto(), ct.scaffold()),
    *(ct.pacfl(), ct.stocfl(), ct.flexcfl(), ct.pooled(), ct.fedmmd()),
    *(ct.fedgsp(), ct.astraea(), ct.ida(intrac=True)),
]


@pytest.mark.parametrize("method", NEED_MORE, ids=name_of)
def test_methods_that_need_more_of_clients_are_refused_at_once(method: ct.Method) -> None:
    with refuses(ConfigError, "does-not-fit", "method") as caught:
        ClusteredStrategy(method)
    assert name_of(method) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [ct.pacfl, ct.flux, ct.feroma, ct.rfedavg])
def test_methods_that_need_more_than_counts_are_refused_with_counts(
    make: Callable[[], ct.Method],
) -> None:
    with refuses(ConfigError, "does-not-fit", "method"):
        ClusteredStrategy(make(), classes=10)


@pytest.mark.parametrize(("classes", "kind"), [(-1, "out-of-range"), ("10", "wrong-type")])
def test_the_number_of_classes_is_checked(classes: object, kind: str) -> None:
    with refuses(ConfigError, kind, "classes"):
        ClusteredStrategy(ct.fedgsp(), classes=classes)  # type: ignore[arg-type]


PRIVATE = ct.fedgsp(privacy="discrete_laplace")


@pytest.mark.parametrize("method", [ct.k_fed(groups=2), ct.fedsoft(groups=2), PRIVATE], ids=name_of)
def test_other_statistics_are_refused_before_any_training(method: ct.Method) -> None:
    grid = AppGrid(torch_app(rotated_digits(3, 1)), node_ids(3))
    with refuses(ConfigError, "does-not-fit", "method"):
        run(ClusteredStrategy(method, classes=10), grid, 1)
    assert not grid.sent


def test_a_method_is_an_object() -> None:
    with refuses(ConfigError, "wrong-type", "method"):
        ClusteredStrategy(ct.fedavg)  # type: ignore[arg-type]
    with refuses(ConfigError, "wrong-type", "method"):
        ClusteredStrategy("fedavg")  # type: ignore[arg-type]


def test_a_wrapper_with_one_exchange_is_refused() -> None:
    strategy = ClusteredStrategy(ct.fedgroup(groups=2))
    grid = AppGrid(torch_app(rotated_digits(3, 1)), node_ids(3))
    with refuses(ConfigError, "does-not-fit", "strategy"):
        strategy.configure_train(1, first_arrays(), config(), grid)
    with refuses(ConfigError, "does-not-fit", "strategy"):
        strategy.aggregate_train(1, [])


def test_bounds_can_be_lifted() -> None:
    held = rotated_digits(8, 1)
    (x, y), test = held[0]
    held[0] = ((x.repeat(40, 1), y.repeat(40)), test)
    app = torch_app(held, epochs=1)
    bounded = run(ClusteredStrategy(ct.fedavg()), AppGrid(app, node_ids(8)), 1)
    assert bounded.rows[0]["clipped"]
    free = ClusteredStrategy(ct.fedavg(), bounds=Bounds(enabled=False))
    result = run(free, AppGrid(app, node_ids(8)), 1)
    assert largest_gap(result.arrays, run(FedAvg(), AppGrid(app, node_ids(8)), 1).arrays) <= 1e-6


def test_first_models_differ() -> None:
    zeros = ArrayRecord([np.zeros((10, 64)), np.zeros(10)])
    grid = AppGrid(torch_app(rotated_digits(4, 2)), node_ids(4))
    with refuses(ConfigError, "missing", "first_models"):
        run(ClusteredStrategy(ct.ifca(groups=2)), grid, 1, initial_arrays=zeros)
    models = {number: ArrayRecord(Net().state_dict()) for number in (1, 2)}
    strategy = ClusteredStrategy(ct.ifca(groups=3), first_models=models.__getitem__)
    run(strategy, grid, 1)
    sent = [message.content["arrays"] for message in grid.sent[:3]]
    assert [largest_gap(sent[j], models[j]) for j in (1, 2)] == [0.0, 0.0]
    assert largest_gap(sent[0], first_arrays()) == 0.0
    wrong = ClusteredStrategy(ct.ifca(groups=2), first_models=lambda j: zeros)
    with refuses(ConfigError, "does-not-fit", "first_models"):
        run(wrong, grid, 1)
