"""Dropout for many clients at once, each with the masks that it would draw alone.

Random numbers cannot be drawn inside ``vmap`` from a generator per client. So a network's calls of
dropout are noted once, on a batch of each length; before a step every client draws its masks from
its own stream, in the order and memory layout of those calls; and in the step the calls are
answered with the masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.backends import cudnn, mkldnn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

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
    """The calls of dropout in a forward pass, which goes on as if nothing were dropped.

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
    """The masks of one step of some clients: per call ``[clients, rows, ...]``, ones where a batch
    is shorter.

    Args:
        calls: batch length -> the calls of a forward pass.
        lengths: of the clients' batches.
        rows: length of the longest, to which others are padded.
        generators: a stream per client.
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
