"""Which samples each client of a block takes in each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import IntArray
from coterie.core.keys import Key
from coterie.core.solver import Solver
from coterie.local.batches import batches


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

        Args:
            sizes: samples of each client.
            solver: gives batch size and budget.
            keys: the clients' streams; each is shuffled as when it trains alone.

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
