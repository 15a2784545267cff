"""How well the clients of a round are served by the models that they are about to train."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keys import Key
from coterie.core.plan import Plan
from coterie.core.work import Evaluate
from coterie.rules.migration import Assign


@dataclass(frozen=True)
class KnowingAccuracy:
    """An assign rule after which the server knows each planned client's training accuracy.

    It is that of the model the client is about to train, on its own training samples, in
    ``memory["floor_accuracy"]``: float64 ``[N]``, at least ``1 / C``, and 1 for whoever did not
    answer.

    Args:
        assign: the rule inside.
    """

    assign: Assign

    def __call__(
        self, groups: Groups, cohort: IntArray, door: Clients, key: Key
    ) -> tuple[Groups, Plan]:
        groups, plan = self.assign(groups, cohort, door, key)
        reply = door.run(
            Evaluate("train", loss=False), plan.ids, groups.models, plan.row, key=key.of("accuracy")
        )
        accuracy = torch.ones(len(groups.member), dtype=torch.float64)
        share = torch.from_numpy(reply.fields["correct"][:, 0] / reply.fields["size"])
        accuracy[torch.from_numpy(reply.ids)] = share.clamp(1 / max(1, door.classes), 1.0)
        return groups.remember(floor_accuracy=accuracy), plan
