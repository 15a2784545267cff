"""Metrics of the networks that clients trained last, each on its client's own test samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.core.task import Task
from coterie.measures.own_models import score_own_models, scored_figures
from coterie.measures.sampling import EvaluationSample
from coterie.tasks import CLASSIFICATION


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
        clients: those that score; they remember their networks (``ClientStores.networks``).
        testable: bool ``[N]``, which clients are present and have test samples.
        key: random stream.
        sample: scores so many of the clients that trained; ``None``: all of them.
        task: whose headline, which stands for ``accuracy`` here.

    Returns:
        ``evaluated_local``, the number of clients scored; ``accuracy_local``, total correct over
        total test samples; ``accuracy_local_mean``, the mean of the clients' accuracies, and their
        quantiles and fairness. All but the first are ``None`` if no client was scored.
    """
    networks = clients.stores.networks
    assert networks is not None, "the clients of this run do not remember their networks"
    trained = np.zeros_like(testable)
    trained[networks.ids()] = True
    ids = np.flatnonzero(testable & trained)
    if sample is not None:
        # Clients with a group and without count alike here, so they are one kind.
        ids = sample.draw(testable & trained, np.ones_like(testable))

    def stored(block: IntArray) -> Tensor:
        return torch.from_numpy(networks.get(block))

    d = 1 if networks.keep is None else networks.keep.size
    sums = score_own_models(clients, ids, stored, d, key, task)
    metric = task.metrics[0]
    figures = scored_figures(metric, sums, metric.headline.keys.local)
    return {"evaluated_local": len(sums["size"]), **figures}
