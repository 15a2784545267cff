"""What a batch trainer must know of a network before it trains many copies of it at once.

Random numbers cannot be drawn inside ``vmap`` from a generator per client. So a network's calls of
dropout are noted once, on a batch of each length; before a step every client draws its masks from
its own stream, in the order and memory layout of those calls; and in the step the calls are
answered with the masks. So each client has the masks that it would draw alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.backends import cudnn, mkldnn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from coterie.core.objective import Objective, ignores_padding
from coterie.core.vectors import training_mode
from coterie.errors import ConfigError
from coterie.local.device import Device
from coterie.local.training.batches import channels_last, convolves

Answer = Callable[[Tensor, tuple[int, ...], float], Tensor]
_SINGLE = frozenset({F.dropout, torch.dropout, torch.dropout_})
# functions that drop whole channels, and the dimensions of a batch of samples
_CHANNELS: Mapping[Any, int] = {F.dropout1d: 3, F.dropout2d: 4, F.dropout3d: 5}
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of dropout: the shape and the strides of its mask, and the probability of a zero."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    p: float

    def draw(self, generator: torch.Generator) -> Tensor:
        """The mask as torch's CPU dropout draws it: zeros, and ``1 / (1 - p)`` elsewhere."""
        mask = torch.empty_strided(self.shape, self.stride)
        return mask.bernoulli_(1 - self.p, generator=generator).div_(1 - self.p)


class Dropout(TorchFunctionMode):
    """Answers a network's calls of dropout in training by ``answer(input, shape of the mask, p)``.

    Recurrent layers are kept from fused kernels that cannot be batched over models.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _SINGLE or func in _CHANNELS:
            return self._drop(func, args, kwargs)
        if getattr(func, "__name__", "") in _RECURRENT:
            # Fused kernels of recurrent layers have no rule for batches of models.
            with _plain_kernels():
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    def _drop(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        arguments = dict(zip(("input", "p", "training"), args, strict=False)) | dict(kwargs)
        x = arguments["input"]
        p = float(arguments.get("p", 0.5))
        # torch.dropout calls the flag "train", torch.nn.functional.dropout "training".
        training = bool(arguments.get("training", arguments.get("train", True)))
        # Here torch draws nothing, so a client alone draws nothing either.
        if not training or not 0 < p < 1 or not x.numel():
            return func(*args, **kwargs)
        if x.dim() != _CHANNELS.get(func, x.dim()):
            return func(*args, **kwargs)
        shape = tuple(x.shape)
        if func in _CHANNELS:  # whole channels are dropped: a number for each sample and channel
            shape = (*x.shape[:2], *[1] * (x.dim() - 2))
        return self.answer(x, shape, p)


@contextmanager
def _plain_kernels() -> Iterator[None]:
    libraries: tuple[Any, ...] = (mkldnn, cudnn)
    before = [library.enabled for library in libraries]
    for library in libraries:
        library.enabled = False
    try:
        yield
    finally:
        for library, old in zip(libraries, before, strict=True):
            library.enabled = old


def dropout_calls(forward: Callable[[], Any]) -> list[Call]:
    """The calls of dropout in a forward pass, which continues as if nothing were dropped.

    Example:
        >>> [call.shape for call in dropout_calls(lambda: F.dropout(torch.ones(2, 3), 0.5))]
        [(2, 3)]
    """
    calls: list[Call] = []

    def note(x: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
        # torch draws a mask in the memory order of its input, so its strides are noted, too.
        like = torch.empty(shape)
        if shape == tuple(x.shape):
            like = torch.empty_like(x)
        calls.append(Call(shape, like.stride(), p))
        return x

    with Dropout(note):
        forward()
    return calls


def with_masks(masks: Sequence[Tensor]) -> Dropout:
    """Calls of dropout multiply their input by the next mask.

    Example:
        >>> with with_masks([torch.tensor([0.0, 2.0])]):
        ...     F.dropout(torch.ones(2), 0.5).tolist()
        [0.0, 2.0]
    """
    following = iter(masks)
    return Dropout(lambda x, shape, p: x * next(following).to(x.dtype))


def draw_masks(
    calls: Mapping[int, Sequence[Call]],
    lengths: Sequence[int],
    rows: int,
    generators: Sequence[torch.Generator],
) -> list[Tensor]:
    """The masks of one step of some clients: per call ``[clients, rows, ...]``, padded with ones
    where a batch is shorter than ``rows``. ``calls``: batch length -> the calls of a forward pass.
    """
    each = [
        [_padded(call.draw(generator), rows - length) for call in calls[length]]
        for length, generator in zip(lengths, generators, strict=True)
    ]
    return [torch.stack(masks) for masks in zip(*each, strict=True)]


def _padded(mask: Tensor, short: int) -> Tensor:
    if short:
        return torch.cat([mask, mask.new_ones(short, *mask.shape[1:])])
    return mask


class LossNetwork(nn.Module):
    """An objective as a network of two: the one in training, and the one received."""

    def __init__(self, module: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model = training_mode(copy.deepcopy(module))
        self.received = copy.deepcopy(module).eval().requires_grad_(False)
        self.objective = objective
        self.compares = False

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of a batch."""
        return self.objective.loss(self.model, x, y, self._received)

    def _received(self) -> nn.Module:
        self.compares = True
        return self.received


class NetworkProbe:
    """Runs a network on a few samples, once, and remembers what it saw."""

    def __init__(self, network: LossNetwork, device: Device) -> None:
        self.network = network
        self.device = device
        self.convolves = convolves(network.model)
        # batch length -> the calls of dropout in a forward pass
        self.calls: dict[int, list[Call]] = {}
        # whether short batches may be padded; None before the network was run
        self.padded: bool | None = None
        # bytes of activations that a sample leaves for the backward pass
        self.saved = 0

    def run(self, x: Tensor, y: Tensor) -> None:
        """Run the network on three samples and on two, unless that was done before.

        Raises:
            ConfigError: for a network that changes its buffers in a forward pass.
        """
        if self.padded is not None or not len(y):
            return
        # Three and two samples: enough to see what grows with the batch. One would make layers fail
        # that need several, such as batch normalisation.
        several = torch.arange(3) % len(y)
        before = [buffer.clone() for buffer in self.network.buffers()]
        with saved_tensors_hooks(self._count, lambda kept: kept):
            three = self.note(x[several], y[several])
        self.saved = -(-self.saved // 3)
        after = self.network.buffers()
        if any(not torch.equal(old, new) for old, new in zip(before, after, strict=True)):
            what = "vmap does not support networks that change their buffers in training"
            raise ConfigError("does-not-fit", "engine.name", what, allowed="pool or serial")
        two = self.note(x[several[:2]], y[several[:2]])
        # A batch may be padded where nothing sees the padding: the loss leaves it out, a sample's
        # outputs do not depend on its neighbours, and dropout's masks have a row for each sample.
        by_sample = len(two) == len(three) and all(
            short.shape == (2, *short.shape[1:]) and long.shape == (3, *short.shape[1:])
            for short, long in zip(two, three, strict=True)
        )
        ignored = ignores_padding(self.network.objective)
        self.padded = ignored and self._rowwise(x[several]) and by_sample

    def note(self, x: Tensor, y: Tensor) -> list[Call]:
        """The calls of dropout on a batch like this, in the memory order in which a client alone
        would see it: the order in which its mask is drawn follows the memory."""
        if self.convolves:
            x = channels_last(x)
        x = x.to(self.device.name)
        y = y.to(self.device.name)
        self.calls[len(y)] = dropout_calls(lambda: self.network(x, y))
        return self.calls[len(y)]

    def _count(self, kept: Tensor) -> Tensor:
        self.saved += kept.numel() * kept.element_size()
        return kept

    @torch.no_grad()
    def _rowwise(self, x: Tensor) -> bool:
        """Whether the answer to a sample is the same whoever shares its batch, in training and
        afterwards."""
        x = x.to(self.device.name)
        # The first sample with the others, with fewer, and with zeros.
        others = torch.cat([x[:1], torch.zeros_like(x[1:])])
        for network in (self.network.model, self.network.received):
            first = [self._first_output(network, batch) for batch in (x, x[:2], others)]
            whole, *parts = first
            if not all(torch.allclose(whole, part, atol=1e-4, rtol=1e-4) for part in parts):
                return False
        return True

    def _first_output(self, network: nn.Module, batch: Tensor) -> Tensor:
        """What the network says of the first sample, with nothing dropped."""
        outputs: list[Tensor] = []
        with replace(self.device, precision="float32").arithmetic():
            dropout_calls(lambda: outputs.append(network(batch)[0]))
        return outputs[0]


def has_running_statistics(module: nn.Module) -> bool:
    """Whether a network keeps running statistics: they change in a forward pass, which
    ``torch.func.vmap`` does not allow.

    Example:
        >>> has_running_statistics(nn.BatchNorm1d(3)), has_running_statistics(nn.GroupNorm(1, 3))
        (True, False)
    """
    return any(getattr(layer, "running_mean", None) is not None for layer in module.modules())


def draws(module: nn.Module, objective: Objective, x: Tensor, y: Tensor) -> bool:
    """Whether a training draws random numbers in its steps, as dropout does, or whether that cannot
    be said.

    Args:
        x: inputs, of which it sees up to three.

    Example:
        >>> from coterie.objectives import plain
        >>> x, y = torch.ones(2, 3), torch.tensor([0, 1])
        >>> draws(nn.Dropout(0.5), plain, x, y), draws(nn.Linear(3, 2), plain, x, y)
        (True, False)
    """
    if not len(y):
        return True
    # Three, since batch normalisation fails on one.
    several = torch.arange(3) % len(y)
    network = LossNetwork(module, objective)
    generator = torch.default_generator
    before = generator.get_state()
    try:
        network(x[several], y[several])
    except Exception:  # noqa: BLE001 - the training raises it again, and names the client
        return True
    else:
        return not torch.equal(before, generator.get_state())
    finally:
        generator.set_state(before)
