"""What a population must fulfil, refused in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from coterie.core.arrays import IntArray
from coterie.data.lazy import Ranges
from coterie.errors import DataError

if TYPE_CHECKING:
    from coterie.data.population import Population


def check_population(population: Population) -> None:
    """Refuse a population whose arrays do not fit each other.

    Raises:
        DataError: if lengths differ, indices or labels leave their range, or no client has a
            training sample.
    """
    _check_lengths(population)
    _check_ranges(population)


def _check_lengths(population: Population) -> None:
    if not len(population.train) == len(population.test) == len(population.names):
        raise DataError(
            f"population: {len(population.train)} train parts, {len(population.test)} test parts, "
            f"{len(population.names)} names; expected as many of each"
        )
    if len(population.x) != len(population.y):
        raise DataError(
            f"population: {len(population.x)} samples and {len(population.y)} labels; "
            "expected as many of each"
        )
    if not population.sizes("train").any():
        raise DataError("population: no client has a training sample")


def _check_ranges(population: Population) -> None:
    bounds = [_index_bounds(population.parts(split)) for split in ("train", "test")]
    if min(low for low, _ in bounds) < 0 or max(high for _, high in bounds) >= len(population.y):
        raise DataError(
            f"population: sample index out of range; expected 0 to {len(population.y) - 1}"
        )
    # Labels that are made client by client are not made only to be checked.
    if not population.lazy:
        _check_targets(population)


def _check_targets(population: Population) -> None:
    """Targets are finite numbers, or whole numbers that the number of classes allows."""
    if population.y.is_floating_point():
        if population.classes:
            raise DataError(
                f"population: numbers as labels, got {population.y.dtype} with "
                f"{population.classes} classes; expected int64 labels, or no classes"
            )
        if not torch.isfinite(population.y).all():
            raise DataError("population: targets, got NaN or infinity; expected finite numbers")
        return
    # Tokens and several labels a sample are checked by their task, which knows what they mean.
    if population.y.ndim > 1:
        return
    lowest = int(population.y.min())
    highest = int(population.y.max())
    if population.classes == 0:
        raise DataError(
            f"population: whole-number labels from {lowest} to {highest} and no classes; "
            "expected the number of classes, or float labels for a regression"
        )
    if lowest < 0 or highest >= population.classes:
        raise DataError(
            f"population: labels from {lowest} to {highest}; expected 0 to {population.classes - 1}"
        )


def _index_bounds(parts: Sequence[IntArray]) -> tuple[int, int]:
    """The least and the largest index; 0 and -1 where there is none."""
    if isinstance(parts, Ranges):
        some = parts.size > 0
        first = parts.start[some]
        last = first + parts.size[some] - 1
        return int(first.min(initial=0)), int(last.max(initial=-1))
    rows = np.concatenate([*parts, np.empty(0, np.int64)])
    return int(rows.min(initial=0)), int(rows.max(initial=-1))
