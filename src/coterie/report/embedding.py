"""Where the clients stand on the map of a run: two dimensions of what its method grouped them
by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor, nn

from coterie.algorithms.cfl import SplitMemory
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.groups import Groups, Memory
from coterie.core.keys import Key
from coterie.core.training import Steps
from coterie.core.work import Score, Train
from coterie.data import Population
from coterie.engines import make_clients
from coterie.experiment import Experiment
from coterie.math.similarity import cosine
from coterie.models import MODELS
from coterie.rules.cold_start import DirectionMemory
from coterie.rules.signatures import SignatureMemory
from coterie.runs.fitting import Fitted, fit_together, make_method

DENSE = ("mclr", "mlp")  # networks whose steps take microseconds
PRETRAIN_STEPS = 50  # of an update that is made again for the map
# Limits of what a page computes again, so that it takes about a second:
MOST_VALUES = 2e8  # clients times parameters
MOST_EVALUATED = 2e10  # samples times parameters times models

DISTANCES = "its distances to the other clients, as the method measured them"
SIGNATURES = "the signature by which the method grouped it"
LATEST_UPDATES = "the direction of its latest update"
DIRECTIONS = (
    "the cosines between its first update, made again for this page, and those of the groups"
)
LOSSES = "the loss of each group's model on its training samples, relative to their mean"
LABELS = "the shares of its training labels, which are not what the method grouped it by"


@dataclass(frozen=True, slots=True)
class Embedding:
    """The clients' coordinates ``[N, 2]`` on the map; NaN where they are not known."""

    points: FloatArray
    placed_by: str


@dataclass(frozen=True)
class Setup:
    """What of a run is needed to ask its clients again."""

    config: Experiment
    population: Population

    @cached_property
    def fitted(self) -> Fitted:
        """Its task and its network, as the run made them."""
        return fit_together(self.config, make_method(self.config), self.population)

    def network(self, parameters: int) -> nn.Module | None:
        """The network; ``None`` if it does not have the parameters that the run's models have."""
        module = self.fitted.network.module
        if sum(p.numel() for p in module.parameters()) == parameters:
            return module
        return None

    @property
    def key(self) -> Key:
        """The key of what is drawn for a map, apart from all keys of the run."""
        return Key(self.config.seed).at(0).of("map")


def multidimensional_scaling(distances: FloatArray) -> FloatArray:
    """Classical multidimensional scaling of distances ``[n, n]`` to points ``[n, 2]``.

    Example:
        >>> distances = np.array([[0.0, 3.0], [3.0, 0.0]])
        >>> np.abs(multidimensional_scaling(distances)[:, 0]).round(6).tolist()
        [1.5, 1.5]
    """
    square = np.asarray(distances, np.float64) ** 2
    centred = square - square.mean(axis=0) - square.mean(axis=1, keepdims=True) + square.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    # `eigh` sorts from the least; distances that are not Euclidean have negative values.
    largest = np.maximum(values[::-1][:2], 0)
    return _two_columns(vectors[:, ::-1][:, :2] * np.sqrt(largest))


def principal_axes(rows: FloatArray) -> FloatArray:
    """Rows ``[n, d]`` along their two axes of greatest spread, ``[n, 2]``; NaN for rows of zeros,
    clients of which nothing is known."""
    known = np.isfinite(rows).all(axis=1) & (rows != 0).any(axis=1)
    found = np.full((len(rows), 2), np.nan)
    if known.sum() > 1:
        centred = rows[known] - rows[known].mean(axis=0)
        left, size, _ = np.linalg.svd(centred, full_matrices=False)
        found[known] = _two_columns(left[:, :2] * size[:2])
    return found


def _two_columns(points: FloatArray) -> FloatArray:
    """Points with a second coordinate, of zeros where they span one dimension only."""
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1])))


def from_memory(memory: Memory, clients: int) -> Embedding | None:
    """By what the method remembers of each client; ``None`` if that is nothing."""
    signatures = memory.get(SignatureMemory)
    if signatures is not None:
        near = _from_distances(signatures, clients)
        if near is not None:
            return near
        rows = _flat_rows(signatures.signature, clients)
        if rows is not None:
            return Embedding(principal_axes(rows), SIGNATURES)
    splits = memory.get(SplitMemory)
    if splits is not None:
        rows = _flat_rows(splits.last_update, clients)
        if rows is not None:
            # Updates shrink in the course of training, so only their directions are comparable.
            length = np.linalg.norm(rows, axis=1, keepdims=True)
            unit = np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
            return Embedding(principal_axes(unit), LATEST_UPDATES)
    return None


def _flat_rows(values: Tensor, clients: int) -> FloatArray | None:
    """One row for each client, float64 ``[N, d]``; ``None`` where that is too much to draw."""
    if len(values) != clients or values.ndim < 2 or values.numel() > MOST_VALUES:
        return None
    return values.flatten(1).numpy().astype(np.float64)


def _from_distances(memory: SignatureMemory, clients: int) -> Embedding | None:
    leaves = memory.leaves
    near = memory.proximity
    if near is None or len(leaves) != len(near) or len(leaves) < 2:
        return None
    if leaves.max() >= clients or not np.isfinite(near).all():
        return None
    points = np.full((clients, 2), np.nan)
    points[leaves] = multidimensional_scaling(near)
    return Embedding(points, DISTANCES)


def from_directions(setup: Setup, groups: Groups) -> Embedding | None:
    """By the cosines of an update to the groups' directions, as FedGroup and FlexCFL compare them.

    Every client trains 50 steps from the run's first model, as in the cold start. This is done with
    dense networks only, where it takes about a second for 1,000 clients. ``None`` for others, and
    where no directions are remembered.
    """
    memory = groups.memory.get(DirectionMemory)
    start = groups.start
    if memory is None or start is None or setup.config.name("model") not in DENSE:
        return None
    direction = memory.direction
    population = setup.population
    if len(start) * population.clients > MOST_VALUES:
        return None
    module = setup.network(len(start))
    if module is None:
        return None
    ids = np.flatnonzero(population.sizes("train") > 0)
    work = Train(how=Steps(PRETRAIN_STEPS))
    # The serial engine starts no processes, which would take longer than the work.
    task = setup.fitted.task
    with make_clients(population, module, setup.config.solver, "serial", task=task) as clients:
        reply = clients.run(work, ids, start, key=setup.key)
    # Clients that did not answer stay NaN, and are left out of the map.
    similar = np.full((population.clients, len(direction)), np.nan)
    similar[reply.ids] = cosine(reply.delta, direction)
    return Embedding(principal_axes(similar), DIRECTIONS)


def from_losses(setup: Setup, models: Tensor) -> Embedding | None:
    """By the training losses of all groups' models on their data, as IFCA compares them. ``None``
    for a network of the user's own, and where that would take long."""
    population = setup.population
    size = population.sizes("train")
    is_known = setup.config.name("model") in MODELS
    if not is_known or models.numel() * float(size.sum()) > MOST_EVALUATED:
        return None
    module = setup.network(models.shape[1])
    if module is None:
        return None
    ids = np.flatnonzero(size > 0)
    with make_clients(population, module, engine="serial", task=setup.fitted.task) as clients:
        reply = clients.run(Score("train", sums=()), ids, models, key=setup.key, counts=False)
    loss = reply.loss.astype(np.float64)
    # Some clients' data are harder under every model: only the ratio between models tells groups.
    mean = np.maximum(loss.mean(axis=1, keepdims=True), 1e-12)
    relative = np.full((population.clients, len(models)), np.nan)
    relative[reply.ids] = loss / mean
    return Embedding(principal_axes(relative), LOSSES)


def from_labels(histograms: IntArray) -> Embedding:
    """By the shares of their labels."""
    total = np.maximum(histograms.sum(axis=1, keepdims=True), 1)
    return Embedding(principal_axes(histograms / total), LABELS)
