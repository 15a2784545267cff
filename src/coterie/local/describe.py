"""What a client reports of its own training data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coterie.core import Describe, FloatArray, IntArray, Key, one_library_thread
from coterie.core.arrays import rows_of_each
from coterie.data.population import Population
from coterie.local.statistics import LatentMoments, centres, centres_of, leading, subspaces

Draw = Callable[[float, int, np.random.Generator], IntArray]


def describe(
    work: Describe,
    population: Population,
    ids: IntArray,
    key: Key,
    module: nn.Module,
    models: Tensor,
    which: IntArray,
) -> FloatArray | NDArray[np.float32]:
    """The statistic of each client, ``[n, ...]`` as ``work.fields`` says. Privacy noise comes from
    the seed and the client's number alone: it is drawn once."""
    if not work.labelled:
        rows = rows_of_each(which)
        found = []
        for client, row in zip(ids.tolist(), rows, strict=True):
            x = population.x[torch.from_numpy(population.train[client])]
            model = torch.empty(0)
            if work.needs_model:
                model = models[int(row[0])]
            found.append(describe_inputs(work, x, key, module, model))
        return np.stack(found)
    match work.statistic:
        case "histogram":
            return noisy_histograms(work, population, ids, key)
        case "imbalance":
            return np.abs(work.level - noisy_histograms(work, population, ids, key)).sum(axis=1)
        case "subspace":
            return subspaces(population, ids, work.vectors)
        case "centres":
            return centres(population, ids, work.vectors, key)
        case "latent":
            return LatentMoments(work, module, key).of_clients(population, ids, models, which)
        case "columns":
            assert population.table is not None, "inputs were made from no table"
            return population.table.reports([population.train[i] for i in ids])


def describe_inputs(
    work: Describe, x: Tensor, key: Key, module: nn.Module, model: Tensor
) -> NDArray[np.float32]:
    """The statistic of samples without labels: ``centres``, ``latent`` without classes, or
    ``subspace`` with one class, that of all samples."""
    # Of the key only the seed counts: a client is placed alike in whatever round it is asked.
    key = Key(key.seed)
    match work.statistic:
        case "latent":
            nothing = torch.zeros(len(x), dtype=torch.int64)
            return LatentMoments(work, module, key).of(model, x, nothing).astype(np.float32)
        case "subspace":
            with one_library_thread():
                return leading(x.flatten(1).numpy(), work.vectors).astype(np.float32)
        case "centres":
            return centres_of(x.flatten(1).numpy(), work.vectors, key)
    raise AssertionError(f"{work.statistic} needs more than inputs")


def noisy_histograms(work: Describe, population: Population, ids: IntArray, key: Key) -> FloatArray:
    """Label histograms ``[n, c]`` as they leave the clients."""
    counts = population.histograms_of(ids).astype(np.float64)
    match work.privacy:
        case "none":
            return counts
        case "discrete_laplace":
            # Below 0 there are no counts. What is done to a private value costs no privacy.
            return np.maximum(counts + _each(_laplace, work, counts.shape[1], ids, key), 0)
        case "randomised_response":
            answers = _each(_responses, work, counts.shape[1], ids, key).astype(np.int64)
            return np.eye(counts.shape[1])[answers[np.arange(len(ids)), counts.argmax(axis=1)]]


def reported_sizes(work: Describe, sizes: IntArray) -> FloatArray:
    """The sample counts that go with a statistic; a private one goes with 1, which says
    nothing."""
    if work.privacy == "none":
        return sizes.astype(np.float64)
    return np.ones(len(sizes))


def _each(draw: Draw, work: Describe, classes: int, ids: IntArray, key: Key) -> FloatArray:
    """One row of noise per client. Mechanism and budget are part of the stream's name, so that two
    budgets do not share noise, which would cancel."""
    stream = Key(key.seed).of(f"privacy/{work.privacy}/{work.epsilon!r}")
    rows = [draw(work.epsilon, classes, stream.client(i).generator()) for i in ids.tolist()]
    return np.array(rows, np.float64).reshape(len(ids), classes)


def _laplace(epsilon: float, classes: int, rng: np.random.Generator) -> IntArray:
    """Discrete Laplace noise, ``P(z) ~ exp(-epsilon |z|)``, as the difference of two geometric
    draws."""
    # 1 - exp(-epsilon), which for a small budget would lose its digits if written so.
    p = -np.expm1(-epsilon)
    return rng.geometric(p, classes) - rng.geometric(p, classes)


def _responses(epsilon: float, classes: int, rng: np.random.Generator) -> IntArray:
    """What the client answers for each class that may be its dominant one: the truth with
    probability ``e^epsilon / (e^epsilon + c - 1)``, else any other class.

    The table covers all classes, so that a client whose data change back answers as before.
    """
    if classes == 1:
        return np.zeros(1, np.int64)
    lie = rng.random(classes) >= 1 / (1 + (classes - 1) * np.exp(-epsilon))
    return (np.arange(classes) + lie * rng.integers(1, classes, classes)) % classes
