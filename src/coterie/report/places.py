"""Where a client stands on the map of a run: two dimensions of what its method grouped it by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.core.work import Evaluate, Train
from coterie.data import Population
from coterie.engines import make_clients
from coterie.math.similarity import cosine
from coterie.models import MODELS, build
from coterie.objectives import plain

DENSE = ("mclr", "mlp")  # networks whose steps take microseconds
# of an update drawn again; clients times parameters
STEPS = 50
MOST = 2e8
WORK = 2e10  # samples times parameters times models that are evaluated for a page
UPDATES = (
    "how its first update, drawn again for this page, points along those of the groups (cosines)"
)
NEAR = "its distances to the other clients, as the method measured them"
SIGNATURE = "the signature by which the method grouped it"
LATEST = "the direction of its latest update"
LOSSES = (
    "how well the model of each group fits its training samples (losses, relative to their mean)"
)
LABELS = (
    "the shares of the labels of its training samples, which are not what the method grouped it by"
)
Placed = tuple[FloatArray, str]


def scaled(proximity: FloatArray) -> FloatArray:
    """Classical multidimensional scaling of distances ``[n, n]`` to ``[n, 2]``.

    Example:
        >>> np.abs(scaled(np.array([[0.0, 3.0], [3.0, 0.0]]))[:, 0]).round(6).tolist()
        [1.5, 1.5]
    """
    square = np.asarray(proximity, np.float64) ** 2
    centred = square - square.mean(axis=0) - square.mean(axis=1, keepdims=True) + square.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    flat = vectors[:, ::-1][:, :2] * np.sqrt(np.maximum(values[::-1][:2], 0))
    return np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))


def spread(rows: FloatArray) -> FloatArray:
    """The two axes of greatest spread of rows ``[n, d]``, ``[n, 2]``; a row of zeros is one that is
    not known: NaN."""
    known = np.isfinite(rows).all(axis=1) & (rows != 0).any(axis=1)
    found = np.full((len(rows), 2), np.nan)
    if known.sum() > 1:
        centred = rows[known] - rows[known].mean(axis=0)
        left, size, _ = np.linalg.svd(centred, full_matrices=False)
        flat = left[:, :2] * size[:2]
        found[known] = np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))
    return found


def remembered(memory: Mapping[str, Tensor], clients: int) -> Placed | None:
    """Where clients stand by what the method remembers of each of them; ``None`` if that is
    nothing."""
    if {"proximity", "leaves"} <= set(memory) and len(memory["leaves"]) == len(memory["proximity"]):
        found = np.full((clients, 2), np.nan)
        leaves = memory["leaves"].numpy()
        near = memory["proximity"].numpy()
        if len(leaves) > 1 and leaves.max() < clients and np.isfinite(near).all():
            found[leaves] = scaled(near)
            return found, NEAR
    for name, said in (("signature", SIGNATURE), ("latest", LATEST)):
        rows = memory.get(name)
        if (
            rows is not None
            and len(rows) == clients
            and rows.ndim > 1
            and rows.shape[0] * rows[0].numel() <= MOST
        ):
            flat = rows.flatten(1).numpy().astype(np.float64)
            length = np.linalg.norm(flat, axis=1, keepdims=True)
            unit = (
                np.divide(flat, length, out=np.zeros_like(flat), where=length > 0)
                if name == "latest"
                else flat
            )
            return spread(unit), said
    return None


def along(
    model: str, solver: Solver, population: Population, memory: Mapping[str, Tensor], seed: int
) -> Placed | None:
    """Where clients stand by the cosines of an update to the groups' directions, as FedGroup and
    FlexCFL compare them.

    Every client trains 50 steps from the run's first model, as in the cold start; with dense
    networks alone, which takes about a second for 1,000 clients. ``None`` for others, and where no
    directions are remembered.
    """
    direction = memory.get("direction")
    start = memory.get("start")
    if (
        direction is None
        or start is None
        or model not in DENSE
        or len(start) * population.clients > MOST
    ):
        return None
    module = build(model, population.shape, population.classes, Key(seed).of("model"))
    if sum(p.numel() for p in module.parameters()) != len(start):
        return None
    ids = np.flatnonzero(population.sizes("train") > 0)
    with make_clients("serial", population, module, solver) as door:
        first = np.zeros(len(ids), np.int64)
        reply = door.run(
            Train(plain, steps=STEPS), ids, start[None], first, key=Key(seed).at(0).of("map")
        )
    found = np.full((population.clients, len(direction)), np.nan)
    found[reply.ids] = cosine(torch.from_numpy(reply.fields["delta"]), direction)
    return spread(found), UPDATES


def by_losses(
    model: str, options: Mapping[str, Any], population: Population, models: Tensor, seed: int
) -> Placed | None:
    """Where clients stand by the training losses of all groups' models on their data, as IFCA
    compares them.

    ``None`` for a network of the user's own, and where that would take long.
    """
    size = population.sizes("train")
    if model not in MODELS or models.numel() * float(size.sum()) > WORK:
        return None
    module = build(model, population.shape, population.classes, Key(seed).of("model"), **options)
    if sum(p.numel() for p in module.parameters()) != models.shape[1]:
        return None
    ids = np.flatnonzero(size > 0)
    which = np.tile(np.arange(len(models)), (len(ids), 1))
    with make_clients("serial", population, module, Solver()) as door:
        reply = door.measure(Evaluate("train"), ids, models, which, key=Key(seed).at(0).of("map"))
    loss = reply.fields["loss"].astype(np.float64)
    found = np.full((population.clients, len(models)), np.nan)
    found[reply.ids] = loss / np.maximum(loss.mean(axis=1, keepdims=True), 1e-12)
    return spread(found), LOSSES


def by_labels(histograms: IntArray) -> Placed:
    """Where clients stand by the shares of their labels."""
    share = histograms / np.maximum(histograms.sum(axis=1, keepdims=True), 1)
    return spread(share), LABELS
