"""FedMMD: Yao et al., Two-Stream Federated Learning: Reduce the Communication Costs (2018)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.checked import checked
from coterie.grouping import everyone
from coterie.objectives import mmd
from coterie.rounds import Method
from coterie.types import Train


@checked
def fedmmd(weight: Annotated[float, Field(ge=0)] = 0.1) -> Method:
    """FedMMD: FedAvg whose clients keep their logits near those of the model received, ``CE + lambda MMD^2``.

    Args:
        weight: ``lambda``; 0 is FedAvg.

    Example:
        >>> fedmmd(weight=0.5).local.objective.weight
        0.5
    """
    return Method(everyone, local=Train(mmd(weight)))
