"""Clients without labels: after the last round of a run they are placed, and served."""

from __future__ import annotations

from coterie.clients.clients import Clients
from coterie.clients.round import Round
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.methods.placing import place_unlabelled
from coterie.runs.spec import RunSpec


def placed_unlabelled(spec: RunSpec, clients: Clients, groups: Groups, ids: IntArray) -> Groups:
    """The state with clients in it that have no labels, as the method places them by their inputs."""
    last = spec.rounds - 1
    key = spec.key.at(last).of("unlabelled")
    return place_unlabelled(spec.algorithm, groups, Round(last, key, ids, clients, spec.local))
