"""Clients of a federation whose data have no labels: after the last round each is placed, and sent the
model that serves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from coterie.core.groups import Groups
from coterie.core.served import Served
from coterie.core.work import Deliver
from coterie.engines.flower import FlowerEngine
from coterie.experiment import Experiment
from coterie.methods.algorithm import method_of
from coterie.methods.placing import rule_without_labels
from coterie.rules.newcomers import BY_INPUTS, ONE_MODEL, WITHOUT_LABELS, unlabelled_rule
from coterie.runs.fitting import make_method
from coterie.runs.run import Run

Say = Callable[[str], None]
_SEVERAL = "clients predict with several models, so none was sent"
_NO_ANSWER = "it did not reply; ask it again with `coterie deploy run --resume`"


def fate_without_labels(config: Experiment) -> str:
    """What becomes of a client without labels in a run, in words."""
    method = method_of(make_method(config))
    if method is not None and unlabelled_rule(method.assign) is not None:
        return "it does not train, and is placed by its inputs after the last round"
    return (
        f"it does not train, and {config.name('algorithm')} cannot place it by its inputs; after the "
        "last round it is sent the model of clients without a group"
    )


def serve_unlabelled(run: Run, engine: FlowerEngine, say: Say) -> None:
    """Place the clients without labels that are there, in the state of a run whose rounds are over, and
    send each the model that serves it."""
    register = engine.register
    ids = np.flatnonzero(register.present & ~register.labelled)
    if not len(ids):
        return
    run.place_unlabelled(ids)
    can_place = rule_without_labels(run.spec.algorithm) is not None
    how = {client: _how(run.groups, client, can_place) for client in ids.tolist()}
    served = run.spec.algorithm.serve(run.groups)
    # Clients that predict with the mean of several models have no model that could be sent.
    several = served.shares is not None
    answered = set() if several else _deliver(run, served, how)
    for client, by in how.items():
        group = int(run.groups.member[client])
        line = _SEVERAL if several else _NO_ANSWER
        if client in answered:
            line = f"it was sent the model of {_name_of(group)} ({by})"
        say(f"client {register.names[client]!r} has no labels: {line}")


def _name_of(group: int) -> str:
    return "clients without a group" if group < 0 else f"group {group}"


def _how(groups: Groups, client: int, can_place: bool) -> str:
    """How a client came to its model; empty where it was asked and did not answer."""
    if groups.k == 1:
        return ONE_MODEL
    if groups.member[client] >= 0:
        return BY_INPUTS
    return "" if can_place else WITHOUT_LABELS


def _deliver(run: Run, served: Served, how: Mapping[int, str]) -> set[int]:
    """Send each client its model, all in one exchange, but those that have no ``how``; returns who has
    it."""
    member = run.groups.member
    key = run.spec.key.at(run.spec.schedule.rounds - 1).of("deliver")
    alike: dict[tuple[int, str], list[int]] = {}
    for client, by in how.items():
        if by:
            alike.setdefault((int(member[client]), by), []).append(client)
    replies = []
    for (group, by), clients in sorted(alike.items()):
        ids = np.array(clients, np.int64)
        models, which = served.for_clients(ids)
        # All are posted before any is read, so that they travel together.
        replies.append(run.clients.post(Deliver(group, by), ids, models, which, key=key))
    return {client for read in replies for client in read().ids.tolist()}
