"""An ordinary Flower app, as anybody would write it, and a grid that runs its nodes in this
process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as PackedRecordDict
from flwr.supercore.task_identity import TaskIdentity
from sklearn.datasets import load_digits
from torch import Tensor, nn

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
Meddle = Callable[[Message, Message], Message | None]
Samples = tuple[Tensor, Tensor]


class Net(nn.Module):
    """A network with layers as people have them: normalised, with a counter that is no fraction."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, hidden)
        self.fc2 = nn.Linear(hidden, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


class SmoothNet(Net):
    """For comparisons of arrays. Flower adds replies in a random order, and where that moves a value
    across the kink of a rectifier, two runs are apart by far more than rounding."""

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.tanh(self.fc1(x)))


class ConvNet(nn.Module):
    """Of the kind of Flower's quickstart: convolutions, pooling, rectifiers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.fc1 = nn.Linear(54, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.conv(x.view(-1, 1, 8, 8))), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class NormedNet(Net):
    def __init__(self, hidden: int = 32) -> None:
        super().__init__(hidden)
        self.norm = nn.BatchNorm1d(hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(torch.tanh(self.norm(self.fc1(x))))


def rotated_digits(nodes: int, turns: int, seed: int = 0) -> list[tuple[Samples, Samples]]:
    """Digits of nodes whose images are turned by a quarter each, node ``i`` by ``i % turns``: training
    and test samples of each."""
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    images = digits.images[order] / 16
    parts = np.array_split(np.arange(len(order)), nodes)
    held = []
    for node, part in enumerate(parts):
        turned = np.rot90(images[part], node % turns, (1, 2)).reshape(len(part), -1)
        x = torch.tensor(np.ascontiguousarray(turned), dtype=torch.float32)
        y = torch.tensor(digits.target[order][part])
        cut = len(part) * 3 // 4
        held.append(((x[:cut], y[:cut]), (x[cut:], y[cut:])))
    return held


def torch_app(
    held: list[tuple[Samples, Samples]],
    make: Callable[[], nn.Module] = Net,
    epochs: int = 2,
    momentum: float = 0.0,
    mods: Callable[[ClientApp], tuple[list[Any], list[Any]]] = lambda app: ([], []),
) -> ClientApp:
    """A PyTorch client, as Flower's quickstart has it: node ``partition-id`` holds one part.

    Args:
        mods: the app -> the mods of its training and of its evaluation.
    """
    app = ClientApp()
    of_train, of_evaluate = mods(app)

    def received(message: Message) -> nn.Module:
        model = make()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        return model

    @app.train(mods=of_train)
    def train(message: Message, context: Context) -> Message:
        model = received(message)
        (x, y), _ = held[int(context.node_config["partition-id"])]
        lr = float(message.content["config"]["lr"])
        optimiser = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
        model.train()
        total = 0.0
        for _ in range(epochs):
            for rows in torch.arange(len(y)).split(10):
                optimiser.zero_grad()
                loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
                loss.backward()
                optimiser.step()
                total += loss.item() * len(rows)
        metrics = {"train_loss": total / epochs / len(y), "num-examples": len(y)}
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
        return Message(RecordDict(content), reply_to=message)

    @app.evaluate(mods=of_evaluate)
    def evaluate(message: Message, context: Context) -> Message:
        model = received(message).eval()
        _, (x, y) = held[int(context.node_config["partition-id"])]
        with torch.no_grad():
            outputs = model(x)
        loss = nn.functional.cross_entropy(outputs, y).item()
        accuracy = (outputs.argmax(1) == y).float().mean().item()
        metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(y)}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    return app


@dataclass
class AppGrid:
    """Nodes of an app in this process; what passes is packed and unpacked as between machines.

    Args:
        parts: node id -> the number of its part of the data.
        meddle: request, reply -> what arrives; ``None``: nothing.
        before: called before each exchange, with the number of exchanges so far.
    """

    app: ClientApp
    parts: dict[int, int]
    meddle: Meddle = lambda request, reply: reply
    before: Callable[[AppGrid, int], None] = lambda grid, exchange: None
    run_config: Mapping[str, Any] = field(default_factory=dict)
    sent: list[Message] = field(default_factory=list)
    exchanges: int = 0
    contexts: dict[int, Context] = field(default_factory=dict)
    _arrived: dict[str, Message] = field(default_factory=dict)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.parts)

    def push_messages(self, messages: Iterable[Message]) -> list[str | None]:
        self.before(self, self.exchanges)
        self.exchanges += 1
        names: list[str | None] = []
        for message in messages:
            name = f"m{len(self.sent)}"
            message.metadata.__dict__["_message_id"] = name
            self.sent.append(message)
            node = message.metadata.dst_node_id
            if node not in self.parts:
                names.append(None)
                continue
            names.append(name)
            reply = self.meddle(message, self._answer(node, message))
            if reply is not None:
                self._arrived[name] = reply
        return names

    def pull_messages(self, names: Iterable[str]) -> list[Message]:
        return [self._arrived.pop(name) for name in names if name in self._arrived]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        return self.pull_messages([name for name in self.push_messages(messages) if name])

    def _answer(self, node: int, message: Message) -> Message:
        arrived = Message(packed(message.content), node, message.metadata.message_type)
        arrived.metadata.__dict__["_message_id"] = message.metadata.message_id
        try:
            reply = self.app(arrived, self._context(node))
        except Exception as error:  # noqa: BLE001 - as Flower does
            return Message(Error(code=2, reason=repr(error)), reply_to=arrived)
        return Message(packed(reply.content), reply_to=arrived)

    def _context(self, node: int) -> Context:
        config = {"partition-id": self.parts[node], "num-partitions": len(self.parts)}
        return self.contexts.setdefault(
            node, Context(1, node, config, RecordDict(), dict(self.run_config))
        )


def packed(content: RecordDict) -> RecordDict:
    """The same content after it travelled as bytes."""
    data = recorddict_to_proto(content).SerializeToString()
    return recorddict_from_proto(PackedRecordDict.FromString(data))


def node_ids(count: int) -> dict[int, int]:
    """Node ids as Flower draws them, in no order, and the part of each."""
    ids = np.random.default_rng(7).choice(10**9, count, replace=False)
    return {int(node): part for part, node in enumerate(ids)}


def first_arrays(make: Callable[[], nn.Module] = Net) -> ArrayRecord:
    torch.manual_seed(1)
    return ArrayRecord(make().state_dict())


def config(**values: Any) -> ConfigRecord:
    return ConfigRecord({"lr": 0.1, **values})


def largest_gap(ours: ArrayRecord, theirs: ArrayRecord) -> float:
    """The largest difference of two records with the same arrays, in the same order."""
    assert list(ours) == list(theirs)
    pairs: Mapping[str, Any] = {name: (ours[name], theirs[name]) for name in ours}
    return max(float(np.abs(a.numpy() - b.numpy()).max()) for a, b in pairs.values())
