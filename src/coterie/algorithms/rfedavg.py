"""RFedAvg and its benchmarks.

Wang, Zhang and Tao, "Adaptive Clustering-Based Model Aggregation for Federated Learning with
Imbalanced Data" (2021). Adaptive CCS is in ``grouping/pivot.py``, the weights are in
``grouping/imbalance.py``.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from coterie.config.arguments import validated
from coterie.core.work import Epsilon, Train
from coterie.methods.method import Method
from coterie.objectives import plain
from coterie.rules.imbalance import AskHistogram, AskImbalance, Scope, by_balance, by_imbalance
from coterie.rules.pivot import LossThreshold, asking, draw, means, pivots
from coterie.rules.server import Server, sgd

Gradient = Literal["epochs", "one"]
Angle = Annotated[float, Field(ge=0, le=math.pi / 2)]
Loss = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]


@validated
def rfedavg(
    theta: Angle = math.pi / 36,
    l_star: Loss = 0.05,
    ema: Share = 0.0,
    d_scope: Scope = "all",
    gradient: Gradient = "epochs",
    eta: Positive = 0.01,
    privacy: Literal["none", "discrete_laplace"] = "none",
    epsilon: Epsilon = 1.0,
) -> Method:
    """RFedAvg: one model; updates that point the same way are one voice, and rare data speak as
    loud as plenty.

    ``w^{t+1} = w^t - eta sum_n p_n g_n`` (eq. 5), ``g_n`` the ``D_k``-weighted mean of a cluster of
    adaptive CCS (eq. 4, 6, 7, Alg. 1), ``p_n`` in proportion to ``1 / I_Cn`` (sec. III-B).

    Args:
        theta: angle between updates of a cluster in the first round, in radians.
        l_star: the loss at which any two updates less than 90 degrees apart may share a cluster.
        ema: share of the past in the current loss.
        d_scope: ``D`` counts the samples of ``all`` clients that are there, or of the ``scheduled``
            ones.
        gradient: ``epochs``: ``g = (w - w_k) / eta`` after local SGD with its learning rate as
            ``eta``; ``one``: the gradient of the whole local loss, as the equations have it.
        eta: the server's step with ``gradient = "one"``.
        privacy: the imbalance that a client tells is that of a histogram with noise.
        epsilon: the noise's privacy budget.

    Example:
        >>> rfedavg().groups, rfedavg(gradient="one").local.full_gradient
        (1, True)
    """
    asks = (LossThreshold(theta, l_star, ema), AskImbalance(d_scope, privacy, epsilon))
    return Method(asking(*asks), _local(gradient), pivots, by_imbalance, _server(gradient, eta))


@validated
def rfedavg_kmeans(
    clusters: Annotated[int, Field(ge=1)] = 10,
    unit: bool = False,
    d_scope: Scope = "all",
    gradient: Gradient = "epochs",
    eta: Positive = 0.01,
    privacy: Literal["none", "discrete_laplace"] = "none",
    epsilon: Epsilon = 1.0,
) -> Method:
    """RFedAvg with K-means of the updates in place of CCS (eq. 18); with one cluster it is FedAvg.

    Args:
        clusters: ``N``, at most; never more than replies.
        unit: cluster directions instead of updates.
        d_scope: as in ``rfedavg``, and so the rest.

    Example:
        >>> rfedavg_kmeans(clusters=4).groups
        1
    """
    ask = AskImbalance(d_scope, privacy, epsilon)
    return Method(
        asking(ask, draw),
        _local(gradient),
        means(clusters, unit),
        by_imbalance,
        _server(gradient, eta),
    )


@validated
def rfedavg_optimal(
    theta: Angle = math.pi / 36,
    l_star: Loss = 0.05,
    ema: Share = 0.0,
    gradient: Gradient = "epochs",
    eta: Positive = 0.01,
    privacy: Literal["none", "discrete_laplace", "randomised_response"] = "none",
    epsilon: Epsilon = 1.0,
) -> Method:
    """RFedAvg with the weights that balance the classes best (Q1, eq. 16), for which clients must
    tell histograms.

    Arguments as in ``rfedavg``; ``privacy`` is that of the histograms.

    Example:
        >>> rfedavg_optimal(theta=0.1).groups
        1
    """
    asks = (LossThreshold(theta, l_star, ema), AskHistogram(privacy, epsilon))
    return Method(asking(*asks), _local(gradient), pivots, by_balance, _server(gradient, eta))


def _local(gradient: Gradient) -> Train:
    return Train(plain, full_gradient=gradient == "one")


def _server(gradient: Gradient, eta: float) -> Server:
    return sgd(eta if gradient == "one" else 1.0)
