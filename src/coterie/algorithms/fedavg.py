"""FedAvg: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data
(2017)."""

from __future__ import annotations

from coterie.methods.method import Method
from coterie.rules.assigning import everyone


def fedavg() -> Method:
    """FedAvg: trains one model. Updates are averaged by sample count.

    ``w_{t+1} = w_t + sum_{i in S_t} n_i / n delta_i`` with ``n = sum_{i in S_t} n_i`` (FedGroup
    Alg. 1 l. 8).

    Models: one.

    Source: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
    Data (2017).

    Example:
        >>> fedavg().groups
        1
    """
    return Method(assign=everyone, needs=())
