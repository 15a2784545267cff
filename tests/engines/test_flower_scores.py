"""What one node says of its test samples does not decide what is reported of the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import Array, ArrayRecord, Message

from coterie.engines.flower.messages import FIELDS, part_name
from coterie.flower.watch.status import read_status
from tests.engines.fake_grid import FakeGrid, Meddle, contexts
from tests.engines.test_flower import SETTINGS, Reported, deploy, tables

CLIENTS = 12
LIAR = 100 + CLIENTS - 1
MOST = 1e9
Fields = dict[str, Any]


def lying(change: Callable[[Fields], Fields]) -> Meddle:
    """The last node changes the fields of its evaluations; the others are honest."""

    def meddle(node: int, request: Message, replies: list[Message]) -> list[Message]:
        if node != LIAR:
            return replies
        for reply in replies:
            for number in range(len(reply.content.config_records)):
                name = part_name(FIELDS, number)
                record = reply.content.array_records.get(name, {})
                fields = {field: array.numpy() for field, array in record.items()}
                if "size" in fields and "delta" not in fields:
                    changed = change(fields)
                    reply.content[name] = ArrayRecord({n: Array(a) for n, a in changed.items()})
        return replies

    return meddle


def claiming(samples: float, share: float) -> Callable[[Fields], Fields]:
    """So many test samples, of which this share are right."""

    def change(fields: Fields) -> Fields:
        correct = np.full_like(fields["correct"], samples * share)
        return {**fields, "correct": correct, "size": np.full_like(fields["size"], samples)}

    return change


def federation(
    folder: Path, change: Callable[[Fields], Fields] | None, config: Any = None
) -> Reported:
    """A run of twelve nodes."""
    config = config or tables(clients=CLIENTS)
    settings = {"clients": CLIENTS, "min_clients": CLIENTS, "most_samples": MOST}
    nodes = contexts(config, {**SETTINGS, **settings}, range(CLIENTS), folder)
    grid = FakeGrid(nodes, *([] if change is None else [lying(change)]))
    return deploy(folder, config, grid, **settings)


def test_one_node_that_claims_all_samples_does_not_decide_the_accuracy(tmp_path: Path) -> None:
    honest = federation(tmp_path / "honest", None)
    assert not any("clipped" in row for row in honest.rows)
    lower = federation(tmp_path / "lower", claiming(MOST, 0.0))
    upper = federation(tmp_path / "upper", claiming(MOST, 1.0))
    for row, low, high in zip(honest.rows, lower.rows, upper.rows, strict=True):
        assert low["clipped"] == high["clipped"] == {"size": 1}
        assert not low["refused"]
        # Twelve clients, of which one counts as three: 3 of 14, and sizes differ a little.
        assert row["accuracy_all"] - low["accuracy_all"] < 0.3
        assert high["accuracy_all"] - row["accuracy_all"] < 0.3
    # Nobody has a group before the first round, so the headline begins with the second one.
    assert honest.rows[-1]["accuracy"] - lower.rows[-1]["accuracy"] < 0.3
    assert upper.rows[-1]["accuracy"] - honest.rows[-1]["accuracy"] < 0.3
    assert ("clipped", "size 2") in read_status(tmp_path / "upper" / "run").facts


def test_how_much_it_claims_makes_no_difference(tmp_path: Path) -> None:
    first = federation(tmp_path / "a", claiming(1e6, 0.0))
    second = federation(tmp_path / "b", claiming(MOST, 0.0))
    scores = [row["accuracy_all"] for row in first.rows]
    assert scores == [row["accuracy_all"] for row in second.rows]
    assert None not in scores


def test_without_bounds_it_decides(tmp_path: Path) -> None:
    config = {**tables(clients=CLIENTS, rounds=1), "bounds": {"enabled": False}}
    reported = federation(tmp_path, claiming(MOST, 0.0), config)
    assert reported.rows[0]["accuracy_all"] < 1e-6
