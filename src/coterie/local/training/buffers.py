"""The memory of a block of clients: its models, and steps that are recorded as CUDA graphs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from coterie.core import Layout, Solver


class ModelBuffers:
    """Parameters, starts and velocities of a block, each tensor of the network as ``[capacity,
    ...]``. They are made once, for the largest block, and refilled for each."""

    def __init__(self, layout: Layout, trained: Sequence[str], device: str) -> None:
        self.layout = layout
        self.trained = trained
        self.device = device
        self.capacity = 0
        # name -> what each client was sent; buffers are only here
        self.start: dict[str, Tensor] = {}
        # what is trained, in the order of `trained`
        self.params: list[Tensor] = []
        self.velocity: list[Tensor] = []
        # the summed loss of each client's last pass
        self.loss = torch.empty(0, device=device)

    def fill(self, starts: Tensor, solver: Solver) -> bool:
        """Put in the models ``[n, d]`` that clients start from; whether the buffers had to be made
        larger, and are elsewhere now."""
        n = len(starts)
        grown = n > self.capacity
        if grown:
            self._make(n)
        parts = torch.split(starts, list(self.layout.sizes), dim=1)
        for tensor, part in zip(self.start.values(), parts, strict=True):
            tensor[:n] = part.view(n, *tensor.shape[1:]).to(self.device)
        for name, param in zip(self.trained, self.params, strict=True):
            param[:n] = self.start[name][:n]
        if solver.momentum:
            for velocity in self.velocity:
                velocity[:n] = 0
        self.loss[:n] = 0
        return grown

    def _make(self, n: int) -> None:
        self.capacity = n
        for name, shape in zip(self.layout.names, self.layout.shapes, strict=True):
            self.start[name] = torch.empty(n, *shape).to(self.device)
        self.params = [torch.empty_like(self.start[name]) for name in self.trained]
        self.velocity = [torch.empty_like(param) for param in self.params]
        self.loss = torch.empty(n, device=self.device)

    def updates(self, starts: Tensor) -> Tensor:
        """What training added to the models ``[n, d]``, on the CPU."""
        n = len(starts)
        moved = dict(zip(self.trained, self.params, strict=True))
        # What is not trained ends where it began, so that its update is zero.
        ends = [moved.get(name, self.start[name])[:n].reshape(n, -1) for name in self.layout.names]
        return torch.cat(ends, dim=1).to("cpu") - starts


Step = Callable[[Sequence[Tensor]], None]
Record = Callable[[Callable[[], None], Sequence[Tensor]], Callable[[], Any]]


class CudaGraphCache:
    """Runs a step on copies of its inputs that stay in place, so that a recording finds them again.
    ``record(step, state)`` returns the replay, and leaves ``state``, which the step writes, as
    before."""

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
