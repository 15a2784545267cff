"""FedPer: Arivazhagan et al., Federated Learning with Personalization Layers (2019)."""

from __future__ import annotations

from coterie.config.arguments import validated
from coterie.core import KeepLayers, Train
from coterie.methods.method import Method
from coterie.rules.assigning import everyone


@validated
def fedper(layers: tuple[str, ...] = ("head",)) -> Method:
    """FedPer: FedAvg in which each client has its own classifier, which it never sends.

    With the base layers ``W_B`` and a client's own layers ``W_P,i``, the client trains both
    (Alg. 1), and ``W_B <- sum n_i / n W_B,i`` (Alg. 2).

    Args:
        layers: the layers that stay with the client, see ``coterie.core.keep.layers_to_keep``.

    Models: one.

    Source: Arivazhagan et al., Federated Learning with Personalization Layers (2019).

    Example:
        >>> fedper().local.keep.names
        ('head',)
    """
    return Method(assign=everyone, local=Train(keep=KeepLayers(layers)), needs=())
