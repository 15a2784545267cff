"""FedMMD: Yao et al., Two-Stream Federated Learning: Reduce the Communication Costs (2018)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.config.arguments import validated
from coterie.core.work import Train
from coterie.methods.method import Method
from coterie.objectives import mmd
from coterie.rules.assigning import everyone


@validated
def fedmmd(weight: Annotated[float, Field(ge=0)] = 0.1) -> Method:
    """FedMMD: FedAvg that keeps a client's outputs close to those of the model it received.

    Clients minimise ``CE + lambda MMD^2``, with the distance of the logits from that model's.

    Args:
        weight: ``lambda``; 0 is FedAvg.

    Models: one.

    Source: Yao et al., Two-Stream Federated Learning: Reduce the Communication Costs (2018).

    Example:
        >>> fedmmd(weight=0.5).local.objective.weight
        0.5
    """
    return Method(everyone, local=Train(mmd(weight)), needs=())
