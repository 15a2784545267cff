"""Networks of the user's own that cannot be trained as they are: what to change is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import coterie as ct


def refused(net: nn.Module, **options: Any) -> str:
    """What is said of a network, for clients of 11 and 20 samples in batches of ten."""
    x = torch.randn(31, 6, generator=torch.Generator().manual_seed(0))
    nothing = np.empty(0, np.int64)
    parts = (np.arange(11), np.arange(11, 31))
    data = ct.Population(x, (x[:, 0] > 0).long(), parts, (parts[0][:5], nothing), 2)
    given = {
        "rounds": 1,
        "engine": "serial",
        "local": ct.Solver(epochs=1, batch_size=10),
        **options,
    }
    with pytest.raises(ct.CoterieError) as caught:
        ct.run(ct.fedavg(), data=data, model=net, **given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_batch_normalisation_of_a_single_sample_names_what_helps() -> None:
    line = refused(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)))
    assert "client 0: training failed in round 0" in line
    assert "cannot train on a single sample" in line
    assert "local.batch_size, or GroupNorm" in line


class Pair(nn.Module):
    """Returns what many libraries return beside their logits."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.dense(x), x


def test_outputs_that_are_no_tensor_are_named() -> None:
    assert "does not return a tensor (a tuple" in refused(Pair())


def test_a_lazy_layer_without_a_shape_is_refused() -> None:
    assert "a lazy layer has no shape yet" in refused(nn.Sequential(nn.LazyLinear(2)))
