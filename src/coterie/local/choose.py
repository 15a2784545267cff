"""How a client chooses among the models it was sent."""

from __future__ import annotations

import numpy as np

from coterie.core.arrays import FloatArray, IntArray


def least_loss(loss: FloatArray) -> IntArray:
    """``argmin_j F_i(w_j)``: the column of the least loss; ties go to the lowest.

    Args:
        loss: ``[n, r]``, of each client the summed loss of each model.

    Returns:
        int64 ``[n]``. A model that diverged (a loss that is no number) is chosen only where all
        did.

    Source: Ghosh et al., An Efficient Framework for Clustered Federated Learning (2020), Alg. 1 l.
    6.

    Example:
        >>> least_loss(np.array([[2.0, 1.0, 1.0], [np.nan, 4.0, 5.0]])).tolist()
        [1, 1]
    """
    return np.where(np.isnan(loss), np.inf, loss).argmin(axis=1)
