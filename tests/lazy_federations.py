"""Federations whose samples are made when they are asked for, which tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import nn

import coterie as ct
from coterie.core.keys import Key
from coterie.core.vectors import flatten
from coterie.core.work import Score
from coterie.data.lazy import lazy_columns, ranges
from coterie.data.sources.generated import SyntheticClient

SOLVER = ct.Solver(epochs=1, batch_size=20, lr=0.01)


def federation(clients: int = 12, *, lazy: bool) -> ct.Population:
    """The synthetic federation, made as a whole or client by client."""
    return ct.load("synthetic", partition={"kind": "given"}, clients=clients, lazy=lazy)


def run_small(data: ct.Population, method: Any = None, rounds: int = 2, **options: Any) -> Any:
    """A run of logistic regression, four clients a round, by default of FedGroup."""
    method = method or ct.fedgroup(groups=2, alpha=3)
    defaults = {"model": "mclr", "local": SOLVER, "clients_per_round": 4, "engine": "serial"}
    return ct.run(method, data=data, rounds=rounds, **{**defaults, **options})


def clients_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clients that are made from now on, one entry each time."""
    clients: list[int] = []
    make = SyntheticClient.__call__
    monkeypatch.setattr(
        SyntheticClient, "__call__", lambda self, k: clients.append(k) or make(self, k)
    )  # type: ignore[func-returns-value]
    return clients


def make_two_samples(client: int) -> tuple[Any, Any]:
    return np.full((2, 4), client % 7 - 3, np.float32), np.array([0, client % 2])


def small_clients(clients: int) -> ct.Population:
    """Clients of one training and one test sample that are made when they are asked for."""
    x, y = lazy_columns(make_two_samples, np.arange(0, 2 * clients + 1, 2), (4,))
    first = np.arange(0, 2 * clients, 2)
    one = np.ones(clients, np.int64)
    return ct.Population(
        x, y, ranges(first, one), ranges(first + 1, one), 2, tuple(map(str, range(clients)))
    )


def score(engine: Any, data: ct.Population, net: nn.Module) -> dict[str, Any]:
    """What an engine finds of all clients' test samples, in the order of the clients."""
    ids = np.arange(data.clients)
    replies = engine.run(
        Score("test"), ids, flatten(net)[None], np.zeros(len(ids), np.int64), key=Key(1)
    )
    order = np.argsort(np.concatenate([reply.ids for reply in replies]))
    return {
        name: np.concatenate([reply.fields[name] for reply in replies])[order]
        for name in replies[0].fields
    }
