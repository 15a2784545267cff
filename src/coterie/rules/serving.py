"""What serves a client: the seventh slot of a method."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from coterie.core.groups import Groups
from coterie.core.served import Served

Serve = Callable[[Groups], Served]


def by_group(groups: Groups) -> Served:
    """Each client is served by the model of its group, one without a group by the auxiliary model.

    The auxiliary model is the mean of the groups that have members, as in FlexCFL's code. It is the
    last row of the models, ``[k + 1, d]``.

    Example:
        >>> groups = Groups(torch.tensor([[1.0], [3.0]]), np.array([1, -1, 0]))
        >>> [by_group(groups).vector(client).item() for client in range(3)]
        [3.0, 2.0, 1.0]
    """
    row = groups.member
    if groups.assigned < len(row):
        row = np.where(groups.has_group, row, groups.k)
    models = torch.cat([groups.models, groups.auxiliary(filled=True)[None]])
    return Served(models, row)


def model_for(groups: Groups, client: int) -> Tensor:
    """The flat vector ``[d]`` that serves a client of hard groups."""
    return by_group(groups).vector(client)
