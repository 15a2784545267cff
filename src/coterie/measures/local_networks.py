"""Metrics of the networks that clients trained last, each on its client's own test samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.client_store import ClientStore
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.task import Metric, Sums, Task
from coterie.core.work import Evaluate
from coterie.measures.sampling import EvaluationSample
from coterie.tasks import CLASSIFICATION

_BLOCK = 2**28  # bytes of networks that are scored at once


def score_local_networks(
    clients: Clients,
    testable: NDArray[np.bool_],
    key: Key,
    sample: EvaluationSample | None = None,
    task: Task = CLASSIFICATION,
) -> dict[str, Any]:
    """What the last local networks of the clients make of their test samples.

    The last local network of client ``i`` is what its last training left, whatever the server made
    of it: ``w + delta_i``. PACFL's scripts score clients so. A client that never trained has none
    and does not count; PACFL's scripts score it with ``w_0``.

    Args:
        clients: those that score; they remember their networks (``Clients.local_networks``).
        testable: bool ``[N]``, which clients are present and have test samples.
        key: random stream.
        sample: scores so many of the clients that trained; ``None``: all of them.
        task: whose headline, which stands for ``accuracy`` here.

    Returns:
        ``evaluated_local``, the number of clients scored; ``accuracy_local``, total correct over
        total test samples; ``accuracy_local_mean``, the mean of the clients' accuracies. Both are
        ``None`` if no client was scored.
    """
    networks = clients.local_networks
    assert networks is not None, "the clients of this run do not remember their networks"
    trained = np.zeros_like(testable)
    trained[networks.ids()] = True
    ids = np.flatnonzero(testable & trained)
    if sample is not None:
        # Clients with a group and without count alike here, so they are one kind.
        ids = sample.draw(testable & trained, np.ones_like(testable))
    work = Evaluate("test", loss=False, sums=task.sums)
    parts = [{name: np.empty((0, *shape)) for name, shape in (*task.sums, ("size", ()))}]
    for block in _blocks(networks, ids):
        models = torch.from_numpy(networks.get(block))
        # `measure`, not `run`: scoring is no part of what a method costs.
        reply = clients.measure(work, block, models, np.arange(len(block)), key=key)
        parts.append(dict(own_sums(reply, task)))
    sums = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return _figures(task.metrics[0], sums)


def _blocks(networks: ClientStore, ids: IntArray) -> Iterator[IntArray]:
    """The clients, cut so that the networks of a block take at most ``_BLOCK`` bytes."""
    if networks.keep is None:
        return
    size = max(1, _BLOCK // (4 * networks.keep.size))
    for at in range(0, len(ids), size):
        yield ids[at : at + size]


def _figures(metric: Metric, sums: Sums) -> dict[str, Any]:
    """The headline over all that were scored, and the mean of the clients' own."""
    value = None
    mean = None
    if len(sums["size"]):
        value = number(metric.value({name: each.sum(axis=0) for name, each in sums.items()}))
        own = metric.value(sums)
        own = own[np.isfinite(own)]
        if len(own):
            mean = float(own.mean())
    return {
        "evaluated_local": len(sums["size"]),
        f"{metric.name}_local": value,
        f"{metric.name}_local_mean": mean,
    }


def own_sums(reply: Reply, task: Task) -> Sums:
    """The sums of each client under the one model that it was scored on, ``[n, *shape]``."""
    sums = {name: reply.fields[name][:, 0].astype(np.float64) for name, _ in task.sums}
    return {**sums, "size": reply.fields["size"].astype(np.float64)}


def number(value: Any) -> float | None:
    """A value as a row has it: ``None`` where it is undefined."""
    if np.isfinite(value):
        return float(value)
    return None
