"""FedBN: Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization
(2021)."""

from __future__ import annotations

from coterie.config.arguments import validated
from coterie.core import KeepLayers, Train
from coterie.methods.method import Method
from coterie.rules.assigning import everyone
from coterie.rules.weighing import evenly


@validated
def fedbn(layers: tuple[str, ...] = ("norm",)) -> Method:
    """FedBN: FedAvg whose clients keep their normalisation layers.

    Every layer ``l`` is trained. Layers other than normalisation are averaged:
    ``w^(l) <- 1/K sum_k w_k^(l)`` (Alg. 1).

    Args:
        layers: the layers that stay with the client, see ``coterie.core.keep.layers_to_keep``.

    Models: one.

    Source: Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization
    (2021).

    Example:
        >>> fedbn().local.keep.names
        ('norm',)
    """
    return Method(
        assign=everyone,
        local=Train(keep=KeepLayers(layers)),
        # 1/K in Alg. 1, whatever the number of samples.
        weigh=evenly,
        needs=(),
    )
