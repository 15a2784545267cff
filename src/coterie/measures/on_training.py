"""Clients scored on the samples that they train on, with the model that serves them.

The distance to the figures on test samples says how far models are fitted to the samples themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.clients.clients import Clients
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.served import Served
from coterie.core.task import ratio
from coterie.core.work import Evaluate
from coterie.measures.own_models import number, own_sums, scored_figures
from coterie.measures.scoring import Scoring, scored_clients


def score_on_training(
    clients: Clients,
    trainable: NDArray[np.bool_],
    served: Served,
    groups: Groups,
    key: Key,
    scoring: Scoring,
) -> dict[str, Any]:
    """The loss and the metrics of the models on training samples, over the clients that have a group.

    ``accuracy_training`` is total correct over total training samples, and ``training_loss`` their
    mean loss, each client with the model that serves it now. It is not the ``loss`` of a row, which
    clients see while they train, each in its own model.

    Args:
        clients: those that score.
        trainable: bool ``[N]``, which clients are present and have training samples.
        served: which model serves each client.
        groups: for membership.
        key: random stream.
        scoring: the task, and which clients stand for all.

    Returns:
        ``evaluated_training``, the number of clients scored; the headline of the task, which stands
        for ``accuracy`` here: ``accuracy_training``, its mean, quantiles and fairness over the
        clients; ``training_loss``; and the task's further metrics as ``metrics_training``. All but
        the first are ``None`` if no client was scored.
    """
    ids = scored_clients(trainable, groups, scoring.sample)
    ids = ids[groups.member[ids] >= 0]
    task = scoring.task
    models, which, shares = served.to_score(ids)
    work = Evaluate("train", sums=task.sums, served_by=served.personal, shares=shares)
    # `measure`, not `run`: scoring is no part of what a method costs.
    reply = clients.measure(work, ids, models, which, key=key)
    sums = own_sums(reply, task)
    first, *others = task.metrics
    losses = reply.fields["loss"][:, 0].astype(np.float64)
    found: dict[str, Any] = {
        "evaluated_training": len(reply.ids),
        **scored_figures(first, sums, first.headline.keys.training),
        "training_loss": number(ratio(losses.sum(), sums["size"].sum())),
    }
    if others:
        together = {name: values.sum(axis=0) for name, values in sums.items()}
        found["metrics_training"] = {one.name: number(one.value(together)) for one in others}
    return found
