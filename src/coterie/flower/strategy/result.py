"""What a clustered run in a Flower app gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import Result

from coterie.errors import ConfigError

# Round, from 1 -> group -> metrics.
GroupMetrics = dict[int, dict[int, MetricRecord]]


@dataclass
class ClusteredResult(Result):
    """Flower's ``Result``, and what is known of each group.

    ``arrays`` is the mean of the models of all groups that have members, each counted once. With one
    group it is that model.

    Args:
        groups: node id -> its group; nodes that were never placed are not in it.
        models: the arrays of each group.
        train_metrics_groups: as ``train_metrics_clientapp``, for the nodes of each group.
        evaluate_metrics_groups: as ``evaluate_metrics_clientapp``, for the nodes of each group.
        rows: what is known of each round, as in the ``rounds.jsonl`` of a run.
    """

    groups: dict[int, int] = field(default_factory=dict)
    models: list[ArrayRecord] = field(default_factory=list)
    train_metrics_groups: GroupMetrics = field(default_factory=dict)
    evaluate_metrics_groups: GroupMetrics = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    serve: Callable[[int], ArrayRecord] | None = field(default=None, repr=False)

    def arrays_of(self, node_id: int) -> ArrayRecord:
        """The model that serves a node: that of its group, or ``arrays`` for a node without one.

        Raises:
            ConfigError: for a node that was never there.
        """
        if self.serve is None:
            return self.arrays
        return self.serve(node_id)

    def __repr__(self) -> str:
        members: dict[int, int] = {}
        for group in self.groups.values():
            members[group] = members.get(group, 0) + 1
        lines = [f"\tgroup {group}: {members[group]} nodes" for group in sorted(members)]
        return super().__repr__() + "\nGroups:\n" + "\n".join(lines) + "\n"


def unknown_node(node_id: int) -> ConfigError:
    """The refusal of a node that has no number."""
    allowed = "a node that took part in the run"
    return ConfigError("not-found", "node_id", "no such node", found=node_id, allowed=allowed)
