"""The clients of a source that says itself who holds which samples."""

from __future__ import annotations

import numpy as np

from coterie.core.keys import Key
from coterie.data.lazy import ranges
from coterie.data.partition import Partition
from coterie.data.partitions.helpers import Fraction
from coterie.data.samples import Samples
from coterie.errors import DataError


def predefined(
    samples: Samples,
    key: Key,
    /,
    *,
    test_fraction: Fraction = 0.1,
) -> Partition:
    """The clients as the source has them: the first rows of each to train on, the last to test on.

    Of a source that comes client by client, a client's rows are kept as two numbers, so a million
    clients take no more memory than their sizes do. A population of Python has its own split, and
    ``test_fraction`` does not matter.

    Args:
        samples: of a source; neither inputs nor labels are read, so that they need not be made.
        key: not used; nothing is drawn.
        test_fraction: share of each client's samples to test on; one is always left to train on.

    Raises:
        DataError: if the source does not say who holds what.

    Example:
        >>> import torch
        >>> offsets = np.array([0, 4, 5])
        >>> y = torch.zeros(5, dtype=torch.int64)
        >>> samples = Samples(torch.zeros(5, 1), y, classes=1, train_rows=5, offsets=offsets)
        >>> parts = predefined(samples, Key(0), test_fraction=0.5)
        >>> [rows.tolist() for rows in parts.train], [rows.tolist() for rows in parts.test]
        ([[0, 1], [4]], [[2, 3], []])
    """
    if samples.holders is not None:
        return samples.holders
    offsets = samples.offsets
    if offsets is None:
        raise DataError(
            "data.partition.kind: the source does not say who holds what, got 'given'; "
            "expected another"
        )
    sizes = np.diff(offsets)
    wanted = ((1 - test_fraction) * sizes).astype(np.int64)
    # One sample at least to train on, except where a client has none at all.
    train = np.maximum(wanted, np.minimum(1, sizes))
    starts = offsets[:-1]
    return Partition(ranges(starts, train), ranges(starts + train, sizes - train))
