"""The samples that clients are scored on, kept from round to round, and what they add to the sums of a
task.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.task import Added, Binned
from coterie.data.lazy import KEEP
from coterie.data.population import Population, Split

_MOST_SETS = 16  # sets of clients of which it is kept where their samples are


@dataclass(frozen=True)
class ClientSamples:
    """The samples of some clients, in client order.

    Args:
        x: inputs ``[S, ...]``, at least those of these clients.
        y: labels ``[S]``.
        index: int64 ``[m]``, the rows of ``x`` and ``y`` to score, each once.
        bounds: int64 ``[n + 1]``, where each client's samples begin and end.
        spread: int64, which of the ``m`` stands at each place within the bounds, where clients
            share samples; ``None``: there are as many places, in this order.
        gathered: whether ``x`` and ``y`` are these samples and no others, in the order of ``index``.
    """

    x: Tensor
    y: Tensor
    index: IntArray
    bounds: IntArray
    spread: IntArray | None
    gathered: bool = False

    def part(self, begin: int, end: int) -> tuple[Tensor, Tensor]:
        """Some of the samples to score, from ``begin`` to ``end`` in the order of ``index``."""
        if self.gathered:
            return self.x[begin:end], self.y[begin:end]
        rows = torch.from_numpy(self.index[begin:end])
        return self.x.index_select(0, rows), self.y.index_select(0, rows)


@dataclass(frozen=True)
class Copied:
    """Pooled samples copied side by side; ``place [S]`` is where each is among them, -1 for none."""

    x: Tensor
    y: Tensor
    place: IntArray


class ScoredRows:
    """Finds the samples of any set of clients, and keeps what a later round will need again.

    Test samples are scored every round by nearly the same sets of clients, the members of a group,
    so they are gathered once. Training samples are scored when a method compares losses, each time
    on another cohort. With ``copies``, test samples are copied side by side: a dense network
    computes faster than memory is read at random; a convolution does not.
    """

    def __init__(self, population: Population, device: torch.device, copies: bool) -> None:
        self.population = population
        self.device = device
        self.copies = copies
        self.kept: dict[Split, OrderedDict[bytes, ClientSamples]] = {
            "train": OrderedDict(),
            "test": OrderedDict(),
        }
        self._numbers: OrderedDict[bytes, ClientSamples] = OrderedDict()
        self._copied: Copied | None = None

    def set_population(self, population: Population, *, samples_changed: bool) -> None:
        """Take over who holds what. Without ``samples_changed``, samples only changed hands, and
        copies of them are still good."""
        self.population = population
        for kept in self.kept.values():
            kept.clear()
        self._numbers.clear()
        if samples_changed:
            self._copied = None

    def in_place(self, ids: IntArray, split: Split, everyone: IntArray) -> ClientSamples:
        """The samples of these clients in one large array, for code that reads rows by their
        numbers.

        Test samples are copied side by side, those of ``everyone`` who is scored in this round at
        once. If they change hands later, their places stay.
        """
        kept = self.kept[split]
        name = ids.tobytes()
        if split == "test" and name in kept:
            kept.move_to_end(name)
            return kept[name]
        if split == "train" or not self.copies or self.population.on_disk:
            return self.numbers(ids, split)
        held, bounds, spread = self._held(ids, split)
        copied = self._copied
        if copied is None or (copied.place[held] < 0).any():
            # Some samples were never scored before. What is kept points into the old copy.
            kept.clear()
            copied = self._copy(everyone, split)
            self._copied = copied
        kept[name] = ClientSamples(copied.x, copied.y, copied.place[held], bounds, spread)
        if len(kept) > _MOST_SETS:
            kept.popitem(last=False)
        return kept[name]

    def numbers(self, ids: IntArray, split: Split) -> ClientSamples:
        """Where the samples of these clients are among all of them; nothing is copied."""
        name = ids.tobytes()
        if split == "test" and name in self._numbers:
            self._numbers.move_to_end(name)
            return self._numbers[name]
        held, bounds, spread = self._held(ids, split)
        rows = ClientSamples(self.population.x, self.population.y, held, bounds, spread)
        if split == "test":
            self._numbers[name] = rows
            if len(self._numbers) > _MOST_SETS:
                self._numbers.popitem(last=False)
        return rows

    def gathered(self, ids: IntArray, split: Split) -> ClientSamples:
        """The samples of these clients in a separate array on the device.

        All test samples may be kept, and a fifth more, since memberships change little from round
        to round; of lazy samples only a quarter of ``KEEP`` bytes; of training samples only the
        last set.
        """
        kept = self.kept[split]
        name = ids.tobytes()
        if name in kept:
            kept.move_to_end(name)
            return kept[name]
        held, bounds, spread = self._held(ids, split)
        # Gathered on the CPU and moved as one block: the pooled samples may not fit the device.
        index = torch.from_numpy(held)
        x = self.population.x.index_select(0, index).to(self.device)
        y = self.population.y.index_select(0, index).to(self.device)
        rows = ClientSamples(x, y, np.arange(len(held)), bounds, spread, gathered=True)
        kept[name] = rows
        most = 0.0
        if split == "test":
            most = 1.2 * self.population.sizes("test").sum()
        if self.population.lazy:
            most = min(most, KEEP // 4 // self._sample_bytes())
        while len(kept) > 1 and sum(len(r.y) for r in kept.values()) > most:
            kept.popitem(last=False)
        return rows

    def _held(self, ids: IntArray, split: Split) -> tuple[IntArray, IntArray, IntArray | None]:
        """The samples of these clients, each once; the bounds; and ``spread`` (`ClientSamples`)."""
        parts = [self.population.parts(split)[i] for i in ids]
        bounds = np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int64)
        held = np.concatenate([np.empty(0, np.int64), *parts])
        once, places = np.unique(held, return_inverse=True)
        # Clients share samples where, say, each is tested on all samples that have its labels. To
        # score a shared sample once saves more than the detour costs.
        if len(once) < len(held):
            return once, bounds, places
        return held, bounds, None

    def _copy(self, ids: IntArray, split: Split) -> Copied:
        """The samples of these clients side by side, and those copied before while they are few
        (``KEEP`` bytes): they may be scored again soon."""
        held = np.concatenate([self.population.parts(split)[i] for i in ids])
        before = np.empty(0, np.int64)
        if self._copied is not None:
            before = np.flatnonzero(self._copied.place >= 0)
        samples = held
        if len(held) + len(before) <= max(2 * len(held), KEEP // self._sample_bytes()):
            samples = np.concatenate([held, before])
        # Each once, in this order: a client's samples stay neighbours, which is what it is for.
        samples = samples[np.sort(np.unique(samples, return_index=True)[1])]
        place = np.full(len(self.population.y), -1)
        place[samples] = np.arange(len(samples))
        index = torch.from_numpy(samples)
        x = self.population.x.index_select(0, index)
        return Copied(x, self.population.y.index_select(0, index), place)

    def _sample_bytes(self) -> int:
        return 4 * math.prod(self.population.shape)


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
    # clients are counted with it.
    cells = np.bincount(owner * added.bins + place, weight, clients * added.bins)
    return cells.astype(np.float64).reshape(clients, added.bins)


def places_of_samples(bounds: IntArray, clients: IntArray) -> IntArray:
    """Where the samples of some clients stand among those of all.

    Args:
        bounds: int64 ``[n + 1]``, where each client's samples begin and end.

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
    """Sums of ``values`` between consecutive bounds. `numpy.add.reduceat` adds each part by itself,
    so that a sum has the same bits whatever else is added up. It cannot do empty parts."""
    sums = np.zeros((len(bounds) - 1, *values.shape[1:]))
    some = np.diff(bounds) > 0
    if some.any():
        sums[some] = np.add.reduceat(values, bounds[:-1][some])
    return sums
