"""Faults of the reference code, kept apart from the methods, to test what they explain."""

from __future__ import annotations

import numpy as np

from coterie.similarity import Matrix
from coterie.types import Groups, Updates


def first_client(groups: Groups, updates: Updates) -> Matrix:
    """Only the first participant of a group counts: the 'avg' strategy of FlexCFL's code since August 2021 (C1).

    A weighing rule, for instance ``dataclasses.replace(ifca(3), weigh=first_client)``.

    Example:
        >>> import torch
        >>> groups = Groups(torch.zeros(2, 1), np.zeros(3, np.int64))
        >>> updates = Updates(np.arange(3), np.array([0, 1, 0]), torch.zeros(3, 1), np.ones(3), np.zeros(3))
        >>> first_client(groups, updates).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    weights = np.zeros((groups.k, len(updates)))
    rows, first = np.unique(updates.row, return_index=True)
    weights[rows, first] = 1.0
    return weights
