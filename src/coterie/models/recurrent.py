"""Recurrent networks: those of the papers, word vectors ``[n, words, dim]`` to classes, and one for
forecasts of series."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import _VF, Tensor, nn

from coterie.errors import ConfigError
from coterie.models.spec import ModelSpec, Shape

Count = Annotated[int, Field(ge=1)]
Cell = Literal["gru", "lstm"]
Probability = Annotated[float, Field(ge=0, lt=1)]

# Input shape of FlexCFL's Sent140: words, dimensions of a GloVe vector.
SENTENCE = (25, 300)


class OneBiasLSTM(nn.Module):
    """One LSTM layer over ``[n, words, inputs]`` with one bias vector per gate, as in Keras.

    torch's own LSTM has two, which would add 768 parameters to FlexCFL's network. Parameters have
    the names and the gate order (i, f, g, o) of ``nn.LSTM``; its second bias is zero and no
    parameter.

    Args:
        bidirectional: read backwards, too.

    Returns:
        outputs ``[n, words, directions * hidden]`` and last states ``[directions, n, hidden]``, as
        ``nn.GRU`` does.

    Example:
        >>> layer = OneBiasLSTM(3, 2)
        >>> sum(p.numel() for p in layer.parameters())
        48
        >>> [tuple(t.shape) for t in layer(torch.zeros(5, 4, 3))]
        [(5, 4, 2), (1, 5, 2)]
    """

    def __init__(self, inputs: int, hidden: int, bidirectional: bool = False) -> None:
        super().__init__()
        self.hidden_size = hidden
        self.directions = ("", "_reverse") if bidirectional else ("",)
        # torch's default, for a layer that is used alone; `initialise` draws as Keras does.
        bound = 1 / math.sqrt(hidden)
        for end in self.directions:
            shapes = {
                "weight_ih": (4 * hidden, inputs),
                "weight_hh": (4 * hidden, hidden),
                "bias_ih": (4 * hidden,),
            }
            for name, shape in shapes.items():
                values = torch.empty(shape).uniform_(-bound, bound)
                self.register_parameter(f"{name}_l0{end}", nn.Parameter(values))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights: list[Tensor] = []
        for end in self.directions:
            bias = getattr(self, f"bias_ih_l0{end}")
            weights += [
                getattr(self, f"weight_ih_l0{end}"),
                getattr(self, f"weight_hh_l0{end}"),
                bias,
                torch.zeros_like(bias),
            ]
        state = x.new_zeros(len(self.directions), x.shape[0], self.hidden_size)
        # torch's own kernel, as nn.LSTM calls it: it is many times as fast as a loop over words,
        # and has no public name that takes weights.
        outputs, last, _ = _VF.lstm(
            x,
            (state, state),
            weights,
            True,  # has_biases
            1,  # layers
            0.0,  # dropout
            self.training,
            len(self.directions) == 2,  # bidirectional
            True,  # batch_first
        )
        return outputs, last


class Outputs(nn.Module):
    """Of a recurrent layer's two results, the output at every word."""

    def forward(self, results: tuple[Tensor, Tensor]) -> Tensor:
        return results[0]


class Last(nn.Module):
    """Of a recurrent layer's two results, the last states: ``[n, directions * hidden]``."""

    def forward(self, results: tuple[Tensor, Tensor]) -> Tensor:
        return results[1].transpose(0, 1).flatten(1)


class AgainstZero(nn.Module):
    """One unit ``z`` as two logits ``(0, z)``.

    Their softmax is the sigmoid of ``z``, and cross-entropy is the binary one, so that a network
    with one output trains like all others.

    Example:
        >>> AgainstZero()(torch.tensor([[2.0]])).tolist()
        [[0.0, 2.0]]
    """

    def forward(self, z: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(z), z], dim=1)


def bigru(dropout: Probability = 0.5) -> ModelSpec:
    """Bidirectional GRU: 64 at every word, then 32 at the last, 64 relu, dropout 0.5 -> classes.

    Args:
        dropout: dropout before the last layer.

    Source: the authors' code of FlexCFL.

    Example:
        >>> bigru().parameters
        175938
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        _, dim = sentence(shape, "bigru")
        first = nn.GRU(dim, 64, batch_first=True, bidirectional=True)
        second = nn.GRU(128, 32, batch_first=True, bidirectional=True)
        return _two_way(first, second, dropout, classes)

    return ModelSpec(build, (), "bidirectional GRU, two layers", SENTENCE, 2)


def bilstm(dropout: Probability = 0.5) -> ModelSpec:
    """Bidirectional LSTM: 64 at every word, then 32 at the last, 64 relu, dropout 0.5 -> classes.

    Args:
        dropout: dropout before the last layer.

    Source: the authors' code of FlexCFL.

    Example:
        >>> bilstm().parameters
        232386
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        _, dim = sentence(shape, "bilstm")
        first = OneBiasLSTM(dim, 64, bidirectional=True)
        second = OneBiasLSTM(128, 32, bidirectional=True)
        return _two_way(first, second, dropout, classes)

    return ModelSpec(build, (), "bidirectional LSTM, two layers, one bias", SENTENCE, 2)


def stacked_lstm() -> ModelSpec:
    """Two LSTM layers of 100, the last output, 30 linear, one unit against zero -> two classes.

    Source: the code of FedProx, which FedGroup uses; its paper says 256 units, which would not give
    FedGroup's parameter count.

    Example:
        >>> stacked_lstm().parameters
        243861
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        _, dim = sentence(shape, "stacked_lstm")
        if classes != 2:
            what = "stacked_lstm has one output unit"
            got = f"the data have {classes} classes"
            raise ConfigError("does-not-fit", "model.name", what, found=got, allowed="2")
        recurrent = (OneBiasLSTM(dim, 100), Outputs(), OneBiasLSTM(100, 100), Last())
        return nn.Sequential(*recurrent, nn.Linear(100, 30), nn.Linear(30, 1), AgainstZero())

    return ModelSpec(build, (), "stacked LSTM, one output unit", SENTENCE, 2)


def _two_way(first: nn.Module, second: nn.Module, dropout: float, classes: int) -> nn.Module:
    # The second layer's last states, one per direction, are what Keras calls its last output.
    dense = (nn.Linear(64, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, classes))
    return nn.Sequential(first, Outputs(), second, Last(), *dense)


def sentence(shape: Shape, model: str) -> tuple[int, int]:
    """The shape as (words, dimensions of a word vector)."""
    if len(shape) != 2:
        what = f"{model} needs sequences of vectors"
        got = f"inputs have shape {list(shape)}"
        raise ConfigError("does-not-fit", "model.name", what, found=got, allowed="mclr or mlp")
    return shape[0], shape[1]


# --- series ---------------------------------------------------------------------------------------


def forecaster(cell: Cell = "gru", hidden: Count = 64, layers: Count = 1) -> ModelSpec:
    """Recurrent network over a series ``[past, features]``, the last state of 64 -> targets.

    It reads the rows of an input in their order, see ``[data.window]`` in docs/tables.md. The
    outputs are those of the task: a number for each target of a regression, logits for classes.

    Args:
        cell: ``gru``, or ``lstm`` with one bias for each gate.
        hidden: size of the state.
        layers: number of layers of cells.

    Example:
        >>> forecaster().parameters, forecaster("lstm").parameters, forecaster(layers=2).parameters
        (16193, 21313, 41153)
    """

    def build(shape: Shape, outputs: int) -> nn.Module:
        _, features = sentence(shape, "forecaster")
        parts: list[nn.Module] = []
        width = features
        for _ in range(layers):
            parts += [_cell(cell, width, hidden), Outputs()]
            width = hidden
        # Of the last layer only the state after the last row is used.
        parts[-1] = Last()
        return nn.Sequential(*parts, nn.Linear(hidden, outputs))

    description = f"{cell.upper()} of {hidden} over a series"
    return ModelSpec(build, (), description, shape=(168, 18), classes=1)


def _cell(cell: Cell, inputs: int, hidden: int) -> nn.Module:
    if cell == "gru":
        return nn.GRU(inputs, hidden, batch_first=True)
    # Not torch's: its second state would be a further result, which `Last` does not expect.
    return OneBiasLSTM(inputs, hidden)
