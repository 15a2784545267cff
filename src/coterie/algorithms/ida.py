"""IDA: Yeganeh et al., Inverse Distance Aggregation for Federated Learning with Non-IID Data
(2020)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from coterie.config.arguments import validated
from coterie.methods.method import Method
from coterie.rules.accuracy import KnowingAccuracy
from coterie.rules.single_group import everyone
from coterie.rules.weighing import InverseDistance


@validated
def ida(
    norm: Literal["l1", "l2"] = "l1",
    eps: Annotated[float, Field(gt=0)] = 1e-6,
    intrac: bool = False,
    by_size: bool = False,
) -> Method:
    """IDA: FedAvg in which a client counts the less the farther its solution is from the others'
    mean.

    ``w = sum a_k w_k`` with ``a_k`` proportional to ``1 / (|w_bar - w_k| + eps)`` and ``w_bar`` the
    plain mean.

    Args:
        norm: of the distance.
        eps: keeps a client at the mean from being all that counts.
        intrac: count those more, too, on whose data the model received is less accurate.
        by_size: count clients by their samples, too.

    Example:
        >>> ida(norm="l2").weigh.norm
        'l2'
    """
    return Method(
        KnowingAccuracy(everyone) if intrac else everyone,
        weigh=InverseDistance(norm, eps, intrac, by_size),
    )
