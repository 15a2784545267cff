"""Flower's grid without Flower's processes: messages go to the client component in this process,
and back as bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from flwr.app import Context, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.task_identity import TaskIdentity

from coterie.engines.flower.messages import FIELDS, NOTE, part_name
from coterie.experiment import check
from coterie.flower.app import client
from coterie.runs.data import load_data

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
Meddle = Callable[[int, Message, list[Message]], list[Message]]


def parts_of(message: Message) -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """The notes and the fields of the requests in a message, or of the answers to them."""
    found = []
    for number in range(len(message.content.config_records)):
        fields = message.content.array_records.get(part_name(FIELDS, number), {})
        note = dict(message.content.config_records[part_name(NOTE, number)])
        found.append((note, {name: array.numpy() for name, array in fields.items()}))
    return found


def as_deployed(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration whose simulation scores models when a federation does: before a round."""
    return {**config, "evaluate": {"order": "before"}}


class FakeGrid:
    """Nodes 100, 101, ... whose replies may be lost, late, doubled or forged on the way.

    The key of each node is registered with the name that its client has at first.

    Args:
        contexts: of each node.
        meddle: node, request, replies -> what arrives.
    """

    def __init__(
        self,
        contexts: Mapping[int, Context],
        meddle: Meddle = lambda node, message, replies: replies,
    ) -> None:
        self.contexts = dict(contexts)
        self.names = {node: str(one.node_config["client"]) for node, one in contexts.items()}
        self.meddle = meddle
        self.arrived: dict[str, list[Message]] = {}
        self.sent: list[Message] = []
        self.replied: list[Message] = []
        self.count = 0

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node, name=self.names[node]) for node in self.contexts]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str | None]:
        names: list[str | None] = []
        for message in messages:
            node = message.metadata.dst_node_id
            self.count = self.count + 1
            name = f"m{self.count}"
            message.metadata.__dict__["_message_id"] = name
            self.sent.append(message)
            if node not in self.contexts:
                names.append(None)
                continue
            reply = client(message, self.contexts[node])
            self.replied.append(reply)
            self.arrived[name] = self.meddle(node, message, [reply])
            names.append(name)
        return names

    def pull_messages(self, names: Iterable[str]) -> Iterable[Message]:
        return [message for name in names for message in self.arrived.pop(name, [])]


def contexts(
    tables: Mapping[str, Any], settings: Mapping[str, Any], clients: Sequence[int], folder: Path
) -> dict[int, Context]:
    """Contexts of nodes that hold their share of a simulation's data."""
    folder.mkdir(parents=True, exist_ok=True)
    _, _, population = load_data(check(tables))
    x = population.x.numpy()
    y = population.y.numpy()
    for i in clients:
        train = population.train[i]
        test = population.test[i]
        np.savez(folder / f"share-{i}.npz", x=x[train], y=y[train], tx=x[test], ty=y[test])
    loader = folder / "loader.py"
    loader.write_text(
        "import numpy as np\ndef load_client(context):\n"
        f"    with np.load({str(folder)!r} + f'/share-{{context.node_config[\"share\"]}}.npz') as held:\n"
        "        return (held['x'], held['y']), (held['tx'], held['ty'])\n"
    )
    config = {"coterie-config": tomli_w.dumps(tables), "coterie-settings": json.dumps(settings)}
    return {
        100 + i: Context(
            run_id=1,
            node_id=100 + i,
            node_config={
                "client": f"client-{i:02d}",
                "share": i,
                "loader": str(loader),
                "cache": str(folder / "cache"),
                # It would be looked for at each message, up to the first process of this machine.
                "worker": "0",
            },
            state=RecordDict(),
            run_config=config,
        )
        for i in clients
    }
