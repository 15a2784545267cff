"""Networks, `MODELS` by name, with their parameter counts; or the user's own.

A network's factory takes its options and gives a `ModelSpec`. To add one, write it next to these and
name it in `MODELS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from torch import nn

from coterie.config import registry
from coterie.core.keys import Key, keyed_torch
from coterie.errors import ConfigError
from coterie.models.cnn import (
    cnn_fashion,
    cnn_femnist,
    cnn_leaf,
    cnn_mnist,
    cnn_rfedavg,
    cnn_small,
    lenet5,
    vgg16,
)
from coterie.models.custom import check_trained, custom_model, zeros_for
from coterie.models.dense import mclr, mlp, mlp512
from coterie.models.initial import initial_models, initialise
from coterie.models.recurrent import bigru, bilstm, forecaster, stacked_lstm
from coterie.models.residual import resnet8, resnet18
from coterie.models.spec import ModelSpec, Shape, kernels
from coterie.models.transformer import transformer

__all__ = [
    "MODELS",
    "ModelSpec",
    "Network",
    "build_model",
    "check_trained",
    "decay_for",
    "initial_models",
    "initialise",
    "spec",
    "zeros_for",
]

MODELS: MappingProxyType[str, Callable[..., ModelSpec]] = MappingProxyType(
    {
        "mclr": mclr,
        "mlp": mlp,
        "mlp512": mlp512,
        "cnn_mnist": cnn_mnist,
        "cnn_femnist": cnn_femnist,
        "cnn_fashion": cnn_fashion,
        "cnn_leaf": cnn_leaf,
        "cnn_rfedavg": cnn_rfedavg,
        "cnn_small": cnn_small,
        "lenet5": lenet5,
        "vgg16": vgg16,
        "bigru": bigru,
        "bilstm": bilstm,
        "stacked_lstm": stacked_lstm,
        "resnet8": resnet8,
        "resnet18": resnet18,
        "forecaster": forecaster,
        "transformer": transformer,
    }
)


def spec(name: str, **parameters: Any) -> ModelSpec:
    """What is known of a network by name, or of the user's own as ``module:factory``.

    Example:
        >>> spec("mlp", hidden=64).count((64,), 10)
        4810
    """
    # A factory of the user's own takes what the data say, and no options.
    if ":" in name:
        if parameters:
            option, value = next(iter(parameters.items()))
            expected = f"no options for the network {name}"
            raise ConfigError("unknown-key", f"model.{option}", got=value, allowed=expected)
        return custom_model(name)
    return registry.build("model", {"name": name, **parameters})


def build_model(name: str, shape: Shape, classes: int, key: Key, **parameters: Any) -> nn.Module:
    """Build a network with first weights from a key.

    The user's own keeps the weights that its factory gives it.

    Args:
        key: the stream of the first weights; torch's global state is left as it was.

    Example:
        >>> build_model("mclr", (1, 8, 8), 10, Key(0))
        Sequential(
          (0): Flatten(start_dim=1, end_dim=-1)
          (1): Linear(in_features=64, out_features=10, bias=True)
        )
    """
    # Constructors draw from torch's global generator; the user's own may rely on what they draw.
    with keyed_torch(key):
        module = spec(name, **parameters).build(tuple(shape), classes)
        if ":" in name:
            return module
    # Outside of the keyed generator: `initialise` has a stream for each tensor.
    initialise(module, key)
    return module


def decay_for(name: str | None, module: nn.Module, l2: float, **parameters: Any) -> tuple[str, ...]:
    """The names of the kernels that carry L2.

    They are those of the paper, or all kernels of the user's own network.

    Args:
        name: one of `MODELS`; ``module:factory`` or ``None`` for the user's own.

    Example:
        >>> decay_for("mlp", nn.Identity(), 0.001), decay_for(None, nn.Linear(2, 2), 0.001)
        (('1.weight', '3.weight'), ('weight',))
    """
    if name is None or ":" in name:
        decay = kernels(module)
    else:
        decay = spec(name, **parameters).decay
    # An L2 term that does nothing would be believed to be there.
    if l2 and not decay:
        what = f"{name or 'the model'} has no kernels that support it"
        raise ConfigError("does-not-fit", "local.l2", what, found=l2, allowed="0")
    return decay


@dataclass(frozen=True, slots=True)
class Network:
    """A network with its first weights, the names of its kernels that carry L2, and whether it is the
    user's own."""

    module: nn.Module
    decay: tuple[str, ...]
    own: bool = True

    @classmethod
    def of(
        cls,
        model: nn.Module | str,
        shape: tuple[int, ...],
        outputs: int,
        seed: int,
        l2: float,
        options: Mapping[str, Any] | None = None,
    ) -> Network:
        """The network of a name, with weights from the seed, or of ``module:factory``, or a module
        of the user's own, whose weights stay."""
        options = options or {}
        if isinstance(model, str):
            module = build_model(model, shape, outputs, Key(seed).of("model"), **options)
            check_trained(module)
            return cls(module, decay_for(model, module, l2, **options), own=":" in model)
        check_trained(model)
        # A user's module keeps its weights; only networks that have a name are drawn from the seed.
        return cls(model, decay_for(None, model, l2))
