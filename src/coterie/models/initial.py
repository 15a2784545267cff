"""First weights, from a key."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.nn.modules.batchnorm import _NormBase

from coterie.core.keys import Key
from coterie.core.vectors import flatten, is_frozen_norm
from coterie.models.recurrent import OneBiasLSTM

RECURRENT = (nn.RNNBase, OneBiasLSTM)


@torch.no_grad()
def initialise(module: nn.Module, key: Key) -> None:
    """Draw first weights in place from a key, as Keras does: Glorot-uniform kernels, zero biases.

    Recurrent kernels are orthogonal, the forget bias of an LSTM is 1, embeddings are uniform in
    [-0.05, 0.05], normalisation layers start as the identity. The authors of FlexCFL use Keras'
    defaults. Every tensor has its own stream, named after it, so that a further layer changes no
    other's weights. Frozen parameters stay, and so do the running statistics of frozen layers.

    Example:
        >>> a, b = nn.Linear(3, 2), nn.Linear(3, 2)
        >>> initialise(a, Key(1)); initialise(b, Key(1))
        >>> torch.equal(a.weight, b.weight), a.bias.tolist()
        (True, [0.0, 0.0])
    """
    for path, layer in module.named_modules():
        if isinstance(layer, _NormBase) and not is_frozen_norm(layer):
            # They may hold what an earlier use of the module left; they are part of the
            # flat vector, too.
            layer.reset_running_stats()
        for name, parameter in layer.named_parameters(recurse=False):
            if not parameter.requires_grad:
                continue
            full_name = f"{path}.{name}" if path else name
            _draw(layer, name, parameter, key.of(full_name).torch())


def _draw(layer: nn.Module, name: str, parameter: nn.Parameter, rng: torch.Generator) -> None:
    """Draw one parameter. Kernels are Glorot-uniform and biases zero in any kind of layer; others,
    such as scales, keep their initial value."""
    if isinstance(layer, (_NormBase, nn.LayerNorm, nn.GroupNorm)):
        init.constant_(parameter, 1.0 if name == "weight" else 0.0)
    elif isinstance(layer, nn.Embedding):
        init.uniform_(parameter, -0.05, 0.05, generator=rng)
    elif isinstance(layer, RECURRENT) and name.startswith("weight_hh"):
        init.orthogonal_(parameter, generator=rng)
    # After the recurrent kernels, which have two dimensions as well.
    elif parameter.ndim >= 2:
        init.xavier_uniform_(parameter, generator=rng)
    elif "bias" in name:
        init.zeros_(parameter)
        if isinstance(layer, (nn.LSTM, OneBiasLSTM)) and name.startswith("bias_ih"):
            # Gates lie in the order i, f, g, o; torch's LSTM adds bias_hh, which stays zero.
            parameter[layer.hidden_size : 2 * layer.hidden_size] = 1.0


@torch.no_grad()
def shuffle(module: nn.Module, key: Key) -> None:
    """Put the values of each trained tensor into a random order, in place.

    A network whose weights somebody else has drawn then has others of the same distribution, whatever
    it is, and no better start than before: constants, such as the zeros of an adapter, stay.

    Example:
        >>> a = nn.Linear(2, 2); init.constant_(a.bias, 0.5)
        Parameter containing:
        tensor([0.5000, 0.5000], requires_grad=True)
        >>> before = a.weight.flatten().sort().values
        >>> shuffle(a, Key(0)); torch.equal(a.weight.flatten().sort().values, before), a.bias.tolist()
        (True, [0.5, 0.5])
    """
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            order = torch.randperm(parameter.numel(), generator=key.of(name).torch())
            parameter.copy_(parameter.flatten()[order].view_as(parameter))


def initial_models(module: nn.Module, key: Key, own: bool = False) -> Callable[[int], Tensor]:
    """The first models of a run, as a function of their number, ``j -> w_0^(j) [d]``.

    Model 0 has the module's own parameters, the others are drawn from the key. So a method with one
    model, or with the same one for all groups, starts where FedAvg does.

    Args:
        own: whether it is a network of the user's own: the others then have its values in another
            order (`shuffle`). Drawn as Coterie's are, they would lose to model 0, or win, at once.
    """
    draw = shuffle if own else initialise

    def start(j: int) -> Tensor:
        if j == 0:
            return flatten(module)
        # A copy, since the module itself is model 0 and what the engines train with.
        other = copy.deepcopy(module)
        # The number of the model stands where a stream has that of a client.
        draw(other, key.of("model").client(j))
        return flatten(other)

    return start
