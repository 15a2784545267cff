"""FedFusion's objective: features of the model received are fused into those in training."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import ModuleType
from typing import Annotated, Literal, NoReturn

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules import activation, batchnorm, instancenorm, normalization, pooling

from coterie.config.arguments import validated
from coterie.core.keys import Key, keyed_torch
from coterie.core.objective import mean_loss
from coterie.core.task import Task, is_classes
from coterie.errors import ConfigError
from coterie.tasks import CLASSIFICATION

Operator = Literal["conv", "multi", "single"]
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

# The operator's name among the layers of the network.
NAME = "fusion"


def _layers_of(module: ModuleType) -> list[type[nn.Module]]:
    """The layers that a module of torch defines, without those it only imports."""
    return [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, nn.Module)
        and kind.__module__ == module.__name__
    ]


# What still belongs to the block of the layer before it: features are fused behind it.
FOLLOWERS = tuple(
    kind
    for module in (activation, batchnorm, instancenorm, normalization, pooling)
    for kind in _layers_of(module)
)


# --- operators and the network --------------------------------------------------------------------


class Mix(nn.Module):
    """``conv``: a 1x1 convolution from ``2C`` channels to ``C`` on the two streams side by side.

    The local stream comes first, as in the reference code. After a dense layer it is a linear one.
    """

    def __init__(self, layer: nn.Module, channels: int) -> None:
        super().__init__()
        kind = next((kind for kind in CONVOLUTIONS if isinstance(layer, kind)), None)
        if kind is None:
            self.mix: nn.Module = nn.Linear(2 * channels, channels)
        else:
            self.mix = kind(2 * channels, channels, 1)

    def forward(self, local: Tensor, received: Tensor) -> Tensor:
        return self.mix(torch.cat([local, received], dim=1))


class Blend(nn.Module):
    """``gamma * received + (1 - gamma) * local``.

    There is one ``gamma`` per channel (``multi``) or one for all (``single``). It starts at 0, the
    network without an operator, as in the reference code.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(size))

    def forward(self, local: Tensor, received: Tensor) -> Tensor:
        gamma = self.gamma.view(-1, *[1] * (local.dim() - 2))
        return gamma * received + (1 - gamma) * local


class Fused(nn.Sequential):
    """A network with an operator between its feature extractor and the rest.

    The layers keep their names, and the operator has its place among them. Alone, as the server and
    the report use it, the network takes its own features for both inputs of the operator.

    Args:
        layers: named layers of the network.
        cut: number of layers that are the feature extractor.
        operator: ``(local, received) -> fused``.
    """

    def __init__(
        self, layers: Sequence[tuple[str, nn.Module]], cut: int, operator: nn.Module
    ) -> None:
        super().__init__(OrderedDict([*layers[:cut], (NAME, operator), *layers[cut:]]))
        self.cut = cut

    def features(self, x: Tensor) -> Tensor:
        """The feature maps ``[n, C, ...]`` that are fused."""
        for layer in islice(self, self.cut):
            x = layer(x)
        return x

    def forward(self, x: Tensor, received: Tensor | None = None) -> Tensor:
        local = self.features(x)
        if received is None:
            received = local
        operator, *head = islice(self, self.cut, None)
        x = operator(local, received)
        for layer in head:
            x = layer(x)
        return x


def fuse(module: nn.Module, operator: Operator, key: Key) -> Fused:
    """The network with an operator behind its last convolutional block.

    Without convolutions, the operator comes after the last hidden layer.

    Args:
        module: an ``nn.Sequential``; it is copied.
        operator: ``conv``, ``multi`` or ``single``.
        key: the stream of the operator's first weights.

    Raises:
        ConfigError: if there is neither a convolution nor a hidden layer.

    Example:
        >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        >>> [name for name, _ in fuse(net, "conv", Key(0)).named_children()]
        ['0', '1', '2', 'fusion', '3']
    """
    if not isinstance(module, nn.Sequential):
        _refuse(f"is a {type(module).__name__}")
    layers = [*copy.deepcopy(module).named_children()]
    cut, layer = _place_of_operator([layer for _, layer in layers])
    channels = layer.out_features if isinstance(layer, nn.Linear) else layer.out_channels
    assert isinstance(channels, int)
    assert NAME not in dict(layers)
    # Constructors draw from torch's global generator, which must stay as it was.
    with keyed_torch(key):
        made = _make_operator(operator, layer, channels)
    # Kernels as in `coterie.models`, and a stream by name: the layers' own first weights stay.
    for name, parameter in made.named_parameters():
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter, generator=key.of(f"{NAME}.{name}").torch())
        else:
            nn.init.zeros_(parameter)
    return Fused(layers, cut, made)


def _make_operator(operator: Operator, layer: nn.Module, channels: int) -> nn.Module:
    if operator == "conv":
        return Mix(layer, channels)
    if operator == "multi":
        return Blend(channels)
    return Blend(1)


def _place_of_operator(layers: Sequence[nn.Module]) -> tuple[int, nn.Module]:
    """Behind which layer the features are whole, and which one makes them."""
    dense = [at for at, layer in enumerate(layers) if _parts(layer, (nn.Linear,))]
    convolved = [at for at, layer in enumerate(layers) if _parts(layer, CONVOLUTIONS)]
    if convolved and convolved[-1] in dense:
        _refuse("has its last convolution and dense layers in one block")
    if not convolved and len(dense) < 2:
        _refuse("has neither a convolution nor a hidden layer")
    if convolved:
        at = convolved[-1]
        kinds: tuple[type[nn.Module], ...] = CONVOLUTIONS
    else:
        # The last dense layer is the classifier, the one before it makes the features.
        at = dense[-2]
        kinds = (nn.Linear,)
    end = at + 1
    while end < len(layers) - 1 and isinstance(layers[end], FOLLOWERS):
        end += 1
    return end, _parts(layers[at], kinds)[-1]


def _parts(layer: nn.Module, kinds: tuple[type[nn.Module], ...]) -> list[nn.Module]:
    return [part for part in layer.modules() if isinstance(part, kinds)]


def _refuse(what: str) -> NoReturn:
    raise ConfigError(
        "does-not-fit",
        "model.name",
        "fusion puts an operator between features and classifier",
        found=f"a network that {what}",
        allowed="an nn.Sequential with a convolution or a hidden layer, such as cnn_mnist, lenet5 or mlp",
    )


# --- the objective --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fusion:
    """The loss of the task for the network whose features are ``F(E_l(x), E_g(x))``.

    ``E_l`` is the extractor in training, ``E_g`` that of the model received, frozen. The operator
    ``F`` is trained and averaged like everything else, but the server follows the coefficients
    ``gamma`` slowly: ``gamma <- (1 - smoothing) mean of the clients' + smoothing gamma``.

    Source: Yao et al., Towards Faster and Better Federated Learning: A Feature Fusion Approach
    (2019).
    """

    operator: Operator = "conv"
    smoothing: float = 0.9
    task: Task = CLASSIFICATION

    def for_task(self, task: Task) -> Fusion:
        return replace(self, task=task)

    @property
    def mu(self) -> float:
        return 0.0

    @property
    def form(self) -> Literal["cross_entropy_of_more", "other"]:
        if is_classes(self.task):
            return "cross_entropy_of_more"
        return "other"

    def network(self, module: nn.Module, key: Key) -> nn.Module:
        return fuse(module, self.operator, key)

    def pace(self) -> Mapping[str, float]:
        # The server takes so much of gamma's update: gamma + (1 - s) (mean - gamma) is the formula.
        if self.operator == "conv":
            return {}
        return {f"{NAME}.gamma": 1 - self.smoothing}

    def loss(
        self, module: nn.Module, x: Tensor, y: Tensor, received: Callable[[], nn.Module]
    ) -> Tensor:
        sent = received()
        assert isinstance(module, Fused), "the network has no operator"
        assert isinstance(sent, Fused)
        # Only the extractor of the model received is used, and it is not trained.
        with torch.no_grad():
            features = sent.features(x)
        return mean_loss(self.task, module(x, features), y)


@validated
def fusion(
    operator: Operator = "conv", smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.9
) -> Fusion:
    """Cross-entropy of FedFusion's network, which fuses in the features of the model received.

    Args:
        operator: ``conv``: a 1x1 convolution of both; ``multi``: a coefficient per channel;
            ``single``: one coefficient for all channels.
        smoothing: how much of its old coefficient the server keeps (``multi``, ``single``).

    Example:
        >>> fusion("single").pace()["fusion.gamma"] == 1 - 0.9
        True
    """
    return Fusion(operator, smoothing)
