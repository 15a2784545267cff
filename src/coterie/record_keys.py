"""How records and values are called in messages to an ordinary Flower app. Its mods import this, and
wait for no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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

    def loss_of(self, metrics: Mapping[str, Any]) -> float | None:
        """The mean loss in the metrics of a reply; ``None`` where there is none."""
        if self.loss is not None:
            return float_value(metrics.get(self.loss))
        if "loss" in metrics:
            return float_value(metrics["loss"])
        named = [name for name in metrics if name.lower().endswith("loss")]
        if len(named) != 1:
            return None
        return float_value(metrics[named[0]])


def float_value(value: Any) -> float | None:
    """A number of a metric record; ``None`` for a list, or for what is not there."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None
