"""Anybody's Flower clients: an ordinary ``ClientApp`` that trains and evaluates one model a message.

A train message holds arrays and a config, and its reply arrays and metrics. An evaluate message
gives a loss. All that methods ask for is made of these two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import MessageType, MetricRecord, RecordDict
from torch import Tensor

from coterie.core import Describe, IntArray, Key, Reply
from coterie.core.arrays import rows_of_each
from coterie.core.training import Steps
from coterie.core.work import Score, Train, Work
from coterie.engines.flower.ordinary_messages import OrdinaryMessages, RecordReply
from coterie.errors import ConfigError
from coterie.record_keys import ASK_COUNTS, CHOICE, COUNTS, STEPS

# The purpose of the evaluation of a round, whose replies may have any metrics.
EVALUATION = "evaluate"


class OrdinaryEngine:
    """An engine over nodes with a ``ClientApp`` of their own."""

    def __init__(self, messages: OrdinaryMessages) -> None:
        self.messages = messages
        self.arrays = messages.arrays
        self.keys = messages.keys
        # By the purpose of the request and the client.
        self._metrics: dict[str, dict[int, RecordDict]] = {}

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

    def take_metrics(self, what: str) -> dict[int, RecordDict]:
        """The metrics of the usable replies to requests of a purpose since this was last called, by
        client."""
        return self._metrics.pop(what, {})

    # --- the kinds of work ------------------------------------------------------------------------

    def _train(
        self, work: Train, ids: IntArray, models: Tensor, rows: IntArray, key: Key
    ) -> list[Reply]:
        """One train message for each client, which trains the first of its models or chooses one."""
        answers = self.messages.exchange(MessageType.TRAIN, ids, models, rows, key, _asked(work))
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
                self.messages.lose(answer.client, "malformed")
                continue
            # The validator refuses what is infinite in float32.
            with np.errstate(over="ignore", invalid="ignore"):
                delta = work.uploaded(moved.astype(np.float32)[None])
            # Not all apps report a loss of their training, and no rule reads it.
            loss = self.keys.loss_of(answer.metrics)
            fields = {"delta": delta, "loss": np.array([loss if loss is not None else 0.0])}
            if work.choose is not None:
                fields["choice"] = np.array([float(choice)])
            replies.append(self._reply(key, answer, fields))
        return replies

    def _choose(
        self, work: Train, ids: IntArray, models: Tensor, rows: IntArray, key: Key
    ) -> list[Reply]:
        """Clients choose, or the server for them: they evaluate each model, and train the one with the
        lowest loss."""
        if self.messages.several:
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
        answers = self.messages.exchange(MessageType.EVALUATE, ids, models, rows, key)
        by_client: dict[int, list[RecordReply]] = {}
        for answer in sorted(answers, key=lambda one: (one.client, one.column)):
            by_client.setdefault(answer.client, []).append(answer)
        # One answer of each, though each was sent several models.
        if (
            self.messages.several
            and rows.shape[1] > 1
            and len(answers) == len(by_client) == len(ids)
        ):
            raise _no_mod("score_models")
        replies = []
        without_loss: list[MetricRecord] = []
        for client, several in by_client.items():
            losses = [self.keys.loss_of(one.metrics) for one in several]
            if None in losses and key.what == EVALUATION:
                losses = [0.0]
            if None in losses:
                without_loss.append(several[0].metrics)
                self.messages.lose(client, "keys")
                continue
            # Of several models all have to be known, on the same samples.
            if len(several) < rows.shape[1] or len({one.size for one in several}) > 1:
                self.messages.lose(client, "no answer")
                continue
            total = np.array([losses], np.float64) * several[0].size
            replies.append(self._reply(key, several[-1], {"loss": total}))
        if without_loss and not replies:
            raise self._no_loss(without_loss[0])
        return replies

    def _count_labels(
        self, work: Describe, ids: IntArray, models: Tensor, rows: IntArray, key: Key
    ) -> list[Reply]:
        """How many training samples of each class clients hold: a query for each."""
        kind = f"{MessageType.QUERY}.{ASK_COUNTS}"
        replies = []
        for answer in self.messages.exchange(
            kind, ids, models, rows, key, {"classes": work.classes}
        ):
            counts = np.array(answer.metrics.get(COUNTS), np.float64)
            if counts.shape != (work.classes,):
                self.messages.lose(answer.client, "malformed")
                continue
            replies.append(self._reply(key, answer, {"histogram": counts[None]}))
        return replies

    def _no_loss(self, metrics: MetricRecord) -> ConfigError:
        found = f"only {', '.join(map(str, metrics))}" if metrics else ""
        allowed = "a metric 'loss', or its name as loss_key"
        what = "the method compares losses, but replies to evaluate messages contain none"
        if self.keys.loss is not None:
            allowed = f"the metric {self.keys.loss!r}"
        return ConfigError("missing", "loss_key", what, found=found, allowed=allowed)

    def _reply(self, key: Key, answer: RecordReply, fields: Mapping[str, np.ndarray]) -> Reply:
        """A reply with these fields and a size; its metrics are kept, without its arrays."""
        content = RecordDict(dict(answer.content.metric_records))
        self._metrics.setdefault(key.what, {})[answer.client] = content
        fields = {**fields, "size": np.array([answer.size])}
        return Reply(key.round, np.array([answer.client]), fields, key.purpose)


def _asked(work: Train) -> dict[str, Any]:
    """What a training asks for in addition to a model."""
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
        raise ValueError("not the number of a model")
    return choice


def _no_mod(name: str) -> ConfigError:
    what = "no node chooses among several models in one message"
    advice = f"add the mod {name} of coterie.flower.client_mods to your ClientApp"
    return ConfigError("missing", "several_models", what, do=advice)


def _cannot_answer(work: Work) -> ConfigError:
    """The refusal of work that an ordinary app does not do."""
    what = "needs something from clients that train and evaluate messages do not provide"
    found = type(work).__name__
    if isinstance(work, Describe):
        found = f"{work.statistic}, privacy {work.privacy}"
    allowed = "a method that needs only arrays and losses"
    return ConfigError("does-not-fit", "method", what, found=found, allowed=allowed)
