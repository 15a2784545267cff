"""Groups that are merged, and groups that go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from coterie.core import NO_GROUP, Groups, IntArray


def merge_groups(groups: Groups, merged: IntArray, clients: IntArray) -> Groups:
    """Groups that become one: its model is their mean, weighted by how many clients each has.

    ``w = sum_j n_j w_j / sum_j n_j``. Rows of the server optimiser are those of the first of them.

    Args:
        merged: int64 ``[k]`` in ``0..m-1``, the new group of each, every number in use.
        clients: int64 ``[k]``, ``n_j``. Groups of which none has a client count alike.

    Example:
        >>> groups = Groups(torch.tensor([[0.0], [4.0], [9.0]]), np.array([0, 1, 2, -1]))
        >>> merged = merge_groups(groups, np.array([0, 0, 1]), np.array([3, 1, 1]))
        >>> merged.models.ravel().tolist(), merged.member.tolist()
        ([1.0, 9.0], [0, 0, 1, -1])
    """
    _, first = np.unique(merged, return_index=True)
    weight = np.zeros((len(first), groups.k))
    weight[merged, np.arange(groups.k)] = clients
    without = weight.sum(axis=1) == 0
    weight[merged, np.arange(groups.k)] += without[merged]
    weight /= weight.sum(axis=1, keepdims=True)
    # In float64, so that the mean of equal values, as of layers that stay with clients, is that value.
    models = torch.from_numpy(weight) @ groups.models.to(torch.float64)
    member = np.where(groups.member >= 0, merged[groups.member], NO_GROUP)
    return replace(groups.select(first), models=models.to(torch.float32), member=member)


def keep_groups(groups: Groups, kept: IntArray) -> Groups:
    """Some of the groups, renumbered; clients of the others no longer have one.

    Args:
        kept: int64 ``[m]``, the numbers of those that stay, ascending.

    Example:
        >>> groups = Groups(torch.tensor([[0.0], [4.0], [9.0]]), np.array([0, 1, 2, -1]))
        >>> keep_groups(groups, np.array([0, 2])).member.tolist()
        [0, -1, 1, -1]
    """
    number = np.full(groups.k, NO_GROUP)
    number[kept] = np.arange(len(kept))
    member = np.where(groups.member >= 0, number[groups.member], NO_GROUP)
    return replace(groups.select(kept), member=member)
