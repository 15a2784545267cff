"""A module written and read as one vector, with its tensors one after another or apart."""

import copy

import pytest
import torch
from torch import nn

from coterie.core.vectors import FlatModule, flatten


@pytest.fixture
def net() -> nn.Module:
    """A network in whose vector hardly any tensor begins at a multiple of 256 bytes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(80, 7))


def test_tensors_that_stand_apart_begin_where_a_gpu_can_read_them(net: nn.Module) -> None:
    flat = FlatModule(net, apart=True)
    begins = [t.data_ptr() - flat.memory.data_ptr() for t in net.state_dict().values() if t.dim()]
    assert len(begins) == 8
    assert len(set(begins)) == 8
    assert not any(begin % 256 for begin in begins)


@pytest.mark.parametrize("apart", [False, True])
def test_what_is_written_is_read(net: nn.Module, apart: bool) -> None:
    expected = flatten(net)
    flat = FlatModule(copy.deepcopy(net), apart=apart)
    flat.write(expected)
    assert torch.equal(flat.read(), expected)
    assert torch.equal(flatten(flat.module), expected)


def test_a_step_moves_the_same_values_in_either_memory(net: nn.Module) -> None:
    start = flatten(net)
    x = torch.randn(4, 3, 6, 6)
    found = []
    for apart in (False, True):
        flat = FlatModule(copy.deepcopy(net), apart=apart)
        flat.write(start)
        flat.module(x).square().sum().backward()
        with torch.no_grad():
            for parameter in flat.module.parameters():
                parameter -= 0.01 * parameter.grad
        found.append(flat.read())
    # Parameters and running statistics have moved, in both.
    assert not torch.isclose(found[0], start).all()
    assert torch.allclose(found[0], found[1], rtol=1e-5)


def test_a_module_in_which_nothing_moves_has_an_empty_vector() -> None:
    flat = FlatModule(nn.ReLU(), apart=True)
    flat.write(torch.empty(0))
    assert flat.read().shape == (0,)
