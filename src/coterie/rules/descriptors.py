"""Descriptors of clients' data by a model, which FLUX and Feroma compare."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.core import Describe, IntArray, Reply
from coterie.math.distances import l2
from coterie.math.similarity import Matrix
from coterie.rules.signatures import SignatureMemory


def scaled(rows: Tensor, reference: Tensor) -> Tensor:
    """The blocks ``[n, b, l]`` as vectors, float64 ``[n, b l]``, each block scaled to what it spans
    in ``reference [s, B, l]``.

    ``(v - min) / (max - min)`` with one minimum and one maximum for each kind of moment, over all
    clients and directions of the reference.
    """
    blocks = reference[:, : rows.shape[1]].to(torch.float64)
    low = blocks.amin(dim=(0, 2))[:, None]
    span = blocks.amax(dim=(0, 2))[:, None] - low
    # A block that is the same for all says nothing, whatever it is divided by.
    span = torch.where(span > 0, span, 1.0)
    return ((rows.to(torch.float64) - low) / span).flatten(1)


def centroid_distances(memory: SignatureMemory, k: int, rows: Tensor) -> Matrix:
    """How far descriptors are from the mean descriptor of each group, float64 ``[n, k]``, infinite
    for a group without one. Only the blocks that ``rows`` have are compared."""
    known = np.flatnonzero(memory.cluster >= 0)
    stored = memory.signature[torch.from_numpy(known)]
    ours = scaled(stored[:, : rows.shape[1]], stored)
    theirs = scaled(rows, stored)
    distance = np.full((len(rows), k), np.inf)
    cluster: IntArray = memory.cluster[known]
    for group in np.unique(cluster):
        centroid = ours[torch.from_numpy(cluster == group)].mean(dim=0)
        distance[:, group] = l2(theirs, centroid[None])[:, 0]
    return distance


def ask_descriptors(
    model: Tensor, ids: IntArray, round: Round, dimensions: int | None, draws: int = 0
) -> Reply:
    """The descriptors of some clients by a model, ``latent [n, 2 + 2c, l]``; of ``draws`` random
    halves of a client's samples instead of all, if not 0. ``dimensions`` defaults to the classes
    ``c``."""
    classes = round.clients.classes
    work = Describe("latent", classes, vectors=dimensions or classes, draws=draws)
    return round.clients.run(work, ids, model, key=round.key)
