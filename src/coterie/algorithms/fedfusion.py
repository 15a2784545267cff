"""FedFusion: Yao et al., Towards Faster and Better Federated Learning: A Feature Fusion Approach
(2019)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coterie.config.arguments import validated
from coterie.core.work import Train
from coterie.methods.method import Method
from coterie.objectives import fusion
from coterie.objectives.fusion import Operator
from coterie.rules.assigning import everyone


@validated
def fedfusion(
    # The authors' code keeps 0.9 of the old coefficient; "conv" did best in their paper.
    operator: Operator = "conv",
    smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.9,
) -> Method:
    """FedFusion: FedAvg whose clients combine their features with those of the model they received.

    Args:
        operator: ``conv``: a 1x1 convolution of both; ``multi``: a coefficient per channel;
            ``single``: one coefficient for all channels.
        smoothing: how much of its old coefficient the server keeps (``multi``, ``single``).

    Models: one.

    Source: Yao et al., Towards Faster and Better Federated Learning: A Feature Fusion Approach
    (2019).

    Example:
        >>> fedfusion(operator="multi").local.objective.operator
        'multi'
    """
    return Method(everyone, local=Train(fusion(operator, smoothing)), needs=())
