"""How targets are scaled, by what clients report of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.core.arrays import FloatArray
from coterie.core.target_scaling import TargetScaling
from coterie.data.population import Population
from coterie.data.tabular.reports import MOMENTS, add_moments, column_moments

# A variance below this share of the squared mean is rounding, and the target has one value.
_ROUNDING = 1e-12


def target_report(targets: NDArray[Any]) -> FloatArray:
    """What a client reports of its training targets ``[n, ...]``, float64 ``[3 t]``: of each target
    the number of values, their mean, and the sum of squares around it."""
    columns = targets.astype(np.float64).reshape(len(targets), -1)
    return np.concatenate([column_moments(column) for column in columns.T])


def report_size(scaling: TargetScaling) -> int:
    """Bytes of a report that has led to a scaling."""
    return 8 * MOMENTS * len(scaling.center)


def scaling_from(reports: FloatArray) -> TargetScaling | None:
    """The scaling by what clients report, ``[n, 3 t]``; ``None`` without a value.

    Example:
        >>> reports = [target_report(np.array([1.0, 3.0])), target_report(np.array([8.0]))]
        >>> scaling = scaling_from(np.stack(reports))
        >>> scaling.center, round(scaling.scale[0], 6)  # as of 1, 3 and 8 in one place
        ((4.0,), 2.94392)
    """
    center = []
    scale = []
    for part in np.split(reports, reports.shape[1] // MOMENTS, axis=1):
        count, mean, variance = add_moments(part)
        if not count:
            return None
        # What has a single value is not divided.
        varies = variance > _ROUNDING * mean**2
        center.append(mean)
        scale.append(float(np.sqrt(variance)) if varies else 1.0)
    return TargetScaling(tuple(center), tuple(scale))


def reported_scaling(population: Population) -> TargetScaling | None:
    """How the targets of a population are scaled, as real clients would report them; ``None`` where
    samples are generated client by client."""
    if population.lazy:
        return None
    rows = [torch.from_numpy(held) for held in population.train if len(held)]
    return scaling_from(np.stack([target_report(population.y[held].numpy()) for held in rows]))
