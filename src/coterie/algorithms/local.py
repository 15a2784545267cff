"""Every client alone: what a federation has to be better than."""

from __future__ import annotations

from coterie.core import KeepLayers, Train
from coterie.methods.method import Method
from coterie.rules.assigning import everyone


def local() -> Method:
    """Local training: each client has a model of its own. Nothing is sent or averaged.

    ``w_i <- w_i + delta_i`` in each round in which client ``i`` is selected. All clients start from
    ``w_0`` and have the budget that they have in FedAvg: the same rounds, with the same local
    epochs. The whole model stays with its client, so nothing of it is sent.

    Models: one.

    Source: Ghosh et al., An Efficient Framework for Clustered Federated Learning (2020), whose
    baselines are a global model and local ones.

    Example:
        >>> local().groups
        1
    """
    whole_model = KeepLayers()
    return Method(assign=everyone, local=Train(keep=whole_model), needs=())
