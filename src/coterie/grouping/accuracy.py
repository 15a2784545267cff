"""How well the clients of a round are served by the models that they are about to train."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from coterie.engines.door import Door
from coterie.grouping.drift import Assign
from coterie.keys import Key
from coterie.types import Evaluate, Groups, IntArray, Plan


@dataclass(frozen=True)
class KnowingAccuracy:
    """An assign rule after which the server knows each planned client's training accuracy.

    It is that of the model the client is about to train, on its own training samples, in ``memory["floor_accuracy"]``:
    float64 ``[N]``, at least ``1 / C``, and 1 for whoever did not answer.

    Args:
        assign: the rule inside.
    """

    assign: Assign

    def __call__(self, groups: Groups, cohort: IntArray, door: Door, key: Key) -> tuple[Groups, Plan]:
        groups, plan = self.assign(groups, cohort, door, key)
        reply = door.run(Evaluate("train", loss=False), plan.ids, groups.models, plan.row, key=key.of("accuracy"))
        accuracy = torch.ones(len(groups.member), dtype=torch.float64)
        share = torch.from_numpy(reply.fields["correct"][:, 0] / reply.fields["size"])
        accuracy[torch.from_numpy(reply.ids)] = share.clamp(1 / max(1, door.classes), 1.0)
        return groups.remember(floor_accuracy=accuracy), plan
