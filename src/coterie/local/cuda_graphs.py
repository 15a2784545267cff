"""Steps of a shape that repeats: recorded once as a CUDA graph, then replayed without a call from
Python in between."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

Step = Callable[[Sequence[Tensor]], None]
Record = Callable[[Callable[[], None], Sequence[Tensor]], Callable[[], Any]]


class CudaGraphCache:
    """Runs a step on copies of its inputs that stay in place, so that a recording finds them again.

    Args:
        record: ``(step, state) -> replay``, where ``state`` is what a step writes: it must be as
            before afterwards.
        most: recordings kept.

    Example:
        >>> total = torch.zeros(2)
        >>> replay = CudaGraphCache(lambda step, state: step)
        >>> for value in (1.0, 2.0):
        ...     replay("two", [torch.full((2,), value)], lambda inputs: total.add_(inputs[0]), [total])
        >>> total.tolist()
        [3.0, 3.0]
    """

    def __init__(self, record: Record, most: int = 64) -> None:
        self.record = record
        self.most = most
        self.kept: OrderedDict[Hashable, tuple[list[Tensor], Callable[[], Any]]] = OrderedDict()

    def __contains__(self, name: Hashable) -> bool:
        return name in self.kept

    def __call__(
        self, name: Hashable, inputs: Sequence[Tensor], step: Step, state: Sequence[Tensor]
    ) -> None:
        """A step on ``inputs``; the first of its name is recorded."""
        if name not in self.kept:
            # A recording reads and writes fixed addresses: inputs are copied to where they were.
            placed = [tensor.clone() for tensor in inputs]
            self.kept[name] = (placed, self.record(lambda: step(placed), state))
            while len(self.kept) > self.most:
                self.kept.popitem(last=False)
        self.kept.move_to_end(name)
        placed, replay = self.kept[name]
        for place, tensor in zip(placed, inputs, strict=True):
            place.copy_(tensor)
        replay()

    def clear(self) -> None:
        """Forget all recordings: what they write has moved."""
        self.kept.clear()


def cuda_graph(step: Callable[[], None], state: Sequence[Tensor]) -> Callable[[], Any]:
    """A step as a CUDA graph. It is run twice beforehand on a side stream, as capturing asks for,
    and undone: libraries set themselves up in their first calls, which cannot be captured."""
    # The stream is one of the device that computes, which need not be the current one.
    with torch.cuda.device(state[0].device):
        return _recorded(step, state)


def _recorded(step: Callable[[], None], state: Sequence[Tensor]) -> Callable[[], Any]:
    # The runs that warm up change the state like any other step, so it is put back afterwards.
    before = [tensor.clone() for tensor in state]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    for tensor, old in zip(state, before, strict=True):
        tensor.copy_(old)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
