"""The groups that the clients' first updates show, before any method is tried.

The first step of the command ``coterie advise`` (`coterie.studies.advise.advice`).
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.clients.clients import Clients
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.core.training import Steps
from coterie.core.work import Train
from coterie.data import Population
from coterie.math.clustering import kmeans
from coterie.math.group_count import enough_samples, estimate_groups
from coterie.math.similarity import cosine, edc_embedding

STEPS = 50  # of local training from the same model
MAX_GROUPS = 8
MAX_NUMBERS = 2e8  # clients times parameters, in memory at once: 0.8 GB in float32
MIN_CLIENTS = 4  # fewer are taken for one group

# Groups are counted again on parts of the clients: a count that chance made does not come back.
PARTS = 5
PART_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The groups among the first updates of the clients.

    Args:
        groups: how many were found most often, in all clients and in parts of them.
        groups_in_parts: how many were found in each of some parts of the clients.
        member: int64 ``[N]``, the group of each client, ``-1`` for one without an update.
        margin: float64 ``[N]``, how much nearer a client is to its group's direction than to the
            next one, a difference of cosines. NaN for a client without an update, and for all
            clients if there is one group.
    """

    ids: IntArray
    groups: int
    groups_in_parts: tuple[int, ...]
    member: IntArray
    margin: FloatArray


def probe(clients: Clients, population: Population, start: Tensor, key: Key) -> ProbeResult:
    """Let clients train for 50 steps from the same model, and count the groups among the updates."""
    # A client without samples has no update.
    able = np.flatnonzero(population.sizes("train") > 0)
    # At least two clients to a group, however large the model is.
    most = max(2 * MAX_GROUPS, int(MAX_NUMBERS // len(start)))
    sampled = np.sort(key.of("asked").generator().permutation(able)[:most])
    # Steps, not epochs: a large client would move farther than a small one.
    work = Train(how=Steps(STEPS))
    reply = clients.run(work, sampled, start, key=key.of("probe"))
    delta = reply.delta
    # A zero update has no direction, so it says nothing about its client's group.
    has_direction = (delta != 0).any(dim=1)
    ids = reply.ids[has_direction.numpy()]
    delta = delta[has_direction]
    # Directions of tiny clients are mostly noise. They are placed, but not counted.
    counted = delta
    groups = 1
    if len(ids) >= MIN_CLIENTS:
        enough = enough_samples(reply.size[has_direction.numpy()])
        counted = delta[torch.from_numpy(enough)]
        groups = estimate_groups(counted, MAX_GROUPS, key.of("count"))
    in_parts: tuple[int, ...] = ()
    # With fewer, a part of the clients would be too small to count groups in.
    if len(ids) >= 2 * MIN_CLIENTS:
        in_parts = tuple(_count_in_part(counted, key.of("again").at(n)) for n in range(PARTS))
        # What all clients show counts once more, so it decides between equals.
        groups = statistics.mode((groups, *in_parts))
    member = np.full(population.clients, -1)
    margin = np.full(population.clients, np.nan)
    member[ids] = 0
    if groups > 1:
        member[ids], margin[ids] = _group_rows(delta, counted, groups, key.of("cluster"))
    return ProbeResult(ids, groups, in_parts, member, margin)


def _count_in_part(delta: Tensor, key: Key) -> int:
    """The number of groups in a random part of the updates."""
    n = len(delta)
    size = max(MIN_CLIENTS, int(PART_SHARE * n))
    part = np.sort(key.generator().permutation(n)[:size])
    return estimate_groups(delta[torch.from_numpy(part)], MAX_GROUPS, key.of("count"))


def _group_rows(
    delta: Tensor, counted: Tensor, groups: int, key: Key
) -> tuple[IntArray, FloatArray]:
    """The group of each row, the largest group first, and its margin: the cosine to the mean update
    of its group, less that to the next one. The updates that were counted give the groups."""
    labels = kmeans(edc_embedding(counted, groups), groups, key)
    # The numbers of k-means are arbitrary. Largest first, they are the same in each output.
    largest_first = np.argsort(-np.bincount(labels, minlength=groups), kind="stable")
    labels = np.argsort(largest_first)[labels]
    # Sums of many small numbers: float32 would lose digits.
    means = [
        counted[torch.from_numpy(labels == group)].to(torch.float64).mean(dim=0)
        for group in range(groups)
    ]
    near = cosine(delta, torch.stack(means).to(torch.float32))
    labels = near.argmax(axis=1)
    rows = np.arange(len(labels))
    to_group = near[rows, labels]
    # So that the maximum below is over the other groups.
    near[rows, labels] = -np.inf
    return labels, to_group - near.max(axis=1)
