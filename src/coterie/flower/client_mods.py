"""Mods for a Flower ``ClientApp``: what methods can use beyond one model a message.

    app = ClientApp()

    @app.train(mods=[choose_model(app)])
    @app.evaluate(mods=[score_models])

With ``several_models=True``, `coterie.flower.ClusteredStrategy` then sends all models that are
compared in one message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from coterie.record_keys import ASK_COUNTS, CHOICE, COUNTS, STEPS, RecordKeys

if TYPE_CHECKING:
    from torch.optim import Optimizer

AppFunction = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, AppFunction], Message]
KEPT = "coterie.kept"  # the record of ``context.state``


def score_models(message: Message, context: Context, call_next: AppFunction) -> Message:
    """An evaluation of all models of a message: each metric of the reply is a list with a value for
    each model. With one model nothing changes."""
    several = _with_one_model(message)
    if len(several) == 1:
        return call_next(message, context)
    found = []
    for content in several:
        message.content = content
        (metrics,) = call_next(message, context).content.metric_records.values()
        found.append(metrics)
    lists = {name: [one[name] for one in found] for name in found[0]}
    return Message(RecordDict({"metrics": MetricRecord(lists)}), reply_to=message)


def choose_model(app: ClientApp, keys: RecordKeys = RecordKeys()) -> Mod:
    """A training of the model with the lowest loss in ``@app.evaluate()``, of equals the first. Only
    its number leaves the client, with the update.

    Args:
        app: its evaluation compares the models.
        keys: names in messages, such as ``RecordKeys(loss="penalty")``.

    Raises:
        ValueError: in a training, if the evaluation gives no loss.
    """

    def mod(message: Message, context: Context, call_next: AppFunction) -> Message:
        several = _with_one_model(message)
        if len(several) == 1:
            return call_next(message, context)
        node = message.metadata.dst_node_id
        losses = []
        for content in several:
            reply = app(Message(content, node, MessageType.EVALUATE), context)
            (metrics,) = reply.content.metric_records.values()
            loss = keys.loss_of(metrics)
            if loss is None:
                raise ValueError(f"choose_model: no loss, got {list(metrics)}; name it in keys")
            losses.append(loss)
        choice = int(np.argmin(losses))
        message.content = several[choice]
        reply = call_next(message, context)
        (metrics,) = reply.content.metric_records.values()
        metrics[CHOICE] = choice
        return reply

    return mod


def keep_layers(*layers: str) -> Mod:
    """Layers that stay on the client, in ``context.state``, for training and evaluation.

    They are trained from their values of the last training, and the reply has them as they were sent.
    So any method trains the other layers alone, such as ``ct.fedavg()``, which is then FedPer.

    Args:
        layers: names of layers, such as ``fc2``, or of arrays.
    """

    def mod(message: Message, context: Context, call_next: AppFunction) -> Message:
        ((name, sent),) = message.content.array_records.items()
        own = {one: sent[one] for one in _within(sent, layers)}
        if KEPT in context.state:
            own = dict(context.state.array_records[KEPT])
        # In their order, which lists of arrays rely on.
        message.content[name] = ArrayRecord({one: own.get(one, sent[one]) for one in sent})
        reply = call_next(message, context)
        for key, trained in reply.content.array_records.items():
            context.state[KEPT] = ArrayRecord({one: trained[one] for one in own})
            shared = {one: sent[one] if one in own else trained[one] for one in trained}
            reply.content[key] = ArrayRecord(shared)
        return reply

    return mod


def take_steps(message: Message, context: Context, call_next: AppFunction) -> Message:
    """A training of as many steps as the method asks for, such as the cold start of FedGroup, in place
    of the app's own number of epochs. For apps with PyTorch.

    The app is called until its optimisers have taken so many steps; further ones change nothing.
    """
    (config,) = message.content.config_records.values()
    wanted = config.get(STEPS)
    if wanted is None:
        return call_next(message, context)
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    taken = 0
    rates: list[Any] = []

    def before(optimiser: Optimizer, args: Any, options: Any) -> None:
        if taken >= wanted:
            rates[:] = [group["lr"] for group in optimiser.param_groups]
            for group in optimiser.param_groups:
                group["lr"] = 0.0

    def after(optimiser: Optimizer, args: Any, options: Any) -> None:
        nonlocal taken
        for group, rate in zip(optimiser.param_groups, rates, strict=False):
            group["lr"] = rate
        rates.clear()
        taken += 1

    ((name, arrays),) = message.content.array_records.items()
    hooks = (register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after))
    try:
        while True:
            begun = taken
            message.content = RecordDict({name: arrays, **message.content.config_records})
            reply = call_next(message, context)
            if taken >= wanted or taken == begun:
                return reply
            (arrays,) = reply.content.array_records.values()
    finally:
        for hook in hooks:
            hook.remove()


def count_labels(
    app: ClientApp, labels: Callable[[Context], Any], keys: RecordKeys = RecordKeys()
) -> None:
    """Have an app answer how many training samples of each class its node holds. Only the counts leave
    the node.

    Args:
        labels: the context of a node -> the labels of its training samples, whole numbers from 0.
        keys: names in messages.
    """

    @app.query(ASK_COUNTS)
    def query(message: Message, context: Context) -> Message:
        (config,) = message.content.config_records.values()
        classes = config["classes"]
        counts = np.bincount(np.asarray(labels(context)), minlength=classes).tolist()
        if len(counts) > classes:
            raise ValueError(f"count_labels: label {len(counts) - 1} of {classes} classes")
        metrics = MetricRecord({COUNTS: counts, keys.weight: sum(counts)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)


def _within(names: Iterable[str], layers: tuple[str, ...]) -> list[str]:
    """The arrays of some layers, each of which has one.

    Raises:
        ValueError: for a layer without an array.
    """
    found = {
        layer: [one for one in names if one == layer or one.startswith(f"{layer}.")]
        for layer in layers
    }
    for layer, arrays in found.items():
        if not arrays:
            raise ValueError(f"keep_layers: no such layer, got {layer!r}; arrays: {list(names)}")
    return [one for arrays in found.values() for one in arrays]


def _with_one_model(message: Message) -> list[RecordDict]:
    """The contents of messages with one of the models each, in their order."""
    records = message.content.array_records
    # "arrays", "arrays-1", ..., "arrays-10"
    names = sorted(records, key=lambda name: (len(name), name))
    configs = dict(message.content.config_records)
    return [RecordDict({names[0]: records[name], **configs}) for name in names]
