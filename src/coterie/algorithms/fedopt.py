"""FedAdagrad, FedAdam, FedYogi: Reddi et al., Adaptive Federated Optimization (2021). FedAvgM: Hsu
et al. (2019)."""

from __future__ import annotations

from coterie.config.arguments import validated
from coterie.methods.method import Method
from coterie.rules import server
from coterie.rules.assigning import everyone
from coterie.rules.server import Decay, Rate


@validated
def fedavgm(lr: Rate = 1.0, beta: Decay = 0.9) -> Method:
    """FedAvgM: FedAvg with momentum on the server.

    With the mean update ``D``: ``m <- beta m + D``, ``w <- w + lr m``.

    Args:
        lr: server learning rate.
        beta: decay of the momentum; 0 is FedAvg.

    Models: one.

    Source: Hsu et al., Measuring the Effects of Non-Identical Data Distribution for Federated
    Visual Classification (2019).

    Example:
        >>> fedavgm(beta=0.5).groups
        1
    """
    return Method(everyone, server=server.momentum(lr, beta), needs=())


# Server rates and decays are the picks of Reddi et al. for EMNIST. Flower and FL-bench have other
# values of tau, of v at the start and of beta2, so their FedAdam is not this one.
@validated
def fedadagrad(lr: Rate = 0.1, beta1: Decay = 0.0, tau: Rate = 1e-3) -> Method:
    """FedAdagrad: FedAvg with Adagrad on the server.

    Each coordinate has its own step size, with ``v <- v + D^2`` (Alg. 2).

    Args:
        lr: server learning rate.
        beta1: decay of the first moment.
        tau: adaptivity; smaller values adapt more.

    Models: one.

    Source: Reddi et al., Adaptive Federated Optimization (2021).

    Example:
        >>> fedadagrad(lr=0.01).groups
        1
    """
    return Method(everyone, server=server.adagrad(lr, beta1, tau), needs=())


@validated
def fedadam(
    lr: Rate = 10**-2.5, beta1: Decay = 0.9, beta2: Decay = 0.99, tau: Rate = 1e-3
) -> Method:
    """FedAdam: FedAvg with Adam on the server.

    FedAdagrad with a second moment that decays, with ``v <- beta2 v + (1 - beta2) D^2`` (Alg. 2).

    Args:
        lr: server learning rate.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        tau: adaptivity; smaller values adapt more.

    Models: one.

    Source: Reddi et al., Adaptive Federated Optimization (2021).

    Example:
        >>> fedadam(lr=0.01).groups
        1
    """
    return Method(everyone, server=server.adam(lr, beta1, beta2, tau), needs=())


@validated
def fedyogi(
    lr: Rate = 10**-2.5, beta1: Decay = 0.9, beta2: Decay = 0.99, tau: Rate = 1e-3
) -> Method:
    """FedYogi: FedAvg with Yogi on the server.

    FedAdam whose step sizes grow slowly, with ``v <- v - (1 - beta2) D^2 sign(v - D^2)`` (Alg. 2).

    Args:
        lr: server learning rate.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        tau: adaptivity; smaller values adapt more.

    Models: one.

    Source: Reddi et al., Adaptive Federated Optimization (2021).

    Example:
        >>> fedyogi(lr=0.01).groups
        1
    """
    return Method(everyone, server=server.yogi(lr, beta1, beta2, tau), needs=())
