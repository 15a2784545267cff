"""FedOpt: plain averaging with another server."""

from __future__ import annotations

import pytest
import torch

import coterie as ct
from tests.conftest import blobs, small_net


def test_without_momentum_it_is_fedavg() -> None:
    plain, none = (
        ct.run(
            method, data=blobs(), model=small_net(), rounds=3, clients_per_round=4, engine="serial"
        )
        for method in (ct.fedavg(), ct.fedavgm(beta=0.0))
    )
    assert torch.equal(plain.state.models, none.state.models)


@pytest.mark.parametrize("method", ["fedavgm", "fedadagrad", "fedadam", "fedyogi"])
def test_the_algorithm_is_fedavg_with_the_server(method: str) -> None:
    a = ct.run(getattr(ct, method)(), data=blobs(), model=small_net(), rounds=3, engine="serial")
    b = ct.run(
        ct.fedavg(), data=blobs(), model=small_net(), rounds=3, engine="serial", server=method
    )
    assert torch.equal(a.state.models, b.state.models)
    assert a.accuracy[-1] > 0
