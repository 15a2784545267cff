"""Which model serves which client."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.groups import Groups


def served_by(groups: Groups) -> tuple[Tensor, IntArray]:
    """Who is served by which model: ``[k + 1, d]`` and int64 ``[N]``.

    The last row is the auxiliary global model, here the mean of the groups that have members, as in
    FlexCFL's code; it serves clients without a group.
    """
    which = np.where(groups.member < 0, groups.k, groups.member)
    return torch.cat([groups.models, groups.auxiliary(filled=True)[None]]), which


def model_for(groups: Groups, client: int) -> Tensor:
    """The flat vector that serves a client: its group's model, or the auxiliary one."""
    models, which = served_by(groups)
    return models[which[client]]
