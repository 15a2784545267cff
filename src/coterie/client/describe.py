"""What a client tells of its own training data."""

from __future__ import annotations

import numpy as np

from coterie.data.population import Population
from coterie.keys import Key
from coterie.types import Describe, FloatArray, IntArray


def describe(work: Describe, population: Population, ids: IntArray, key: Key) -> FloatArray:
    """The statistic of each client, ``[n, ...]`` as ``work.fields`` says.

    Args:
        work: which statistic, and how it is made private.
        population: who holds what.
        ids: int64 ``[n]``, the clients.
        key: of the request; a client's privacy noise comes from the seed and its number alone: it is drawn once.
    """
    match work.statistic:
        case "histogram":
            return population.histograms()[ids].astype(np.float64)
        case "imbalance":
            return np.abs(work.level - population.histograms()[ids]).sum(axis=1)
        case "subspace":
            raise NotImplementedError
