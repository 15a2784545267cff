"""What clients conclude from the losses of several models."""

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


def responsibilities(
    losses: FloatArray, shares: FloatArray, prior: FloatArray | None = None
) -> FloatArray:
    """``q_s(m) = pi_m exp(-l_m(s)) / sum_m' pi_m' exp(-l_m'(s))``, the E-step of a mixture.

    With a prior ``exp(-l_m(s)) / C_m(y_s)`` stands in place of the exponentials, so a model that
    explains a sample only because it saw many of its class gets less of it (FedRC).

    Args:
        losses: ``[n, r]``, of each sample under each model. A model that diverged (a loss that is no
            number) explains nothing.
        shares: ``[r]``, ``pi``.
        prior: ``[n, r]``, ``C_m(y_s)`` of each sample, positive; ``None``: without it.

    Returns:
        float64 ``[n, r]``, rows that sum to 1.

    Source: Marfoq et al., Federated Multi-Task Learning under a Mixture of Distributions (2021),
    eq. 8; Guo et al., FedRC: Tackling Diverse Distribution Shifts Challenge in Federated Learning by
    Robust Clustering (2024).

    Example:
        >>> losses = np.array([[0.0, np.log(3.0)], [5.0, 5.0]])
        >>> responsibilities(losses, np.array([0.5, 0.5])).round(6).tolist()
        [[0.75, 0.25], [0.5, 0.5]]
    """
    losses = np.where(np.isnan(losses), np.inf, losses)
    # A share of 0 is a logarithm of minus infinity, and a responsibility of 0.
    with np.errstate(divide="ignore"):
        likelihood = np.log(shares) - losses
    if prior is not None:
        likelihood = likelihood - np.log(prior)
    best = likelihood.max(axis=1, keepdims=True)
    explained = np.isfinite(best[:, 0])
    found = np.tile(shares, (len(losses), 1))
    # Seen from the largest one, since exp(-800) is 0 for all models.
    relative = np.exp(likelihood[explained] - best[explained])
    found[explained] = relative / relative.sum(axis=1, keepdims=True)
    return found
