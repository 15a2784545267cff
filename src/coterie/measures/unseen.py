"""Clients that never train: how a federation serves those that come to it later."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from coterie.clients.round import Round
from coterie.config.schema import Share
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.task import Task
from coterie.core.work import Score, Train
from coterie.data.population import Population
from coterie.errors import ConfigError
from coterie.measures.figures import own_sums, scored_figures
from coterie.measures.own_models import adapted_figures, score_adapted
from coterie.methods.algorithm import Algorithm
from coterie.methods.placing import place, place_unlabelled

# A share of the clients, or some of them by their names or numbers.
Client = str | Annotated[int, Field(ge=0)]
Unseen = Share | tuple[Client, ...]


def unseen_clients(wanted: Unseen | None, population: Population, key: Key) -> IntArray:
    """The clients that never train, int64, ascending.

    A share is that of the clients that could train and be scored, at least one of them, drawn once
    for the run.

    Example:
        >>> from coterie.data import load_population
        >>> partition = {"kind": "iid", "clients": 10}
        >>> digits = load_population({"source": "digits"}, partition, key=Key(0))
        >>> len(unseen_clients(0.2, digits, Key(0))), unseen_clients([7, "3"], digits, Key(0)).tolist()
        (2, [3, 7])
    """
    if wanted is None:
        return np.empty(0, np.int64)
    can_train = population.sizes("train") > 0
    if isinstance(wanted, float):
        able = np.flatnonzero(can_train & (population.sizes("test") > 0))
        count = max(1, round(wanted * len(able)))
        # A stream of its own, so that nothing else of the run changes with it.
        ids = key.of("unseen").generator().permutation(able)[:count]
    else:
        ids = np.array([_number_of(client, population) for client in wanted], np.int64)
    ids = np.unique(ids)
    can_train[ids] = False
    if not can_train.any():
        what = "no client would remain for training"
        raise ConfigError("out-of-range", "evaluate.unseen", what, got=wanted, allowed="fewer")
    return ids


def _number_of(client: str | int, population: Population) -> int:
    if isinstance(client, int):
        if not 0 <= client < population.clients:
            last = population.clients - 1
            expected = f"a name, or a number from 0 to {last}"
            what = "no such client"
            raise ConfigError("not-found", "evaluate.unseen", what, got=client, allowed=expected)
        return client
    if client not in population.names:
        some = ", ".join(population.names[:3])
        what = "no such client"
        expected = f"names such as {some}"
        raise ConfigError("not-found", "evaluate.unseen", what, got=client, allowed=expected)
    return population.names.index(client)


def score_unseen(
    algorithm: Algorithm,
    groups: Groups,
    round: Round,
    trainable: IntArray,
    adapt: Train | None,
    task: Task,
    *,
    labels: bool = True,
) -> dict[str, Any]:
    """The figures of clients that never train, each placed as the method places newcomers; those
    that find no group are served by the mean of the groups' models. The round's cohort are these
    clients. With ``labels`` off, the method may place them by their inputs only, if it can."""
    clients = round.clients
    ids = round.cohort
    trial = clients.on_trial()
    by = place if labels else place_unlabelled
    placed = by(algorithm, groups, replace(round.of("place"), clients=trial))
    served = algorithm.serve(placed)
    models, which = served.for_clients(ids)
    work = Score("test", loss=False, sums=task.sums, served_by=served.personal)
    reply = clients.run(work, ids, models, which, key=round.key.of("unseen"), counts=False)
    sums = own_sums(reply, task)
    metric = task.metrics[0]
    keys = metric.headline.keys.unseen
    found = {
        "evaluated_unseen": len(reply.ids),
        "unseen_placed": int((placed.member[ids] >= 0).sum()),
        **scored_figures(metric, sums, keys),
    }
    if adapt is None:
        return found
    key = round.key.of("adapt")
    sums = score_adapted(clients, ids, trainable, served, adapt, key, task)
    return found | adapted_figures(sums, task, keys)
