"""LG-FedAvg: Liang et al., Think Locally, Act Globally (2020)."""

from __future__ import annotations

from coterie.config.arguments import validated
from coterie.core import KeepLayers, Train
from coterie.methods.method import Method
from coterie.rules.assigning import everyone


@validated
def lg_fedavg(layers: tuple[str, ...] = ("body",)) -> Method:
    """LG-FedAvg: FedAvg of the classifier only; each client has its own features.

    A client trains its local representation ``l_i`` and the global model ``g`` on top of it
    together, and ``g <- sum n_i / n g_i`` (Alg. 1).

    Args:
        layers: the layers that stay with the client, see ``coterie.core.keep.layers_to_keep``.

    Models: one.

    Source: Liang et al., Think Locally, Act Globally: Federated Learning with Local and Global
    Representations (2020).

    Example:
        >>> lg_fedavg().local.keep.names
        ('body',)
    """
    return Method(assign=everyone, local=Train(keep=KeepLayers(layers)), needs=())
