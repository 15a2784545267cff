"""Mods of a ``ClientApp``: several models in one message, and layers that stay on the client."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import coterie as ct
from coterie.engines.flower.ordinary import CHOICE, RecordKeys
from coterie.flower import ClusteredResult, ClusteredStrategy
from coterie.flower.client_mods import choose_model, keep_layers, score_models
from tests.flower.strategy.ordinary import (
    AppGrid,
    config,
    first_arrays,
    largest_gap,
    node_ids,
    rotated_digits,
    torch_app,
)

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
