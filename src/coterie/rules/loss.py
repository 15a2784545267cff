"""Grouping by training loss: IFCA's rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.work import Evaluate


def least_loss(groups: Groups, cohort: IntArray, door: Clients, key: Key) -> tuple[Groups, Plan]:
    """Assign rule of IFCA: each selected client takes ``argmin_j F_i(w_j)`` over its whole training
    set.

    All ``k`` models go to each client; the loss has no regulariser; ties go to the lowest group. A
    client that does not answer stays where it was, and one that never answered does not train.

    Source: Ghosh et al., An Efficient Framework for Clustered Federated Learning (2020), Alg. 1 l.
    6.
    """
    which = np.tile(np.arange(groups.k), (len(cohort), 1))
    reply = door.run(Evaluate("train"), cohort, groups.models, which, key=key.of("choose"))
    member = groups.member.copy()
    newcomers = int((member[reply.ids] < 0).sum())
    member[reply.ids] = reply.fields["loss"].argmin(axis=1)
    ids = cohort[member[cohort] >= 0]
    return replace(groups, member=member), Plan(ids, member[ids], notes={"newcomers": newcomers})
