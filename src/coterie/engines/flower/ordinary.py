"""Anybody's Flower clients: an ordinary ``ClientApp`` that trains and evaluates one model a message.

A train message holds arrays and a config, and its reply arrays and metrics. An evaluate message
gives a loss. All that methods ask for is made of these two.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from coterie.core import Describe, IntArray, Key, Reply
from coterie.core.arrays import EMPTY, rows_of_each
from coterie.core.training import Steps
from coterie.core.work import Score, Train, Work
from coterie.engines.flower.arrays import RecordLayout, float_value
from coterie.engines.flower.engine import open_inbox
from coterie.engines.flower.inbox import Arrival, ReplyLimit
from coterie.engines.flower.register import Pause
from coterie.errors import ConfigError

log = logging.getLogger("flwr")
_LEAST_POLL = 0.05  # seconds
_OBJECTS = 64  # of a reply in addition to its arrays and their pieces
_WORDS = 1 << 20  # bytes of a reply's metrics
_SHOWN = 300  # letters of what a node says of its failure
# The purpose of the evaluation of a round, whose replies may have any metrics.
EVALUATION = "evaluate"
# What mods of ``coterie.flower.client_mods`` read and answer: the number of the model that a client
# chose, the number of steps that it trains, and how many samples of each class it holds.
CHOICE = "coterie-choice"
STEPS = "local-steps"
COUNTS = "label-counts"
ASK_COUNTS = "label_counts"


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """How records and values in messages are called.

    Args:
        arrays: the record with the model.
        config: the record with the config.
        weight: the metric that says how many samples are behind a reply.
        loss: the metric with the mean loss; ``None``: ``loss``, or the only one whose name ends so.
    """

    arrays: str = "arrays"
    config: str = "config"
    weight: str = "num-examples"
    loss: str | None = None

    def numbered(self, number: int) -> str:
        """The record with a model of several."""
        return f"{self.arrays}-{number}" if number else self.arrays

    def loss_of(self, metrics: MetricRecord) -> float | None:
        """The mean loss in the metrics of a reply; ``None`` where there is none."""
        if self.loss is not None:
            return float_value(metrics.get(self.loss))
        if "loss" in metrics:
            return float_value(metrics["loss"])
        named = [name for name in metrics if name.lower().endswith("loss")]
        if len(named) != 1:
            return None
        return float_value(metrics[named[0]])


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


class OrdinaryEngine:
    """An engine over nodes with a ``ClientApp`` of their own.

    Args:
        nodes: node ids by the numbers of their clients.
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
        self.nodes: list[int] = []
        # By the purpose of the request and the client.
        self._metrics: dict[str, dict[int, RecordDict]] = {}
        self._lost: Counter[str] = Counter()
        self._exchanges = 0

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        """See ``coterie.core.engine.Engine``."""
        rows = rows_of_each(which)
        match work:
            case Train(choose="least_loss"):
                return self._choose(work, ids, models, rows, key)
            case Train():
                return self._train(work, ids, models, rows, key)
            case Score(per="client", loss=True, sums=(), shares=None):
                return self._score(ids, models, rows, key)
            case Describe(statistic="histogram", privacy="none"):
                return self._count_labels(work, ids, models, rows, key)
        raise _cannot_answer(work)

    def set_population(self, population: Any) -> None:
        """Nothing: real clients have their own data."""

    def close(self) -> None:
        """Nothing: Flower closes its grid."""

    def take_lost(self) -> Counter[str]:
        """Clients that gave no usable reply since this was last called, by reason."""
        past = +self._lost
        self._lost = Counter()
        return past

    def take_exchanges(self) -> int:
        """How often messages were sent and their replies awaited since this was last called."""
        past = self._exchanges
        self._exchanges = 0
        return past

    def take_metrics(self, what: str) -> dict[int, RecordDict]:
        """The metrics of the usable replies to requests of a purpose since this was last called, by
        client."""
        return self._metrics.pop(what, {})

    # --- the kinds of work ------------------------------------------------------------------------

    def _train(
        self, work: Train, ids: IntArray, models: Tensor, rows: IntArray, key: Key
    ) -> list[Reply]:
        """One train message for each client, which trains the first of its models or chooses one."""
        answers = self._exchange(MessageType.TRAIN, ids, models, rows, key, _asked(work))
        chose = any(CHOICE in answer.metrics for answer in answers)
        if rows.shape[1] > 1 and len(answers) == len(ids) and not chose:
            raise _no_mod("choose_model")
        sent = dict(zip(ids.tolist(), rows.tolist(), strict=True))
        replies = []
        for answer in answers:
            try:
                choice = _choice(answer.metrics, rows.shape[1])
                start = models[sent[answer.client][choice]].numpy()
                (record,) = answer.content.array_records.values()
                moved = self.arrays.values(record) - start
            except Exception:  # noqa: BLE001 - the sender is not trusted
                self._lose(answer.client, "malformed")
                continue
            # The validator refuses what is infinite in float32.
            with np.errstate(over="ignore", invalid="ignore"):
                delta = work.uploaded(moved.astype(np.float32)[None])
            # Not all apps report a loss of their training, and no rule reads it.
            loss = self.keys.loss_of(answer.metrics)
            fields = {
                "delta": delta,
                "size": np.array([answer.size]),
                "loss": np.array([loss if loss is not None else 0.0]),
            }
            if work.choose is not None:
                fields["choice"] = np.array([float(choice)])
            self._keep(key, answer)
            replies.append(Reply(key.round, np.array([answer.client]), fields, key.purpose))
        return replies

    def _choose(
        self, work: Train, ids: IntArray, models: Tensor, rows: IntArray, key: Key
    ) -> list[Reply]:
        """Clients choose, or the server for them: they evaluate each model, and train the one with the
        lowest loss."""
        if self.several:
            return self._train(work, ids, models, rows, key)
        scored = self._score(ids, models, rows, key.of("choose"))
        # Compared here and not by rules, so what is not finite counts as no answer.
        chosen = {
            int(reply.ids[0]): int(reply.loss[0].argmin())
            for reply in scored
            if np.isfinite(reply.loss).all()
        }
        known = np.array([client in chosen for client in ids.tolist()], bool)
        column = np.array([chosen[client] for client in ids[known].tolist()], np.int64)
        row = rows[known][np.arange(len(column)), column][:, None]
        replies = self._train(work, ids[known], models, row, key)
        return [
            reply.with_fields(choice=np.array([float(chosen[int(reply.ids[0])])]))
            for reply in replies
        ]

    def _score(self, ids: IntArray, models: Tensor, rows: IntArray, key: Key) -> list[Reply]:
        """The summed losses of clients under models: an evaluate message for each."""
        answers = self._exchange(MessageType.EVALUATE, ids, models, rows, key)
        by_client: dict[int, list[RecordReply]] = {}
        for answer in sorted(answers, key=lambda one: (one.client, one.column)):
            by_client.setdefault(answer.client, []).append(answer)
        # One answer of each, though each was sent several models.
        if self.several and rows.shape[1] > 1 and len(answers) == len(by_client) == len(ids):
            raise _no_mod("score_models")
        replies = []
        without_loss: list[MetricRecord] = []
        for client, several in by_client.items():
            losses = [self.keys.loss_of(one.metrics) for one in several]
            if None in losses and key.what == EVALUATION:
                losses = [0.0]
            if None in losses:
                without_loss.append(several[0].metrics)
                self._lose(client, "keys")
                continue
            # Of several models all have to be known, on the same samples.
            if len(several) < rows.shape[1] or len({one.size for one in several}) > 1:
                self._lose(client, "no answer")
                continue
            size = several[0].size
            fields = {"size": np.array([size]), "loss": np.array([losses], np.float64) * size}
            self._keep(key, several[-1])
            replies.append(Reply(key.round, np.array([client]), fields, key.purpose))
        if without_loss and not replies:
            raise self._no_loss(without_loss[0])
        return replies

    def _count_labels(
        self, work: Describe, ids: IntArray, models: Tensor, rows: IntArray, key: Key
    ) -> list[Reply]:
        """How many training samples of each class clients hold: a query for each."""
        kind = f"{MessageType.QUERY}.{ASK_COUNTS}"
        replies = []
        for answer in self._exchange(kind, ids, models, rows, key, {"classes": work.classes}):
            counts = np.array(answer.metrics.get(COUNTS), np.float64)
            if counts.shape != (work.classes,):
                self._lose(answer.client, "malformed")
                continue
            fields = {"histogram": counts[None], "size": np.array([answer.size])}
            replies.append(Reply(key.round, np.array([answer.client]), fields, key.purpose))
        return replies

    def _no_loss(self, metrics: MetricRecord) -> ConfigError:
        found = ", ".join(map(str, metrics))
        allowed = "a metric 'loss', or its name as loss_key"
        what = "the method compares losses, and replies to evaluate messages have none"
        if self.keys.loss is not None:
            allowed = f"the metric {self.keys.loss!r}"
        return ConfigError("missing", "loss_key", what, found=found, allowed=allowed)

    def _keep(self, key: Key, answer: RecordReply) -> None:
        """Keep the metrics of a reply, without its arrays."""
        content = RecordDict(dict(answer.content.metric_records))
        self._metrics.setdefault(key.what, {})[answer.client] = content

    def _lose(self, client: int, reason: str, details: str = "") -> None:
        self._lost[reason] += 1
        line = f"node {self.nodes[client]}: no usable reply ({reason})"
        log.warning("coterie: %s%s", line, f": {details[:_SHOWN]!r}" if details else "")

    # --- messages ---------------------------------------------------------------------------------

    def _exchange(
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
            self._lose(client, "not sent")
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
            self._lose(client, "no answer")
        return answers

    def _read(self, client: int, column: int, arrival: Arrival) -> list[RecordReply]:
        """The answer of a client for each model that it evaluated; none, counted, where it is
        malformed."""
        if arrival.failure is not None:
            self._lose(client, arrival.failure, _details(arrival))
            return []
        assert arrival.message is not None, "an answer without a failure is a message"
        try:
            content = arrival.message.content
            (metrics,) = content.metric_records.values()
            records = self._by_model(metrics)
            sizes = [float_value(one.get(self.keys.weight)) for one in records]
        except Exception:  # noqa: BLE001 - the sender is not trusted
            self._lose(client, "malformed")
            return []
        answers = [
            RecordReply(client, column + at, content, one, size)
            for at, (one, size) in enumerate(zip(records, sizes, strict=True))
            if size is not None
        ]
        if len(answers) < len(records):
            self._lose(client, "keys")
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


def _asked(work: Train) -> dict[str, Any]:
    """What a training asks for beside a model."""
    asked: dict[str, Any] = {}
    if work.objective.mu:
        # The weight of a proximal term, as Flower's ``FedProx`` sends it.
        asked["proximal-mu"] = work.objective.mu
    if isinstance(work.how, Steps):
        asked[STEPS] = work.how.number
    return asked


def _choice(metrics: MetricRecord, models: int) -> int:
    """The number of the model that a client trained.

    Raises:
        ValueError: for no number of a model.
    """
    if models == 1:
        return 0
    # Taken out, since it is no figure of the app that is averaged.
    choice = metrics.pop(CHOICE, None)
    if not isinstance(choice, int) or not 0 <= choice < models:
        raise ValueError("no number of a model")
    return choice


def _no_mod(name: str) -> ConfigError:
    what = "no node chooses among several models in one message"
    allowed = f"the mod {name} of coterie.flower.client_mods in their ClientApp"
    return ConfigError("missing", "several_models", what, allowed=allowed)


def _details(arrival: Arrival) -> str:
    """What a node says of its failure."""
    try:
        assert arrival.message is not None
        return str(arrival.message.error.reason)
    except Exception:  # noqa: BLE001 - the sender is not trusted
        return ""


def _cannot_answer(work: Work) -> ConfigError:
    """The refusal of work that an ordinary app does not do."""
    what = "needs something from clients that train and evaluate messages do not provide"
    found = type(work).__name__
    if isinstance(work, Describe):
        found = f"{work.statistic}, privacy {work.privacy}"
    allowed = "a method that needs only arrays and losses"
    return ConfigError("does-not-fit", "method", what, found=found, allowed=allowed)
