"""Training samples that are not trained on: to calibrate probabilities, or to choose settings by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data import Population
from coterie.data.tabular.inputs import TableInputs


def held_out_samples(train: Sequence[IntArray], share: float, key: Key) -> tuple[IntArray, ...]:
    """A random share of each client's training samples, rounded down so that one is left; the same
    whenever it is asked for.

    Example:
        >>> import numpy as np
        >>> [len(held) for held in held_out_samples([np.arange(10), np.arange(1)], 0.3, Key(0))]
        [3, 0]
    """
    # A stream of its own, so that neither batches nor the partition change with it.
    stream = key.of("hold_out")
    found = []
    for client, samples in enumerate(train):
        shuffled = stream.client(client).generator().permutation(samples)
        found.append(shuffled[: int(share * len(samples))])
    return tuple(found)


def without_held_out(population: Population, share: float | None, key: Key) -> Population:
    """The population without the training samples that ``train.hold_out`` keeps from training."""
    if share is None:
        return population
    held = held_out_samples(population.train, share, key)
    # A set and no sort: the order of training samples is that of their batches.
    left = []
    for samples, kept_back in zip(population.train, held, strict=True):
        away = set(kept_back.tolist())
        is_left = [sample not in away for sample in samples.tolist()]
        left.append(samples[is_left])
    return replace(population, train=tuple(left))


def on_validation(population: Population, share: float | None, key: Key) -> Population:
    """The population scored on a share of its training samples, as ``evaluate.validation`` asks.

    Settings that are chosen by these scores are not fitted to the test samples. A client with a
    single sample keeps it for training. Of a series the share is the last one, and what shares rows
    with it is not trained on.
    """
    if share is None:
        return population
    # A stream of its own, so that neither batches nor the partition change with it.
    stream = key.of("held_out")
    train = []
    test = []
    for client, samples in enumerate(population.train):
        if population.table is not None and population.table.raw.past is not None:
            earlier, later = _split_by_time(samples, population.table, share)
            train.append(earlier)
            test.append(later)
            continue
        # Also one for each client, so that it loses the same samples in every population.
        shuffled = stream.client(client).generator().permutation(samples)
        cut = 0
        if len(samples) > 1:
            cut = min(len(samples) - 1, max(1, round(share * len(samples))))
        train.append(np.sort(shuffled[cut:]))
        test.append(np.sort(shuffled[:cut]))
    return population.with_parts(tuple(train), tuple(test))


def _split_by_time(
    samples: IntArray, table: TableInputs, share: float
) -> tuple[IntArray, IntArray]:
    """The training samples of one client's series, and the last ones, which validate: no row belongs
    to both."""
    window = table.raw.origin.window
    assert window is not None
    ordered = samples[np.argsort(table.first[samples], kind="stable")]
    first = table.first[ordered]
    reach = window.past + window.horizon - 1  # from the first row of an input to its target
    later = max(1, round(share * len(ordered)))
    begin = first[-later] if later <= len(ordered) else 0
    is_earlier = first + reach < begin
    # A series that is too short for both is trained on.
    if not is_earlier.any():
        return samples, samples[:0]
    return np.sort(ordered[is_earlier]), np.sort(ordered[-later:])
