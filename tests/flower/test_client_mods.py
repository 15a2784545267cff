"""Mods of a ``ClientApp``: several models in one message, and layers that stay on the client."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import coterie as ct
from coterie.errors import ConfigError
from coterie.flower import ClusteredResult, ClusteredStrategy
from coterie.flower.client_mods import (
    choose_model,
    count_labels,
    keep_layers,
    score_models,
    take_steps,
)
from coterie.record_keys import CHOICE, RecordKeys
from tests.flower.strategy.ordinary import (
    AppGrid,
    Net,
    config,
    first_arrays,
    largest_gap,
    node_ids,
    rotated_digits,
    torch_app,
)
from tests.refusals import refuses

CONTEXT = Context(1, 1, {}, RecordDict(), {})


def arrays(**values: float) -> ArrayRecord:
    return ArrayRecord({name: Array(np.full(2, value)) for name, value in values.items()})


def message(kind: str, *models: ArrayRecord) -> Message:
    named = {"arrays" if not j else f"arrays-{j}": model for j, model in enumerate(models)}
    return Message(RecordDict({**named, "config": ConfigRecord({"lr": 0.5})}), 1, kind)


def adding_app(mods: Callable[[ClientApp], tuple[list, list]]) -> ClientApp:
    """A client that adds 1 to all values, with the distance of ``w`` from 7 as its loss."""
    app = ClientApp()
    of_train, of_evaluate = mods(app)

    @app.train(mods=of_train)
    def train(request: Message, context: Context) -> Message:
        assert list(request.content) == ["arrays", "config"]
        moved = {name: Array(one.numpy() + 1) for name, one in request.content["arrays"].items()}
        metrics = MetricRecord({"num-examples": 3})
        content = {"arrays": ArrayRecord(moved), "metrics": metrics}
        return Message(RecordDict(content), reply_to=request)

    @app.evaluate(mods=of_evaluate)
    def evaluate(request: Message, context: Context) -> Message:
        assert request.content["config"]["lr"] == 0.5
        far = abs(float(request.content["arrays"]["w"].numpy()[0]) - 7)
        metrics = MetricRecord({"penalty": far, "eval_loss": far, "num-examples": 3})
        return Message(RecordDict({"metrics": metrics}), reply_to=request)

    return app


def choosing(app: ClientApp) -> tuple[list, list]:
    return [choose_model(app)], [score_models]


def test_all_models_of_a_message_are_scored() -> None:
    app = adding_app(choosing)
    models = [arrays(w=float(value)) for value in range(12)]
    metrics = app(message("evaluate", *models), CONTEXT).content["metrics"]
    assert metrics["eval_loss"] == [abs(value - 7) for value in range(12)]
    assert metrics["num-examples"] == [3] * 12
    assert app(message("evaluate", models[2]), CONTEXT).content["metrics"]["eval_loss"] == 5


def test_the_model_with_the_lowest_loss_is_trained() -> None:
    app = adding_app(choosing)
    request = message("train", arrays(w=1.0), arrays(w=6.0), arrays(w=8.0))
    reply = app(request, CONTEXT).content
    assert reply["metrics"][CHOICE] == 1  # of equals the first
    assert reply["arrays"]["w"].numpy().tolist() == [7.0, 7.0]
    assert CHOICE not in app(message("train", arrays(w=1.0)), CONTEXT).content["metrics"]


def test_a_loss_that_is_not_there_is_asked_for() -> None:
    app = adding_app(lambda app: ([choose_model(app, RecordKeys(loss="cost"))], []))
    with pytest.raises(ValueError, match="penalty"):
        app(message("train", arrays(w=1.0), arrays(w=2.0)), CONTEXT)


def test_kept_layers_stay_and_are_trained_on() -> None:
    mod = keep_layers("head")
    app = adding_app(lambda app: ([mod], [mod]))
    context = Context(1, 1, {}, RecordDict(), {})
    first = {"head.bias": 5.0, "w": 1.0}
    for number in (1, 2):
        reply = app(message("train", arrays(**first)), context).content["arrays"]
        assert list(reply) == list(first)
        # The reply has the layer as it was sent.
        assert reply["head.bias"].numpy().tolist() == [5.0, 5.0]
        assert reply["w"].numpy().tolist() == [2.0, 2.0]
        (kept,) = context.state.array_records.values()
        assert {name: one.numpy()[0] for name, one in kept.items()} == {"head.bias": 5.0 + number}
    wrong = adding_app(lambda app: ([keep_layers("tail")], []))
    with pytest.raises(ValueError, match="tail"):
        wrong(message("train", arrays(w=1.0)), CONTEXT)


def test_mods_wait_for_no_pytorch() -> None:
    """Flower starts a process for each message, and not all apps have PyTorch."""
    code = "import sys, coterie.flower.client_mods; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# --- with the strategy ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", [ct.ifca(groups=2), ct.clove(groups=2)], ids=["ifca", "clove"])
def test_one_message_gives_the_same_result_as_one_for_each_model(method: ct.Method) -> None:
    def run(app: ClientApp, several: bool) -> tuple[ClusteredResult, AppGrid]:
        grid = AppGrid(app, node_ids(6))
        strategy = ClusteredStrategy(method, several_models=several)
        return strategy.start(grid, first_arrays(), 3, 1.0, config()), grid

    held = rotated_digits(6, 2)
    one, grid = run(torch_app(held, mods=choosing), True)
    plain, apart = run(torch_app(held), False)
    assert one.groups == plain.groups
    for ours, theirs in zip(one.models, plain.models, strict=True):
        assert largest_gap(ours, theirs) == 0.0
    assert len(grid.sent) < len(apart.sent)
    assert CHOICE not in one.train_metrics_clientapp[3]
    assert all(row["refused"] == {} for row in one.rows)


@pytest.mark.parametrize("method", [ct.ifca(groups=2), ct.clove(groups=2)], ids=["ifca", "clove"])
def test_nodes_without_the_mods_are_named_at_once(method: ct.Method) -> None:
    grid = AppGrid(torch_app(rotated_digits(4, 2)), node_ids(4))
    strategy = ClusteredStrategy(method, several_models=True)
    with refuses(ConfigError, "missing", "several_models"):
        strategy.start(grid, first_arrays(), 3, 1.0, config())
    assert grid.exchanges == 1


def test_a_choice_of_no_model_is_refused() -> None:
    def forged(request: Message, reply: Message) -> Message:
        if "arrays" in reply.content and request.metadata.dst_node_id == hostile:
            reply.content["metrics"][CHOICE] = 9
        return reply

    ids = node_ids(4)
    hostile = sorted(ids)[0]
    grid = AppGrid(torch_app(rotated_digits(4, 2), mods=choosing), ids, forged)
    strategy = ClusteredStrategy(ct.ifca(groups=2), several_models=True)
    result = strategy.start(grid, first_arrays(), 2, 1.0, config())
    assert [row["refused"] for row in result.rows] == [{"malformed": 1}] * 2


def test_a_kept_layer_does_not_move_on_the_server() -> None:
    mod = keep_layers("fc2")
    app = torch_app(rotated_digits(4, 2), mods=lambda app: ([mod], [mod]))
    result = ClusteredStrategy(ct.fedavg()).start(
        AppGrid(app, node_ids(4)), first_arrays(), 3, 1.0, config()
    )
    first = first_arrays()
    assert np.array_equal(result.arrays["fc2.weight"].numpy(), first["fc2.weight"].numpy())
    assert not np.array_equal(result.arrays["fc1.weight"].numpy(), first["fc1.weight"].numpy())


# --- counts of labels, and steps ------------------------------------------------------------------


def counting(app: ClientApp, held: list) -> ClientApp:
    count_labels(app, lambda context: held[int(context.node_config["partition-id"])][0][1])
    return app


@pytest.mark.parametrize(
    "method",
    [ct.fedgsp(), ct.astraea(), ct.flexcfl(groups=2, alpha=4)],
    ids=["fedgsp", "astraea", "flexcfl"],
)
def test_methods_of_counts_run_by_the_counts_of_the_nodes(method: ct.Method) -> None:
    held = rotated_digits(8, 2)
    grid = AppGrid(counting(torch_app(held), held), node_ids(8))
    strategy = ClusteredStrategy(method, classes=10)
    result = strategy.start(grid, first_arrays(), 3, 1.0, config())
    assert all(row["refused"] == {} and not row["skipped"] for row in result.rows)
    asked = [one for one in grid.sent if one.metadata.message_type == "query.label_counts"]
    assert {one.metadata.dst_node_id for one in asked} == set(grid.parts)
    assert all(not one.content.array_records for one in asked)


def test_a_node_whose_labels_drift_joins_the_other_group() -> None:
    """Labels are what moves, so the group follows the counts alone."""
    held = rotated_digits(8, 2)
    (x, y), test = held[0]
    held[0] = ((x[y < 5], y[y < 5]), test)

    def drift(grid: AppGrid, exchange: int) -> None:
        if exchange == 9:
            (x, y), _ = rotated_digits(8, 2, seed=1)[1]
            held[0] = ((x[y > 4], y[y > 4]), held[1][1])

    grid = AppGrid(counting(torch_app(held), held), node_ids(8), before=drift)
    strategy = ClusteredStrategy(ct.flexcfl(groups=2, alpha=4), classes=10)
    result = strategy.start(grid, first_arrays(), 5, 1.0, config())
    assert sum(row["drifted"] for row in result.rows) == 1
    assert sum(row["migrations"] for row in result.rows) == 1


def test_a_count_of_other_classes_is_refused() -> None:
    held = rotated_digits(4, 2)
    grid = AppGrid(counting(torch_app(held), held), node_ids(4))
    strategy = ClusteredStrategy(ct.fedgsp(), classes=3)
    result = strategy.start(grid, first_arrays(), 1, 1.0, config())
    assert result.rows[0]["refused"] == {"failed": 4}

    def forged(request: Message, reply: Message) -> Message:
        if "label-counts" in reply.content["metrics"]:
            reply.content["metrics"]["label-counts"] = [1, 2]
        return reply

    grid = AppGrid(counting(torch_app(held), held), node_ids(4), forged)
    strategy = ClusteredStrategy(ct.fedgsp(), classes=10)
    result = strategy.start(grid, first_arrays(), 1, 1.0, config())
    assert result.rows[0]["refused"] == {"malformed": 4}


@pytest.mark.parametrize("steps", [3, 10, 25])
def test_a_client_trains_as_many_steps_as_it_is_asked_for(steps: int) -> None:
    held = rotated_digits(18, 1)  # 74 training samples or a few more: 8 steps an epoch
    (x, y), _ = held[0]
    reference = Net()
    reference.load_state_dict(first_arrays().to_torch_state_dict())
    optimiser = torch.optim.SGD(reference.parameters(), lr=0.1)
    batches = torch.arange(len(y)).split(10)
    assert len(batches) == 8
    for number in range(steps):
        optimiser.zero_grad()
        rows = batches[number % 8]
        torch.nn.functional.cross_entropy(reference(x[rows]), y[rows]).backward()
        optimiser.step()
    app = torch_app(held, epochs=1, mods=lambda app: ([take_steps], []))
    context = Context(1, 1, {"partition-id": 0}, RecordDict(), {})
    content = {"arrays": first_arrays(), "config": config(**{"local-steps": steps})}
    reply = app(Message(RecordDict(content), 1, "train"), context)
    expected = ArrayRecord(reference.state_dict())
    assert largest_gap(reply.content["arrays"], expected) == 0.0
    # Without the key an epoch, and no hook is left.
    content["config"] = config()
    plain = app(Message(RecordDict(content), 1, "train"), context)
    own = torch_app(held, epochs=1)(Message(RecordDict(content), 1, "train"), context)
    assert largest_gap(plain.content["arrays"], own.content["arrays"]) == 0.0


def test_a_cold_start_of_fedgroup_asks_for_its_steps() -> None:
    grid = AppGrid(torch_app(rotated_digits(4, 2)), node_ids(4))
    strategy = ClusteredStrategy(ct.fedgroup(groups=2, alpha=2, pretrain_steps=7))
    strategy.start(grid, first_arrays(), 1, 1.0, config())
    trained = [one for one in grid.sent if one.metadata.message_type == "train"]
    assert [one.content["config"].get("local-steps") for one in trained] == [7] * 4 + [None] * 4
