"""The figures of single clients as a run has written them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.core.arrays import BoolArray, FloatArray, IntArray
from coterie.headline import ACCURACY, Headline

if TYPE_CHECKING:
    # Commands that read runs do not wait for torch, which the data need.
    from coterie.measures.seeds import Split

DIGITS = 3  # of the figures of clients, and of what they gain
FEW = 10  # a figure that rests on fewer samples of a class is marked


@dataclass(frozen=True, slots=True)
class ScoredClients:
    """What ``clients.csv`` of a run says.

    Args:
        names: the clients.
        member: int64 ``[N]``, their groups at the end, -1 for none.
        samples: int64 ``[N]``, their test samples.
        columns: all other columns by name, float64 ``[N]``, NaN for an empty cell.
        split: the samples that the run trains on and tests on; ``None`` where they are not known.
    """

    names: Sequence[str]
    member: IntArray
    samples: IntArray
    columns: Mapping[str, FloatArray]
    split: Split | None = None

    def value(self, headline: Headline) -> FloatArray:
        """A metric of each client, ``[N]``; NaN without test samples, and where it is undefined."""
        if headline.name == ACCURACY.name and "correct" in self.columns:
            values = self.columns["correct"] / np.maximum(self.samples, 1)
        else:
            values = self.columns[headline.name]
        return np.where(self.samples > 0, values, np.nan)

    def interval(self, headline: Headline) -> tuple[FloatArray, FloatArray]:
        """The ends of its 95 % interval, ``[N]`` each; NaN where it has none."""
        none = np.full(len(self.names), np.nan)
        low = self.columns.get(f"{headline.name}_low", none)
        return low, self.columns.get(f"{headline.name}_high", none)

    @property
    def client_id(self) -> tuple[tuple[str, ...], bytes]:
        """What is the same for runs with the same clients: their names and which samples they hold."""
        return tuple(self.names), self.split.division if self.split is not None else b""

    @property
    def positives(self) -> FloatArray | None:
        """The positive samples of each client, of a binary task."""
        return self.columns.get("positives")

    @property
    def few(self) -> BoolArray:
        """Whether the figures of a client rest on fewer than ten samples of a class, or in all where
        classes are not counted."""
        few: BoolArray = self.columns.get("smallest_class", self.samples) < FEW
        return few

    def worst(self, headline: Headline) -> int | None:
        """The client that is served worst, ``None`` where no client has a value: the one whose
        interval has the worst of the better ends. By values alone it would mostly be a client with
        few samples, whose value is chance."""
        values = self.value(headline)
        low, high = self.interval(headline)
        better_end = high if headline.better == "higher" else low
        at_best = np.where(np.isfinite(better_end), better_end, values)
        known = np.flatnonzero(np.isfinite(values))
        if not len(known):
            return None
        gains = [headline.gain(value, over=0.0) for value in at_best[known]]
        return int(known[np.argmin(gains)])

    def references(self, headline: Headline) -> dict[str, FloatArray]:
        """The metric of predictions without a model, by what makes them, ``[N]`` each."""
        begin = f"{headline.name}_"
        others = ("low", "high", "training")
        return {
            name.removeprefix(begin): values
            for name, values in self.columns.items()
            if name.startswith(begin) and not name.removeprefix(begin).startswith(others)
        }


def of_same_clients(tables: Sequence[ScoredClients]) -> list[ScoredClients]:
    """The tables with the clients of the first: all of them, unless a seed has drawn other clients."""
    return [table for table in tables if table.client_id == tables[0].client_id]


def clients_mean(values: FloatArray, samples: FloatArray | IntArray) -> float:
    """The clients' mean: of their values, ``[seeds, N]``, weighted by their test samples; NaN where no
    client has a value."""
    known = np.isfinite(values) & (samples > 0)
    weights = np.where(known, samples, 0.0)
    if not known.any():
        return float("nan")
    return float((weights * np.where(known, values, 0.0)).sum() / weights.sum())


def reference_means(tables: Sequence[ScoredClients], headline: Headline) -> dict[str, float]:
    """The clients' mean of predictions without a model, by what makes them; without those that no
    client has."""
    known = [(table.references(headline), table.samples) for table in tables]
    means = {
        name: clients_mean(
            np.stack([found[name] for found, _ in known if name in found]),
            np.stack([samples for found, samples in known if name in found]),
        )
        for name in known[0][0]
    }
    return {name: value for name, value in means.items() if np.isfinite(value)}


def mean_over_seeds(values: Sequence[FloatArray] | FloatArray) -> FloatArray:
    """The mean of each client over the seeds in which it has a value, ``[N]``; NaN where there is none."""
    stacked = np.asarray(values)
    known = np.isfinite(stacked)
    count = known.sum(axis=0)
    total = np.where(known, stacked, 0.0).sum(axis=0)
    found: FloatArray = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    return found
