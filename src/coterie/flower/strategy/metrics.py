"""What nodes report of their models, put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from flwr.app import MetricRecord, RecordDict

from coterie.flower.strategy.store import LOSS, NodeScores
from coterie.headline import ACCURACY
from coterie.record_keys import RecordKeys, float_value

Aggregator = Callable[[list[RecordDict], str], MetricRecord]


def metrics_of(content: RecordDict) -> MetricRecord:
    """The one record of metrics in a reply."""
    (metrics,) = content.metric_records.values()
    return metrics


def node_scores(replies: Mapping[int, RecordDict], keys: RecordKeys) -> NodeScores | None:
    """The accuracy that nodes report, or else their loss; ``None`` where most report neither."""
    records = {client: metrics_of(content) for client, content in same_metrics(replies).items()}
    if not records:
        return None
    named = [name for name in next(iter(records.values())) if "acc" in name.lower()]
    found = {client: keys.loss_of(record) for client, record in records.items()}
    headline = LOSS
    if len(named) == 1:
        found = {client: float_value(record[named[0]]) for client, record in records.items()}
        headline = ACCURACY
    known = {
        client: value
        for client, value in found.items()
        if value is not None and np.isfinite(value) and (headline == LOSS or 0 <= value <= 1)
    }
    if not known:
        return None
    ids = np.array(sorted(known), np.int64)
    sizes = [float_value(records[client][keys.weight]) for client in sorted(known)]
    values = np.array([known[client] for client in sorted(known)])
    return NodeScores(headline, ids, values, np.array(sizes, np.float64))


def same_metrics(replies: Mapping[int, RecordDict]) -> dict[int, RecordDict]:
    """The replies that have the same metrics as most: others cannot be averaged with them."""

    def form(content: RecordDict) -> tuple[Any, ...]:
        lengths = {
            name: len(value) if isinstance(value, list) else -1
            for name, value in metrics_of(content).items()
        }
        return tuple(sorted(lengths.items()))

    counts = Counter(form(content) for content in replies.values())
    if not counts:
        return {}
    most = counts.most_common(1)[0][0]
    return {client: content for client, content in replies.items() if form(content) == most}
