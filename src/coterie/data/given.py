"""The partition of a source that comes client by client."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.data.lazy import ranges
from coterie.data.parts import Partition
from coterie.errors import DataError


def given(
    labels: IntArray,
    key: Key,
    /,
    *,
    offsets: IntArray | None,
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1,
) -> Partition:
    """The clients as the source gives them: of each one's rows the first are to train on, the last
    to test on.

    A client's rows are kept as two numbers, so a million clients take no more memory than their
    sizes do.

    Args:
        labels: not looked at.
        key: not used; nothing is drawn.
        offsets: int64 ``[N + 1]``, where each client's rows begin.
        test_fraction: share of each client's samples to test on; one is always left to train on.

    Raises:
        DataError: if the source does not come client by client.

    Example:
        >>> parts = given(np.zeros(5, np.int64), Key(0), offsets=np.array([0, 4, 5]), test_fraction=0.5)
        >>> [rows.tolist() for rows in parts.train], [rows.tolist() for rows in parts.test]
        ([[0, 1], [4]], [[2, 3], []])
    """
    if offsets is None:
        raise DataError(
            "data.partition.kind: the source does not come client by client, got 'given'; expected another"
        )
    sizes = np.diff(offsets)
    train = np.maximum(((1 - test_fraction) * sizes).astype(np.int64), np.minimum(1, sizes))
    return Partition(ranges(offsets[:-1], train), ranges(offsets[:-1] + train, sizes - train))
