"""Which samples are in which batch of a local training, and how images lie in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coterie.core import IntArray, Key, Solver
from coterie.core.augment import augmented
from coterie.core.own_model import Batch

_CACHED = 2**18  # bytes that stay in a processor's second cache next to a network
_MOST_SHUFFLED = 2**14  # numbers of samples that are shuffled at once


class TrainingSamples(NamedTuple):
    """What a client trains on."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True, slots=True)
class Pass:
    """One shuffled pass over a client's data, in the order in which batches take them, or the part
    of it that the step budget leaves; ``last``: the training ends with it."""

    order: IntArray
    steps: int
    last: bool


def batches(size: int, solver: Solver, rng: np.random.Generator) -> Iterator[Pass]:
    """The passes of a local training: reshuffled every epoch, the last partial batch kept.

    With ``solver.steps`` set, passes are repeated until that many batches have been drawn. All trainers
    take their batches from here or, all at once, from `joined_batches`, so that they see the same
    samples in the same order.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> [(p.steps, p.last) for p in batches(25, Solver(batch_size=10, steps=7), rng)]
        [(3, False), (3, False), (1, True)]
    """
    left, whole, passes = _counts(size, solver)
    orders = chain.from_iterable(_shuffled(size, passes, rng))
    while left > 0:
        steps = min(whole, left)
        left -= steps
        yield Pass(next(orders), steps, left == 0)


def joined_batches(
    size: int, solver: Solver, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """The samples of all passes of `batches` one after another, int64, and where each pass ends."""
    count, whole, passes = _counts(size, solver)
    if not count:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    drawn = [orders.reshape(-1) for orders in _shuffled(size, passes, rng)]
    order = drawn[0] if len(drawn) == 1 else np.concatenate(drawn)
    ends = size * np.arange(1, passes + 1)
    batches_of_last = count - (passes - 1) * whole
    ends[-1] += min(size, batches_of_last * solver.batch_size) - size
    return order[: ends[-1]], ends


def _counts(size: int, solver: Solver) -> tuple[int, int, int]:
    """Batches of a training, batches of a whole pass, and passes, the last of which may be a part."""
    count = solver.count(size)
    whole = -(-size // solver.batch_size)
    return count, whole, -(-count // whole) if count else 0


def _shuffled(size: int, passes: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """The order of samples in each pass, int64 ``[some passes, size]`` at a time: the draws of
    ``rng.permutation(size)``, pass by pass, in half of the time."""
    # Some passes at once, since there may be many of a client with few samples.
    at_once = max(1, min(passes, _MOST_SHUFFLED // size)) if size else 1
    for first in range(0, passes, at_once):
        in_order = np.empty((min(at_once, passes - first), size), np.int64)
        in_order[:] = np.arange(size)
        yield rng.permuted(in_order, axis=1, out=in_order)


def convolves(module: nn.Module) -> bool:
    """Whether a network has convolutions over images, which are faster with the channels
    innermost."""
    return any(isinstance(m, nn.Conv2d) for m in module.modules())


def channels_last(x: Tensor) -> Tensor:
    """Images ``[B, C, H, W]`` with the channels innermost in memory; anything else as it is.

    With one channel both memory orders are the same, and torch then takes its slower code for
    channels that come first. Strides written out make it take the faster one.

    Example:
        >>> channels_last(torch.zeros(5, 1, 4, 4)).stride()
        (16, 1, 4, 1)
    """
    if x.dim() != 4:
        return x
    _, channels, height, width = x.shape
    x = x.contiguous(memory_format=torch.channels_last)
    return x.as_strided(x.shape, (channels * height * width, 1, width * channels, channels))


def minibatches(
    samples: TrainingSamples, solver: Solver, key: Key, images: bool = False
) -> Iterator[Batch]:
    """The batches of a training by autograd, one after another."""
    size = len(samples.y)
    passes = batches(size, solver, key.of("shuffle").generator())
    # What stays in the processor's cache is gathered for a whole pass: batches are then slices, which
    # cost no copy. More is gathered batch by batch, so that a batch is there when it is trained on.
    small = samples.x.nbytes <= _CACHED or samples.x.device.type != "cpu"
    at_once = small or bool(solver.augment)
    for number, part in enumerate(passes):
        order = torch.from_numpy(part.order).to(samples.x.device)
        ys = samples.y.index_select(0, order)
        if at_once:
            xs = samples.x.index_select(0, order)
            if solver.augment:
                # A stream for each pass, apart from that of dropout.
                xs = augmented(xs, solver.augment, key.of(f"augment-{number}"))
            if images:
                xs = channels_last(xs)
        for at in range(0, part.steps * solver.batch_size, solver.batch_size):
            stop = min(at + solver.batch_size, size)
            if at_once:
                x = xs[at:stop]
            else:
                x = samples.x.index_select(0, order[at:stop])
                if images:
                    x = channels_last(x)
            yield Batch(x, ys[at:stop], part.last)


@dataclass(frozen=True, slots=True)
class BatchSchedule:
    """The batches of a block, step after step, and in a step client after client.

    The clients with the most steps come first. Those that are done therefore drop off the end, and
    in every step the clients that take part are the first ``active[step]``: a slice, not a choice.

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
    last: NDArray[np.bool_]

    @classmethod
    def of(cls, sizes: Sequence[int], solver: Solver, keys: Sequence[Key]) -> BatchSchedule:
        """For clients whose samples lie one after another, in descending order of steps.

        Example:
            >>> s = BatchSchedule.of([5, 2], Solver(epochs=1, batch_size=2), [Key(0), Key(1)])
            >>> s.active.tolist(), s.count.tolist()
            ([2, 1, 1], [2, 2, 2, 1])
        """
        steps = np.array([solver.count(size) for size in sizes], np.int64)
        # Narrower than a batch only where no client has enough samples to fill one.
        width = max(1, min(solver.batch_size, max(sizes, default=1)))
        active = (steps[:, None] > np.arange(steps.max(initial=0))).sum(axis=0)
        before = np.concatenate([[0], np.cumsum(active)])
        rows = np.empty((before[-1], width), np.int64)
        count = np.empty(before[-1], np.int64)
        last = np.zeros(before[-1], bool)
        first = np.concatenate([[0], np.cumsum(sizes)])
        for i, (size, key) in enumerate(zip(sizes, keys, strict=True)):
            at = before[: steps[i]] + i  # this client's rows, one for each of its steps
            done = 0
            whole = -(-size // width)
            # Any valid row will do, since the trainer masks its label: the client's first.
            padding = np.zeros(whole * width - size, np.int64)
            for part in batches(size, solver, key.of("shuffle").generator()):
                order = np.concatenate([part.order, padding]).reshape(whole, width)
                mine = at[done : done + part.steps]
                rows[mine] = first[i] + order[: part.steps]
                count[mine] = np.minimum(size - width * np.arange(part.steps), width)
                last[mine] = part.last
                done += part.steps
        return cls(active, rows, count, last)

    def clients(self) -> IntArray:
        """The client of each row, int64 ``[sum active]``."""
        before = np.cumsum(self.active) - self.active
        return np.arange(len(self.count)) - np.repeat(before, self.active)
