"""The test results that a client reports, held to the samples of the others.

A server has no test data. Each client counts by itself how many of its samples are right, and the
figures of a federation weigh clients by the samples that they claim. So a claim is compared with
those of the others, as a claim of training samples is, and a share of right answers is believed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.core.arrays import FloatArray
from coterie.core.engine import Reply


def scaled_to_size(reply: Reply, limits: FloatArray) -> tuple[Reply, int]:
    """The results of each client as those of at most so many samples.

    All of its sums shrink by the factor ``limit / size`` with its size. So its own accuracy and mean
    losses stay as it reported them, and only their weight among those of the others is bounded.

    Args:
        reply: to an evaluation: ``size [n]``, and sums over samples ``[n, ...]``.
        limits: float64 ``[n]``, the most samples of each client; infinite for no limit.

    Returns:
        The results, and of how many clients they were scaled.

    Example:
        >>> fields = {"correct": np.array([[3.0], [5e8]]), "size": np.array([4.0, 1e9])}
        >>> reply, scaled = scaled_to_size(Reply(0, np.arange(2), fields), np.array([12.0, 12.0]))
        >>> reply.fields["correct"].ravel().tolist(), reply.fields["size"].tolist(), scaled
        ([3.0, 6.0], [4.0, 12.0], 1)
    """
    size = reply.fields["size"].astype(np.float64)
    many = size > limits
    if not many.any():
        return reply, 0
    most = limits[many]
    # Whole samples: claims are counts.
    most = np.where(most >= 1, np.floor(most), most)
    fields = {}
    for name, values in reply.fields.items():
        lower = values.astype(np.float64)
        shape = (-1, *(1,) * (values.ndim - 1))
        # The rate first: that of `size` is exactly 1, so no count becomes larger than it.
        lower[many] = lower[many] / size[many].reshape(shape) * most.reshape(shape)
        fields[name] = lower.astype(values.dtype)
    return replace(reply, fields=fields), int(many.sum())
