"""What samples add to the sums of a task, and the sums of each client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.task import Added, Binned
from coterie.local.scored_rows import ClientSamples


@dataclass(frozen=True, slots=True)
class Places:
    """What samples add to a histogram, on the CPU; see ``coterie.core.task.Binned``."""

    place: IntArray
    weight: FloatArray
    bins: int


PerSample = FloatArray | Places


def on_cpu(added: Added) -> PerSample:
    """What samples add, in float64: the order of sums, and so their bits, is that of samples."""
    if not isinstance(added, Binned):
        return added.cpu().double().numpy()
    weight = added.weight
    if weight is None:
        weight = torch.ones(len(added.place))
    return Places(added.place.cpu().numpy(), weight.cpu().double().numpy(), added.bins)


def concatenated(parts: list[PerSample]) -> PerSample:
    """Parts of the samples one after another."""
    first = parts[0]
    if isinstance(first, Places):
        places = [part for part in parts if isinstance(part, Places)]
        place = np.concatenate([part.place for part in places])
        weight = np.concatenate([part.weight for part in places])
        return Places(place, weight, first.bins)
    return np.concatenate([part for part in parts if not isinstance(part, Places)])


def summed(added: PerSample, rows: ClientSamples) -> FloatArray:
    """The sum of each client, ``[n, *shape]``."""
    if not isinstance(added, Places):
        if rows.spread is not None:
            added = added[rows.spread]
        return _sums(added, rows.bounds)
    place = added.place
    weight = added.weight
    if rows.spread is not None:
        place = place[rows.spread]
        weight = weight[rows.spread]
    clients = len(rows.bounds) - 1
    owner = np.repeat(np.arange(clients), np.diff(rows.bounds))
    # Cell by cell in the order of samples, so a client's histogram has the same bits whichever
    # clients are counted beside it.
    cells = np.bincount(owner * added.bins + place, weight, clients * added.bins)
    return cells.astype(np.float64).reshape(clients, added.bins)


def places_of_samples(bounds: IntArray, clients: IntArray) -> IntArray:
    """Where the samples of some clients stand among those of all.

    Args:
        bounds: int64 ``[n + 1]``, where each client's samples begin and end.
        clients: int64, which of the ``n``.

    Example:
        >>> places_of_samples(np.array([0, 2, 3, 5]), np.array([0, 2])).tolist()
        [0, 1, 3, 4]
    """
    if len(clients) == 1:
        [client] = clients.tolist()
        return np.arange(bounds[client], bounds[client + 1])
    chosen = np.zeros(len(bounds) - 1, np.bool_)
    chosen[clients] = True
    return np.flatnonzero(np.repeat(chosen, np.diff(bounds)))


def _sums(values: FloatArray, bounds: IntArray) -> FloatArray:
    """Sums of ``values`` between consecutive bounds.

    `numpy.add.reduceat` adds each part by itself, so that a sum has the same bits whatever stands
    beside it. It cannot do empty parts, which are left out.
    """
    sums = np.zeros((len(bounds) - 1, *values.shape[1:]))
    some = np.diff(bounds) > 0
    if some.any():
        sums[some] = np.add.reduceat(values, bounds[:-1][some])
    return sums
