"""Everybody trains the one model there is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan


def everyone(groups: Groups, cohort: IntArray, door: Clients, key: Key) -> tuple[Groups, Plan]:
    """Assign rule of FedAvg: all clients, known or new, belong to group 0."""
    groups = replace(groups, member=np.zeros_like(groups.member))
    return groups, Plan(cohort, np.zeros(len(cohort), np.int64))
