"""All data in one place: what a federation of one model could be at best."""

from __future__ import annotations

from coterie.methods.method import Method
from coterie.rules.assigning import everyone


def pooled() -> Method:
    """Pooled training: trains one model on all clients' training data in one place.

    A round takes as many steps of SGD as a cohort of ``K`` of ``N`` clients takes in FedAvg on
    average, ``K / N sum_i E ceil(n_i / B)``, one after another. It is not a federated method,
    because the data leave their clients, so a deployment refuses it. Each client's own test data
    score the model.

    Models: one.

    Source: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
    Data (2017), which compares with SGD on all data.

    Example:
        >>> pooled().needs
        ('data',)
    """
    return Method(assign=everyone, needs=("data",))
