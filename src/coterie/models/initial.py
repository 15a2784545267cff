"""First weights, from a key."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import init
from torch.nn.modules.batchnorm import _NormBase

from coterie.core.keys import Key
from coterie.core.vectors import Layout, flatten, is_frozen_norm
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


def shuffled(vector: Tensor, layout: Layout, rng: np.random.Generator) -> Tensor:
    """Another draw of first weights: the trained values of each array in a random order.

    Weights of one array are drawn from one distribution, so their order is all that a second draw
    would change. Constant arrays, such as scales of a normalisation, stay as they are.

    Args:
        vector: float32 ``[d]``.

    Example:
        >>> layout = Layout(("a", "b"), ((3,), (2,)), 2)
        >>> shuffled(torch.arange(5.0), layout, np.random.default_rng(3)).tolist()
        [2.0, 1.0, 0.0, 3.0, 4.0]
    """
    other = vector.clone()
    for name in layout.names[: layout.trainable]:
        part = vector[layout.span(name)]
        other[layout.span(name)] = part[torch.from_numpy(rng.permutation(len(part)))]
    return other


def initial_models(module: nn.Module, key: Key, own: bool = False) -> Callable[[int], Tensor]:
    """The first models of a run, as a function of their number, ``j -> w_0^(j) [d]``.

    Model 0 has the module's own parameters, the others are drawn from the key. So a method with one
    model, or with the same one for all groups, starts where FedAvg does.

    Args:
        own: whether it is a network of the user's own: the others then have its values in another
            order (`shuffled`). Drawn as Coterie's are, they would lose to model 0, or win, at once.
    """

    def start(j: int) -> Tensor:
        if j == 0:
            return flatten(module)
        # The number of the model stands where a stream has that of a client.
        stream = key.of("model").client(j)
        if own:
            first = flatten(module)
            other = shuffled(first, Layout.of(module), stream.generator())
            # Of constant tensors, or tensors of one value, there is no other order.
            if not torch.equal(first, other):
                return other
        # A copy, since the module itself is model 0 and what the engines train with.
        drawn = copy.deepcopy(module)
        initialise(drawn, stream)
        return flatten(drawn)

    return start
