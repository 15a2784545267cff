"""Asynchronous rounds: updates come in when their clients are done, and a group's model moves
when its buffer is full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from coterie.config.arguments import check_arguments
from coterie.core.arrays import BoolArray, FloatArray, IntArray
from coterie.core.reply_times import ReplyTimes
from coterie.core.updates import Updates


@dataclass(frozen=True, slots=True)
class Buffering:
    """Buffered asynchronous aggregation, for each group by itself.

    An update that began with version ``v`` of its group's model, and comes when that model has moved
    ``s`` times since, counts ``(1 + s)^-exponent`` of itself.

    Args:
        buffer: ``K``, updates that move a group's model.
        concurrency: clients that train at the same time, at most.
        exponent: of the staleness; 0: old updates count as new ones.
        times: how long clients take.

    Raises:
        ConfigError: for a value out of its range.

    Source: Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation (AISTATS 2022),
    Alg. 1, and its section on the experiments for the square root.

    Example:
        >>> Buffering(buffer=2, concurrency=4).scale(np.array([0, 3])).tolist()
        [1.0, 0.5]
    """

    buffer: Annotated[int, Field(ge=1)] = 10
    concurrency: Annotated[int, Field(ge=1)] = 20
    exponent: Annotated[float, Field(ge=0)] = 0.5
    times: ReplyTimes = ReplyTimes()

    def __post_init__(self) -> None:
        numbers = {name: getattr(self, name) for name in ("buffer", "concurrency", "exponent")}
        check_arguments(Buffering, numbers)

    def scale(self, staleness: IntArray) -> FloatArray:
        """How much of itself each update counts, float64 ``[n]``.

        Args:
            staleness: int64 ``[n]``, how often its model moved since its client was sent it.
        """
        return np.power(1.0 + staleness.astype(np.float64), -self.exponent)


@dataclass(frozen=True)
class InFlight:
    """The updates that have not moved a model yet, and the clock.

    Args:
        clock: the time, in the unit of the reply times.
        version: int64 ``[k]``, how often each group's model has moved.
        ids: int64 ``[m]``, the clients.
        row: int64 ``[m]``, the group that each update counts for.
        began: int64 ``[m]``, the version of its group's model that each began with.
        due: float64 ``[m]``, when each comes in.
        arrived: bool ``[m]``, those that are in their group's buffer.
        delta: float32 ``[m, d]``, the updates.
        size: float64 ``[m]``, training samples behind them.
        loss: float64 ``[m]``, mean training loss of the last local epoch.
    """

    record_name: ClassVar[str] = "in_flight"
    # It has no row for each client of the federation.
    newcomer: ClassVar[Mapping[str, float]] = {}

    clock: float
    version: IntArray
    ids: IntArray
    row: IntArray
    began: IntArray
    due: FloatArray
    arrived: BoolArray
    delta: Tensor
    size: FloatArray
    loss: FloatArray

    @classmethod
    def none(cls, k: int, d: int) -> InFlight:
        """Nobody has begun, at time 0.

        Args:
            k: number of groups.
            d: values of a model.
        """
        ids = np.empty(0, np.int64)
        numbers = np.empty(0)
        nothing = torch.empty(0, d)
        version = np.zeros(k, np.int64)
        arrived = np.empty(0, bool)
        return cls(0.0, version, ids, ids, ids, numbers, arrived, nothing, numbers, numbers)

    @property
    def training(self) -> IntArray:
        """The clients that are not done yet."""
        return self.ids[~self.arrived]

    def with_updates(self, updates: Updates, times: FloatArray) -> InFlight:
        """The same with clients that begin now.

        Args:
            updates: what they will send.
            times: float64 ``[n]``, how long each takes.
        """
        return replace(
            self,
            ids=np.concatenate([self.ids, updates.ids]),
            row=np.concatenate([self.row, updates.row]),
            began=np.concatenate([self.began, self.version[updates.row]]),
            due=np.concatenate([self.due, self.clock + times]),
            arrived=np.concatenate([self.arrived, np.zeros(len(updates), bool)]),
            delta=torch.cat([self.delta, updates.delta]),
            size=np.concatenate([self.size, updates.size]),
            loss=np.concatenate([self.loss, updates.loss]),
        )

    def until_full(self, buffer: int) -> tuple[InFlight, IntArray, int | None]:
        """Let updates come in, one after another, until a group has a full buffer.

        Args:
            buffer: ``K``.

        Returns:
            The state then; the rows of the updates that came in; and the group, ``None`` if all came in
            and no buffer is full.
        """
        waiting = np.flatnonzero(~self.arrived)
        # Those that come at the same time come in the order of their clients' numbers.
        order = waiting[np.lexsort((self.ids[waiting], self.due[waiting]))]
        counts = np.bincount(self.row[self.arrived], minlength=len(self.version))
        arrived = self.arrived.copy()
        clock = self.clock
        for number, at in enumerate(order.tolist(), 1):
            arrived[at] = True
            clock = float(self.due[at])
            counts[self.row[at]] += 1
            if counts[self.row[at]] >= buffer:
                state = replace(self, arrived=arrived, clock=clock)
                return state, order[:number], int(self.row[at])
        return replace(self, arrived=arrived, clock=clock), order, None

    def take(self, group: int) -> tuple[InFlight, Updates, IntArray]:
        """Empty the buffer of a group, whose model moves.

        Args:
            group: its number.

        Returns:
            The state without it; its updates in the order of their clients; and int64 ``[n]``, how
            often the model has moved since each began.
        """
        taken = np.flatnonzero(self.arrived & (self.row == group))
        # A client may be in it twice; its older update comes first.
        taken = taken[np.lexsort((self.due[taken], self.ids[taken]))]
        updates = Updates(
            self.ids[taken], self.row[taken], self.delta[taken], self.size[taken], self.loss[taken]
        )
        staleness = self.version[group] - self.began[taken]
        version = self.version.copy()
        version[group] += 1
        left = np.setdiff1d(np.arange(len(self.ids)), taken)
        rest = InFlight(
            self.clock,
            version,
            self.ids[left],
            self.row[left],
            self.began[left],
            self.due[left],
            self.arrived[left],
            self.delta[left],
            self.size[left],
            self.loss[left],
        )
        return rest, updates, staleness
