"""GRU layers with gradients written out: what torch's own layers compute."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from coterie.local.training import gru
from coterie.local.training.gru import FusedGRU, use_fused_gru
from coterie.models.recurrent import OneBiasLSTM

LAYERS: dict[str, Any] = {
    "gru": lambda: nn.GRU(5, 4, batch_first=True),
    "gru-two-ways": lambda: nn.GRU(5, 4, batch_first=True, bidirectional=True),
    "gru-three-layers": lambda: nn.GRU(5, 4, num_layers=3, bidirectional=True),
}


def flat(results: Any) -> list[torch.Tensor]:
    """The tensors of nested results, in order."""
    if isinstance(results, torch.Tensor):
        return [results]
    return [tensor for part in results for tensor in flat(part)]


def answers(layer: nn.Module, x: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """All results of a layer, and the gradients of a sum over all of them."""
    x = x.clone().requires_grad_()
    results = flat(layer(x))
    generator = torch.Generator().manual_seed(5)
    total = sum((r * torch.randn(r.shape, generator=generator)).sum() for r in results)
    return results, list(torch.autograd.grad(total, [x, *layer.parameters()]))


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("shape", [(3, 7, 5), (1, 1, 5), (6, 2, 5)])
def test_results_and_gradients_are_those_of_torch(make: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    theirs = make()
    ours = use_fused_gru(copy.deepcopy(theirs))
    assert type(ours) is not type(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x = torch.randn(shape)
    for found, expected in zip(answers(ours, x), answers(theirs, x), strict=True):
        for mine, yours in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, yours, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 30.0])
def test_gates_of_any_size_are_those_of_float64(scale: float) -> None:
    """Also where they are as good as 0 or 1."""
    torch.manual_seed(1)
    exact = nn.GRU(5, 4, bidirectional=True).double()
    ours = use_fused_gru(copy.deepcopy(exact).float())
    x = scale * torch.randn(6, 3, 5)
    for found, expected in zip(answers(ours, x), answers(exact, x.double()), strict=True):
        for mine, yours in zip(found, expected, strict=True):
            # Sums of large products are rounded more, whoever computes them.
            close = 2e-6 * max(1.0, scale)
            torch.testing.assert_close(mine, yours.float(), rtol=1e-5, atol=close)


def test_what_is_no_number_stays_so_and_endless_inputs_close_gates() -> None:
    torch.manual_seed(1)
    theirs = nn.GRU(5, 4)
    ours = use_fused_gru(copy.deepcopy(theirs))
    x = torch.randn(4, 3, 5)
    x[1, 0, 0] = torch.nan
    x[1, 1, 0] = torch.inf
    found, _ = ours(x)
    expected, _ = theirs(x)
    assert found[1:, 0].isnan().all()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=2e-6, equal_nan=True)


def test_passes_do_not_overwrite_what_others_need() -> None:
    """Two passes before their gradients, of more and of fewer samples, in other modes."""
    torch.manual_seed(1)
    theirs = nn.GRU(5, 4, num_layers=2, bidirectional=True)
    ours = use_fused_gru(copy.deepcopy(theirs))
    with torch.inference_mode():
        copy.deepcopy(ours)(torch.randn(6, 9, 5))
    inputs = [torch.randn(6, samples, 5) for samples in (2, 9, 1)]
    total = sum(ours(x)[0].square().sum() for x in inputs)
    expected = sum(theirs(x)[0].square().sum() for x in inputs)
    mine = torch.autograd.grad(total, list(ours.parameters()), retain_graph=True)
    again = torch.autograd.grad(total, list(ours.parameters()))
    yours = torch.autograd.grad(expected, list(theirs.parameters()))
    for found, repeated, known in zip(mine, again, yours, strict=True):
        torch.testing.assert_close(found, known, rtol=1e-5, atol=1e-5)
        assert torch.equal(found, repeated)


@pytest.mark.parametrize("library", [False, True])
@pytest.mark.parametrize(("samples", "h"), [(5, 9), (4, 16), (1, 1)])
def test_both_ways_to_multiply_states_give_the_same(
    library: bool, samples: int, h: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gru, "multiplies_by_blas", lambda samples, h: library)
    torch.manual_seed(0)
    theirs = nn.GRU(5, h, batch_first=True, bidirectional=True)
    ours = use_fused_gru(copy.deepcopy(theirs))
    x = torch.randn(samples, 6, 5)
    for found, expected in zip(answers(ours, x), answers(theirs, x), strict=True):
        for mine, yours in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, yours, rtol=1e-5, atol=2e-6)


def test_blas_multiplies_small_states_alone() -> None:
    assert not gru.multiplies_by_blas(10, 256)
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    assert gru.multiplies_by_blas(10, 64) == wide


def test_torchs_defaults_change_nothing() -> None:
    torch.manual_seed(0)
    layer = use_fused_gru(nn.GRU(5, 4))
    x = torch.randn(3, 2, 5)
    expected = layer(x)[0]
    torch.set_default_dtype(torch.float64)
    try:
        found = layer(x)[0]
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("which", [0, 1], ids=["outputs", "last states"])
def test_one_of_both_results_may_be_all_that_counts(which: int) -> None:
    torch.manual_seed(1)
    theirs = nn.GRU(5, 4, num_layers=2, batch_first=True, bidirectional=True)
    ours = use_fused_gru(copy.deepcopy(theirs))
    x = torch.randn(3, 6, 5)
    mine = torch.autograd.grad(ours(x)[which].square().sum(), list(ours.parameters()))
    yours = torch.autograd.grad(theirs(x)[which].square().sum(), list(theirs.parameters()))
    for found, known in zip(mine, yours, strict=True):
        torch.testing.assert_close(found, known, rtol=1e-5, atol=1e-5)


def test_texts_of_many_lengths_do_not_fill_the_memory() -> None:
    layer = use_fused_gru(nn.GRU(5, 4))
    # The longest first, so that none needs more memory than there is.
    for steps in range(200, 0, -1):
        layer(torch.randn(steps, 1, 5))
    assert len(gru._workspace._made) <= gru._MOST_ARRAYS


def test_frozen_weights_have_no_gradient() -> None:
    layer = use_fused_gru(nn.GRU(5, 4))
    layer.weight_ih_l0.requires_grad_(False)
    x = torch.randn(3, 2, 5, requires_grad=True)
    layer(x)[0].sum().backward()
    assert layer.weight_ih_l0.grad is None
    assert layer.weight_hh_l0.grad is not None
    assert x.grad is not None


def test_what_the_fast_way_does_not_know_goes_the_way_of_torch() -> None:
    torch.manual_seed(2)
    theirs = nn.GRU(5, 4, num_layers=2, batch_first=True, dropout=0.5)
    ours = use_fused_gru(copy.deepcopy(theirs))
    x = torch.randn(3, 7, 5)
    state = torch.randn(2, 3, 4)
    packed = pack_padded_sequence(x, torch.tensor([7, 4, 2]), batch_first=True)
    cases: list[tuple[Any, ...]] = [(x, state), (packed,), (x[0],), (x,)]
    for case in cases:
        torch.manual_seed(3)
        found = ours(*case)
        torch.manual_seed(3)
        expected = theirs(*case)
        assert torch.equal(found[1], expected[1])
    with torch.autocast("cpu", torch.bfloat16):
        assert ours(x)[0].dtype == theirs(x)[0].dtype


def test_only_torchs_own_gru_is_changed() -> None:
    class Mine(nn.GRU):
        pass

    network = use_fused_gru(
        nn.Sequential(Mine(3, 2), nn.GRU(3, 2), OneBiasLSTM(3, 2), nn.Linear(2, 1))
    )
    kinds = [type(layer) for layer in network]
    assert kinds == [Mine, FusedGRU, OneBiasLSTM, nn.Linear]
