"""One group for all clients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.core.plan import Plan


def everyone(groups: Groups, round: Round) -> tuple[Groups, Plan]:
    """Assign rule of FedAvg: all clients, known or new, belong to group 0."""
    # All clients and not only the cohort: the one model serves, and is scored on, everybody.
    if groups.k > 1 or groups.assigned < len(groups.member):
        groups = replace(groups, member=np.zeros_like(groups.member))
    return groups, Plan(round.cohort, np.zeros(len(round.cohort), np.int64))
