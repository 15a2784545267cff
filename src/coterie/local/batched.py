"""Local SGD of many clients at once: one gradient call a step for all of them, through
``torch.func``.

Clients are sorted by their number of steps, so that those which are done drop off the end: at step
``s`` the first ``A_s`` take part. Every client has its own parameters, batches and dropout masks,
drawn from its own key as when it trains alone, so the result is that of
`coterie.local.sgd.Autograd` to rounding, whoever shares a block with it.

Batches that are shorter than others are padded with samples of label ``-100``, which cross-entropy
leaves out, where nothing else sees them; else they take a call of their own.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call, grad_and_value, vmap

from coterie.core.arrays import FloatArray, IntArray
from coterie.core.keys import Key
from coterie.core.objective import Objective, ignores_padding
from coterie.core.solver import Solver
from coterie.core.vectors import Layout
from coterie.errors import ConfigError
from coterie.local.cuda_graphs import CudaGraphCache, cuda_graph
from coterie.local.dropout import Call, answered, drawn, noted
from coterie.local.sgd import batches, channels_last, convolves

Precision = Literal["float32", "tf32", "bfloat16"]
Sample = tuple[Tensor, Tensor]
_IGNORED = -100
_REPEATS = 16  # steps of a shape that are worth a recording


@dataclass(frozen=True, slots=True)
class Device:
    """Where and how a block is computed.

    Args:
        name: ``cpu``, ``cuda``, ``cuda:1``, ...
        precision: of the arithmetic; ``tf32`` and ``bfloat16`` are faster on a GPU, and not equal
            to ``serial``.
        graphs: record steps as CUDA graphs where their shapes repeat.
    """

    name: str = "cpu"
    precision: Precision = "float32"
    graphs: bool = False

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Inside, float32 products are what ``precision`` says; afterwards, what they were."""
        backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
        before = [backend.allow_tf32 for backend in backends]
        for backend in backends:
            backend.allow_tf32 = self.precision == "tf32"
        try:
            yield
        finally:
            for backend, old in zip(backends, before, strict=True):
                backend.allow_tf32 = old


@dataclass(frozen=True, slots=True)
class Schedule:
    """The batches of a block, step after step, and in a step client after client.

    Args:
        active: int64 ``[T]``, how many clients take part in each step.
        rows: int64 ``[sum active, B]``, pooled samples; a batch that is shorter repeats the
            client's first.
        count: int64 ``[sum active]``, the samples that count.
        last: bool ``[sum active]``, whether the step belongs to the last pass.
    """

    active: IntArray
    rows: IntArray
    count: IntArray
    last: Any

    @classmethod
    def of(cls, sizes: Sequence[int], solver: Solver, keys: Sequence[Key]) -> Schedule:
        """For clients whose samples lie one after another, in descending order of steps.

        Example:
            >>> s = Schedule.of([5, 2], Solver(epochs=1, batch_size=2), [Key(0), Key(1)])
            >>> s.active.tolist(), s.count.tolist()
            ([2, 1, 1], [2, 2, 2, 1])
        """
        steps = np.array([solver.count(size) for size in sizes], np.int64)
        width = max(1, min(solver.batch_size, max(sizes, default=1)))
        active = (steps[:, None] > np.arange(steps.max(initial=0))).sum(axis=0)
        before = np.concatenate([[0], np.cumsum(active)])
        rows = np.empty((before[-1], width), np.int64)
        count = np.empty(before[-1], np.int64)
        last = np.zeros(before[-1], bool)
        first = np.concatenate([[0], np.cumsum(sizes)])
        for i, (size, key) in enumerate(zip(sizes, keys, strict=True)):
            at = before[: steps[i]] + i
            done = 0
            whole = -(-size // width)
            for part in batches(size, solver, key.of("shuffle").generator()):
                order = np.concatenate(
                    [part.order, np.zeros(whole * width - size, np.int64)]
                ).reshape(whole, width)
                mine = at[done : done + part.steps]
                rows[mine] = first[i] + order[: part.steps]
                count[mine] = np.minimum(size - width * np.arange(part.steps), width)
                last[mine] = part.last
                done += part.steps
        return cls(active, rows, count, last)


class _Loss(nn.Module):
    """An objective as a network of two: the one in training, and the one received."""

    def __init__(self, module: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model = copy.deepcopy(module).train()
        self.received = copy.deepcopy(module).eval().requires_grad_(False)
        self.objective = objective
        self.compares = False

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.objective.loss(self.model, x, y, self._received)

    def _received(self) -> nn.Module:
        self.compares = True
        return self.received


class BatchedTrainer:
    """Trains blocks of clients on one device. It keeps buffers, never anything that changes a
    result.

    Args:
        module: the network; it is copied.
        objective: gives the batch loss.
        decay: names of the kernels that carry L2.
        device: where and how.

    Raises:
        ConfigError: when it first trains, for a network that keeps running statistics, or draws
            random numbers otherwise than by dropout.
    """

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        decay: tuple[str, ...] = (),
        device: Device | None = None,
    ) -> None:
        refuse_statistics(module)
        self.device = device or Device()
        self.layout = Layout.of(module)
        self.network = _Loss(module, objective).to(self.device.name)
        self.convolves = convolves(module)
        self.decay = decay
        self.trained = [name for name, p in module.named_parameters() if p.requires_grad]
        self.calls: dict[int, list[Call]] = {}
        self.padded: bool | None = None
        self.saved = 0  # bytes of activations that a sample leaves for the backward pass
        self.capacity = 0
        self.replay = CudaGraphCache(cuda_graph)
        self.gradient = vmap(grad_and_value(self._loss), randomness="error")

    def train(
        self,
        samples: Sequence[Sample],
        starts: Tensor,
        solver: Solver,
        keys: Sequence[Key],
        end: float | None = None,
    ) -> tuple[Tensor, FloatArray, Any]:
        """Train clients from ``starts [n, d]``, those with the most steps first.

        Args:
            samples: inputs and labels of each client.
            starts: float32 ``[n, d]``, the model that each one was sent.
            solver: local SGD.
            keys: the clients' streams.
            end: of the monotonic clock; clients that have steps left then are given up.

        Returns:
            updates float32 ``[n, d]`` on the CPU, mean losses of the last pass ``[n]``, and who is
            done, bool ``[n]``.
        """
        schedule = Schedule.of([len(y) for _, y in samples], solver, keys)
        x = torch.cat([x for x, _ in samples])
        y = torch.cat([y for _, y in samples])
        self.look(x, y)
        self._place(starts, solver)
        with self.device.arithmetic():
            steps = self._steps(schedule, x, y, solver, keys, end)
        done = np.zeros(len(samples), bool)
        done[schedule.active[steps] if steps < len(schedule.active) else 0 :] = True
        seen = np.zeros(len(samples))
        np.add.at(seen, _clients(schedule), schedule.count * schedule.last)
        loss = self.loss[: len(samples)].cpu().numpy().astype(np.float64) / np.maximum(seen, 1)
        return self._updates(starts), loss, done

    def cost(self, size: int, most: int, x: Tensor, solver: Solver) -> int:
        """Bytes that a client with ``size`` samples like ``x`` takes in a block whose largest has
        ``most``."""
        batch = min(most, solver.batch_size)
        sample = x[0].numel() * x.element_size()
        models = 4 * self.layout.d * (4 + bool(solver.momentum))
        return models + size * sample + batch * (2 * sample + 3 * self.saved)

    # --- a look at the network, once --------------------------------------------------------------

    def look(self, x: Tensor, y: Tensor) -> None:
        """Run the network on a few samples, to learn what it keeps, whether it compares, and what
        may be padded."""
        if self.padded is not None or not len(y):
            return
        several = torch.arange(3) % len(y)
        before = [buffer.clone() for buffer in self.network.buffers()]
        with saved_tensors_hooks(self._count, lambda kept: kept):
            three = self._note(x[several], y[several])
        self.saved = -(-self.saved // 3)
        if any(not torch.equal(a, b) for a, b in zip(before, self.network.buffers(), strict=True)):
            raise ConfigError(
                "engine.name: vmap trains no network that changes its buffers as it goes; expected pool or serial"
            )
        two = self._note(x[several[:2]], y[several[:2]])
        rowwise = self._rowwise(x[several])
        leading = len(two) == len(three) and all(
            a.shape == (2, *a.shape[1:]) and b.shape == (3, *a.shape[1:])
            for a, b in zip(two, three, strict=True)
        )
        self.padded = ignores_padding(self.network.objective) and rowwise and leading

    def _count(self, kept: Tensor) -> Tensor:
        self.saved += kept.numel() * kept.element_size()
        return kept

    def _note(self, x: Tensor, y: Tensor) -> list[Call]:
        """The calls of dropout on a batch like this, in the memory order in which a client alone
        would see it."""
        x = channels_last(x) if self.convolves else x
        x = x.to(self.device.name)
        y = y.to(self.device.name)
        self.calls[len(y)] = noted(lambda: self.network(x, y))
        return self.calls[len(y)]

    @torch.no_grad()
    def _rowwise(self, x: Tensor) -> bool:
        """Whether the answer to a sample is the same whoever shares its batch, in training and
        afterwards."""
        x = x.to(self.device.name)
        others = torch.cat([x[:1], torch.zeros_like(x[1:])])
        for network in (self.network.model, self.network.received):
            logits: list[Tensor] = []
            with replace(self.device, precision="float32").arithmetic():
                noted(lambda: logits.extend(network(batch)[0] for batch in (x, x[:2], others)))  # noqa: B023 - run at once
            if not all(
                torch.allclose(logits[0], other, atol=1e-4, rtol=1e-4) for other in logits[1:]
            ):
                return False
        return True

    # --- buffers ----------------------------------------------------------------------------------

    def _place(self, starts: Tensor, solver: Solver) -> None:
        """Parameters, starts and velocities of a block, each tensor of the network as ``[capacity,
        ...]``."""
        n = len(starts)
        if n > self.capacity:
            self.replay.clear()
            self.capacity = n
            make = {
                name: torch.empty(n, *s)
                for name, s in zip(self.layout.names, self.layout.shapes, strict=True)
            }
            self.start = {name: tensor.to(self.device.name) for name, tensor in make.items()}
            self.params = [torch.empty_like(self.start[name]) for name in self.trained]
            self.velocity = [torch.empty_like(p) for p in self.params]
            self.loss = torch.empty(n, device=self.device.name)
        parts = torch.split(starts, list(self.layout.sizes), dim=1)
        for (_, place), part in zip(self.start.items(), parts, strict=True):
            place[:n] = part.view(n, *place.shape[1:]).to(self.device.name)
        for name, p in zip(self.trained, self.params, strict=True):
            p[:n] = self.start[name][:n]
        for zeroed in [*(self.velocity if solver.momentum else []), self.loss]:
            zeroed[:n] = 0

    def _updates(self, starts: Tensor) -> Tensor:
        n = len(starts)
        moved = dict(zip(self.trained, self.params, strict=True))
        ends = [moved.get(name, self.start[name])[:n].reshape(n, -1) for name in self.layout.names]
        return torch.cat(ends, dim=1).to("cpu") - starts

    # --- the steps --------------------------------------------------------------------------------

    def _steps(
        self,
        schedule: Schedule,
        x: Tensor,
        y: Tensor,
        solver: Solver,
        keys: Sequence[Key],
        end: float | None,
    ) -> int:
        """Run all steps, or those before the deadline; returns how many."""
        device = self.device.name
        width = schedule.rows.shape[1]
        x = x.to(device)
        y = y.to(device)
        rows = torch.from_numpy(schedule.rows).to(device)
        void = torch.from_numpy(schedule.count[:, None] <= np.arange(width)).to(device)
        weight = torch.from_numpy((schedule.count * schedule.last).astype(np.float32)).to(device)
        streams = [key.of("noise").torch() for key in keys] if self.calls[2] else []
        repeats = np.bincount(schedule.active)
        at = 0
        for step, count in enumerate(schedule.active.tolist()):
            if end is not None and time.monotonic() > end:
                return step
            here = slice(at, at + count)
            lengths = schedule.count[here]
            at = at + count
            xs = x[rows[here]]
            ys = y[rows[here]].masked_fill_(void[here], _IGNORED)
            if self.padded or (lengths == width).all():
                masks = self._masks(lengths, width, streams, x)
                given = [xs, ys, weight[here], *masks]
                if self.device.graphs and self._repeats(count, int(repeats[count]), solver):
                    self.replay(
                        (count, width, solver),
                        given,
                        lambda g: self._together(g, solver),
                        self._state(solver),
                    )
                else:
                    self._together(given, solver)
            else:
                self._apart(xs, ys, weight[here], lengths, streams, x, solver)
        return len(schedule.active)

    def _repeats(self, count: int, times: int, solver: Solver) -> bool:
        return times >= _REPEATS or (count, solver) in self.replay

    def _state(self, solver: Solver) -> list[Tensor]:
        return [*self.params, *(self.velocity if solver.momentum else []), self.loss]

    def _masks(
        self, lengths: IntArray, width: int, streams: Sequence[torch.Generator], like: Tensor
    ) -> list[Tensor]:
        """The masks of the first clients for a step, each from its own stream."""
        if not streams:
            return []
        for length in np.unique(lengths).tolist():
            if length not in self.calls:
                self._note(
                    like[:1].expand(length, *like.shape[1:]).cpu(),
                    torch.zeros(length, dtype=torch.int64),
                )
        masks = drawn(self.calls, lengths.tolist(), width, streams[: len(lengths)])
        return [mask.to(self.device.name) for mask in masks]

    def _together(self, given: Sequence[Tensor], solver: Solver) -> None:
        """One step of the first clients, with batches of one length."""
        x, y, weight, *masks = given
        grads, losses = self._gradients(slice(0, len(y)), x, y, masks)
        self._descend(grads, losses, weight, solver)

    def _apart(
        self,
        x: Tensor,
        y: Tensor,
        weight: Tensor,
        lengths: IntArray,
        streams: Sequence[torch.Generator],
        like: Tensor,
        solver: Solver,
    ) -> None:
        """One step of the first clients, with a gradient call for each length of a batch."""
        grads = [torch.empty_like(p[: len(y)]) for p in self.params]
        losses = torch.empty_like(weight)
        for length in np.unique(lengths).tolist():
            mine = np.flatnonzero(lengths == length)
            rows = torch.from_numpy(mine).to(self.device.name)
            masks = self._masks(
                lengths[mine], length, [streams[i] for i in mine.tolist()] if streams else [], like
            )
            some, losses[rows] = self._gradients(rows, x[rows, :length], y[rows, :length], masks)
            for grad, part in zip(grads, some, strict=True):
                grad[rows] = part
        self._descend(grads, losses, weight, solver)

    def _gradients(
        self, rows: slice | Tensor, x: Tensor, y: Tensor, masks: Sequence[Tensor]
    ) -> tuple[list[Tensor], Tensor]:
        params = {
            f"model.{name}": p[rows] for name, p in zip(self.trained, self.params, strict=True)
        }
        fixed = {
            f"model.{name}": p[rows] for name, p in self.start.items() if name not in self.trained
        }
        if self.network.compares:
            fixed |= {f"received.{name}": p[rows] for name, p in self.start.items()}
        grads, losses = self.gradient(params, fixed, x, y, tuple(masks))
        return list(grads.values()), losses

    def _loss(
        self,
        params: Mapping[str, Tensor],
        fixed: Mapping[str, Tensor],
        x: Tensor,
        y: Tensor,
        masks: tuple[Tensor, ...],
    ) -> Tensor:
        """The loss of one client's batch; everything has one dimension less than outside."""
        kind = torch.device(self.device.name).type
        half = torch.autocast(kind, torch.bfloat16, enabled=self.device.precision == "bfloat16")
        with answered(masks), half:
            return functional_call(self.network, {**params, **fixed}, (x, y)).float()

    @torch.no_grad()
    def _descend(self, grads: list[Tensor], losses: Tensor, weight: Tensor, solver: Solver) -> None:
        """One step down, of as many clients as there are gradients: the rule of
        `coterie.local.sgd.Autograd`."""
        n = len(losses)
        mu = self.network.objective.mu
        params = [p[:n] for p in self.params]
        if solver.l2:
            for name, grad, p in zip(self.trained, grads, params, strict=True):
                if name in self.decay:
                    grad.add_(p, alpha=2 * solver.l2)
        if mu:
            torch._foreach_add_(grads, params, alpha=mu)
            torch._foreach_sub_(grads, [self.start[name][:n] for name in self.trained], alpha=mu)
        if solver.momentum:
            velocity = [v[:n] for v in self.velocity]
            torch._foreach_mul_(velocity, solver.momentum)
            torch._foreach_add_(velocity, grads)
            grads = velocity
        torch._foreach_add_(params, grads, alpha=-solver.lr)
        self.loss[:n] += losses.detach() * weight


def refuse_statistics(module: nn.Module) -> None:
    """Refuse a network that keeps running statistics: they change in a forward pass, which ``vmap``
    does not allow.

    Raises:
        ConfigError: naming the layer.
    """
    for name, layer in module.named_modules():
        if getattr(layer, "running_mean", None) is not None:
            raise ConfigError(
                f"engine.name: vmap trains no network with running statistics, got {name or 'the network'} "
                f"({type(layer).__name__}); expected pool or serial, or track_running_stats=False"
            )


def _clients(schedule: Schedule) -> IntArray:
    """The client of each row of a schedule."""
    before = np.cumsum(schedule.active) - schedule.active
    return np.arange(len(schedule.count)) - np.repeat(before, schedule.active)
