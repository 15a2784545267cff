"""Messages to nodes with an app of their own, and their replies, none of which are trusted."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from coterie.core import IntArray, Key
from coterie.core.arrays import EMPTY
from coterie.engines.flower.arrays import RecordLayout
from coterie.engines.flower.engine import open_inbox
from coterie.engines.flower.inbox import Arrival, ReplyLimit
from coterie.engines.flower.register import Pause
from coterie.record_keys import RecordKeys, float_value

log = logging.getLogger("flwr")
_LEAST_POLL = 0.05  # seconds
_OBJECTS = 64  # of a reply in addition to its arrays and their pieces
_WORDS = 1 << 20  # bytes of a reply's metrics
_SHOWN = 300  # letters of what a node says of its failure


@dataclass(frozen=True, slots=True)
class Configs:
    """What is sent with each model."""

    train: Mapping[str, Any] = field(default_factory=dict)
    evaluate: Mapping[str, Any] = field(default_factory=dict)

    def of(self, kind: str, round: int, asked: Mapping[str, Any]) -> ConfigRecord:
        """A record for one message; Flower counts rounds from 1.

        Args:
            asked: what the method asks for in this message.
        """
        given = {MessageType.TRAIN: self.train, MessageType.EVALUATE: self.evaluate}.get(kind, {})
        return ConfigRecord({**given, "server-round": round + 1, **asked})


@dataclass(frozen=True, slots=True)
class RecordReply:
    """What a node replied, by the metrics of its reply."""

    client: int
    column: int
    content: RecordDict
    metrics: MetricRecord
    size: float


class OrdinaryMessages:
    """Exchanges with nodes that have a ``ClientApp`` of their own.

    Args:
        timeout: seconds that an exchange takes at most.
        several: whether clients take several models in one message (``coterie.flower.client_mods``).
    """

    def __init__(
        self,
        grid: Grid,
        arrays: RecordLayout,
        keys: RecordKeys,
        configs: Configs,
        timeout: float,
        several: bool = False,
    ) -> None:
        self.grid = grid
        self.inbox = open_inbox(grid)
        self.arrays = arrays
        self.keys = keys
        self.configs = configs
        self.timeout = timeout
        self.several = several
        # Node ids by the numbers of their clients.
        self.nodes: list[int] = []
        self._exchanges = 0
        self._lost: Counter[str] = Counter()

    def lose(self, client: int, reason: str, details: str = "") -> None:
        """Count a client whose reply cannot be used."""
        self._lost[reason] += 1
        line = f"node {self.nodes[client]}: no usable reply ({reason})"
        log.warning("coterie: %s%s", line, f": {details[:_SHOWN]!r}" if details else "")

    def take_counts(self) -> tuple[Counter[str], int]:
        """Clients that gave no usable reply since this was last called, by reason, and the number of
        exchanges."""
        past = (+self._lost, self._exchanges)
        self._lost = Counter()
        self._exchanges = 0
        return past

    def exchange(
        self,
        kind: str,
        ids: IntArray,
        models: Tensor,
        rows: IntArray,
        key: Key,
        asked: Mapping[str, Any] = EMPTY,
    ) -> list[RecordReply]:
        """Send each client its models, one a message, and wait for the replies until all have come or
        the time is over. As ``grid.send_and_receive``, whose polls are 3 s apart."""
        self._exchanges += 1
        records = {int(row): self.arrays.record(models[row]) for row in np.unique(rows)}
        messages = []
        owners = []
        for client, mine in zip(ids.tolist(), rows.tolist(), strict=True):
            parts = [mine] if self.several or not mine else [[row] for row in mine]
            for column, part in enumerate(parts):
                # Each message has a dictionary and a config of its own: nothing that an app writes
                # into one reaches another. Flower uploads equal arrays once.
                config = self.configs.of(kind, key.round, asked)
                named = {self.keys.numbered(j): records[row] for j, row in enumerate(part)}
                content = RecordDict({**named, self.keys.config: config})
                node = self.nodes[client]
                group = str(key.round + 1)
                messages.append(Message(content, node, kind, ttl=self.timeout, group_id=group))
                owners.append((client, column))
        sent = list(self.grid.push_messages(messages))
        # What could not be sent has no name.
        owner = {name: one for name, one in zip(sent, owners, strict=True) if name}
        for client in sorted({one[0] for name, one in zip(sent, owners, strict=True) if not name}):
            self.lose(client, "not sent")
        return self._await(owner, self._limit(kind))

    def _await(self, owner: Mapping[str, tuple[int, int]], limit: ReplyLimit) -> list[RecordReply]:
        pause = Pause(time.monotonic() + self.timeout, _LEAST_POLL)
        left = set(owner)
        answers = []
        while True:
            for arrival in self.inbox.pull(sorted(left), limit):
                left.discard(arrival.request)
                answers += self._read(*owner[arrival.request], arrival)
            if not left or pause.over:
                break
            pause.wait()
        self.inbox.drop(left)
        for client in sorted({owner[request][0] for request in left}):
            self.lose(client, "no answer")
        return answers

    def _read(self, client: int, column: int, arrival: Arrival) -> list[RecordReply]:
        """The answer of a client for each model that it evaluated; none, counted, where it is
        malformed."""
        if arrival.failure is not None:
            self.lose(client, arrival.failure, _details(arrival))
            return []
        assert arrival.message is not None, "an answer without a failure is a message"
        try:
            content = arrival.message.content
            (metrics,) = content.metric_records.values()
            records = self._by_model(metrics)
            sizes = [float_value(one.get(self.keys.weight)) for one in records]
        except Exception:  # noqa: BLE001 - the sender is not trusted
            self.lose(client, "malformed")
            return []
        answers = [
            RecordReply(client, column + at, content, one, size)
            for at, (one, size) in enumerate(zip(records, sizes, strict=True))
            if size is not None
        ]
        if len(answers) < len(records):
            self.lose(client, "keys")
            return []
        return answers

    def _by_model(self, metrics: MetricRecord) -> list[MetricRecord]:
        """The metrics of each model that a client evaluated."""
        count = metrics.get(self.keys.weight)
        if not self.several or not isinstance(count, list):
            return [metrics]
        return [
            MetricRecord({name: values[at] for name, values in metrics.items()})
            for at in range(len(count))
        ]

    def _limit(self, kind: str) -> ReplyLimit:
        """The most that an honest reply takes."""
        if kind != MessageType.TRAIN:
            return ReplyLimit(_OBJECTS, _WORDS, 4 * _WORDS)
        size = self.arrays.most_bytes
        pieces = 2 * len(self.arrays.first) + size // (1 << 20)
        return ReplyLimit(_OBJECTS + pieces, _WORDS, size + 4 * _WORDS)


def _details(arrival: Arrival) -> str:
    """What a node says of its failure."""
    try:
        assert arrival.message is not None
        return str(arrival.message.error.reason)
    except Exception:  # noqa: BLE001 - the sender is not trusted
        return ""
