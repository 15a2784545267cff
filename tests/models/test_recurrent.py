"""Recurrent networks: the published parameter counts, one bias per gate, and that they learn."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.core.vectors import Layout, bind, flatten
from coterie.errors import ConfigError
from coterie.local.training.batches import TrainingSamples
from coterie.local.training.sgd import Autograd
from coterie.models import build_model, spec
from coterie.models.recurrent import AgainstZero, OneBiasLSTM
from coterie.objectives import plain
from tests.refusals import refuses

COUNTS = {"bigru": 175_938, "bilstm": 232_386, "stacked_lstm": 243_861}


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_published_counts_in_the_flat_vector(name: str, count: int) -> None:
    assert spec(name).parameters == count
    module = build_model(name, (25, 300), 2, Key(0)).eval()
    layout = Layout.of(module)
    assert (layout.d, layout.trainable) == (count, len(layout.names))
    assert flatten(module).shape == (count,)
    assert module(torch.zeros(3, 25, 300)).shape == (3, 2)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_one_bias_is_torchs_lstm_with_the_second_at_zero(bidirectional: bool) -> None:
    ours = OneBiasLSTM(5, 4, bidirectional)
    theirs = nn.LSTM(5, 4, batch_first=True, bidirectional=bidirectional)
    named = {**{n: torch.zeros_like(p) for n, p in theirs.named_parameters()}, **ours.state_dict()}
    theirs.load_state_dict(named)
    x = torch.randn(3, 7, 5, generator=Key(0).torch())
    (out, last), (expected, (state, _)) = ours(x), theirs(x)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(last, state)
    grads = torch.autograd.grad(out.square().sum(), list(ours.parameters()))
    again = torch.autograd.grad(
        expected.square().sum(), [dict(theirs.named_parameters())[n] for n in ours.state_dict()]
    )
    for ours_, theirs_ in zip(grads, again, strict=True):
        torch.testing.assert_close(ours_, theirs_)


def test_first_weights_are_those_of_keras() -> None:
    for name in ("bilstm", "stacked_lstm", "bigru"):
        named = dict(build_model(name, (6, 20), 2, Key(3)).named_parameters())
        for path, p in named.items():
            if "weight_hh" in path:
                torch.testing.assert_close(p.T @ p, torch.eye(p.shape[1]), atol=1e-5, rtol=0)
            elif "bias" in path:
                hidden = len(p) // 4
                forget = torch.zeros_like(p)
                if "lstm" in name and "bias_ih" in path:
                    forget[hidden : 2 * hidden] = 1
                assert torch.equal(p, forget), path


def test_backward_direction_ends_at_the_first_word() -> None:
    module = build_model("bilstm", (4, 3), 2, Key(0)).eval()
    inner = nn.Sequential(*list(module)[:4])
    x = torch.randn(2, 4, 3, generator=Key(1).torch())
    outputs, _ = module[2](module[1](module[0](x)))
    torch.testing.assert_close(inner(x), torch.cat([outputs[:, -1, :32], outputs[:, 0, 32:]], 1))


def test_one_unit_gives_binary_cross_entropy() -> None:
    z = torch.randn(8, 1, generator=Key(0).torch())
    y = torch.arange(8) % 2
    binary = nn.functional.binary_cross_entropy_with_logits(z[:, 0], y.float())
    torch.testing.assert_close(plain.loss(AgainstZero(), z, y, AgainstZero), binary)


@pytest.mark.parametrize("name", COUNTS)
def test_training_lowers_the_loss_and_is_the_same_again(name: str) -> None:
    module = build_model(name, (6, 8), 2, Key(0))
    rng = Key(2).torch()
    y = torch.arange(40) % 2
    x = torch.randn(40, 6, 8, generator=rng) * 0.3 + (y * 2.0 - 1)[:, None, None]
    start = flatten(module)
    out = torch.empty_like(start)
    again = torch.empty_like(start)
    first = Autograd(copy.deepcopy(module), plain).train(
        TrainingSamples(x, y), start, out, Solver(1, 10, 0.1), Key(5)
    )
    last = Autograd(copy.deepcopy(module), plain).train(
        TrainingSamples(x, y), start, again, Solver(6, 10, 0.1), Key(5)
    )
    assert last.loss < 0.7 * first.loss
    repeat = torch.empty_like(start)
    Autograd(copy.deepcopy(module), plain).train(
        TrainingSamples(x, y), start, repeat, Solver(6, 10, 0.1), Key(5)
    )
    assert torch.equal(again, repeat)
    scorer = bind(copy.deepcopy(module), start + again).eval()
    assert float((scorer(x).argmax(1) == y).float().mean()) > 0.9


def test_complaints_are_one_line() -> None:
    for name, shape, classes in (
        ("bigru", (1, 28, 28), 10),
        ("stacked_lstm", (25, 50), 3),
    ):
        with refuses(ConfigError, "does-not-fit", "model.name") as caught:
            build_model(name, shape, classes, Key(0))
        assert "\n" not in str(caught.value)
