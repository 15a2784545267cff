"""Networks as torch.export writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from coterie.core.keys import Key
from coterie.export.loader import write_network
from coterie.models import MODELS, build_model
from coterie.objectives.fusion import fuse

SHAPES = {
    "bigru": (4, 3),
    "bilstm": (4, 3),
    "stacked_lstm": (4, 3),
    "vgg16": (3, 32, 32),
    "mclr": (7,),
    "forecaster": (4, 3),
    "transformer": (4, 3),
}


def check_written(
    network: nn.Module, shape: tuple[int, ...], folder: Path, counts: Sequence[int] = (1, 3)
) -> None:
    """The network of the file takes the weights, and any number of inputs.

    Args:
        counts: of the inputs with which it is written.
    """
    x = torch.randn(5, *shape, generator=Key(1).torch())
    for count in counts:
        assert write_network(folder / "network.pt2", network, x[:count]) is None
        again = torch.export.load(folder / "network.pt2").module()
        again.load_state_dict(network.state_dict())
        with torch.no_grad():
            for part in (x, x[:1]):
                assert torch.equal(again(part), network.eval()(part))


# The layers of resnet8, several times more.
DEEPER = {"resnet18": [pytest.mark.slow]}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=DEEPER.get(name, [])) for name in MODELS]
)
def test_every_network_is_written(name: str, tmp_path: Path) -> None:
    """With one input, which torch.export would take for the only number of them."""
    shape = SHAPES.get(name, (1, 28, 28))
    check_written(build_model(name, shape, 2, Key(0)), shape, tmp_path, counts=[1])


@pytest.mark.parametrize("operator", ["conv", "multi", "single"])
@pytest.mark.parametrize(("name", "shape"), [("mlp", (6,)), ("cnn_small", (1, 28, 28))])
def test_a_fused_network_is_written(
    operator: str, name: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    check_written(fuse(build_model(name, shape, 3, Key(0)), operator, Key(1)), shape, tmp_path)


def test_a_network_that_depends_on_values_is_not_written(tmp_path: Path) -> None:
    class Mine(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    reason = write_network(tmp_path / "network.pt2", Mine(), torch.ones(2, 3))
    assert reason is not None
    assert "\n" not in reason
    assert not (tmp_path / "network.pt2").exists()
