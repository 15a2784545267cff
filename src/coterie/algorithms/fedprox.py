"""FedProx: Li et al., Federated Optimization in Heterogeneous Networks (2020)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.config.arguments import validated
from coterie.core.work import Train
from coterie.methods.method import Method
from coterie.objectives import proximal
from coterie.rules.assigning import everyone


# FedProx finds 1 to be best for Synthetic, MNIST and FEMNIST (sec. 5), and 0.01 for Sent140.
@validated
def fedprox(mu: Annotated[float, Field(ge=0)] = 1.0) -> Method:
    """FedProx: FedAvg that keeps each client close to the model it received.

    Clients minimise ``F_k(w) + mu/2 ||w - w_t||^2``.

    Args:
        mu: weight of the proximal term; 0 is FedAvg.

    Models: one.

    Source: Li et al., Federated Optimization in Heterogeneous Networks (2020).

    Example:
        >>> fedprox(mu=0.1).local.objective.mu
        0.1
    """
    return Method(assign=everyone, local=Train(proximal(mu)), needs=())
