"""The one door to the clients: engine, gate, quorum and meter behind the engine's own verb."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np
from torch import Tensor

from coterie.engines.gate import Gate
from coterie.keys import Key
from coterie.types import Engine, IntArray, Reply, Train, Work


@dataclass(frozen=True, slots=True)
class Quorum:
    """When a round counts.

    Args:
        min_replies: with fewer updates than this the round is skipped and the models stay as they were.
        max_skipped_rounds: after more than this many skipped rounds in a row the run stops.
    """

    min_replies: int = 1
    max_skipped_rounds: int = 10


@dataclass(slots=True)
class Ledger:
    """What passed the door since it was last read: transfers in models and bytes, refusals, seconds."""

    models: int = 0
    down_bytes: int = 0
    up_bytes: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    training: float = 0.0

    def sent(self, which: IntArray, d: int) -> None:
        """Each client was sent its ``r`` models of ``d`` float32 values."""
        self.models += which.size
        self.down_bytes += 4 * d * which.size

    def got(self, reply: Reply) -> None:
        """What came home; an update counts as one model, scalars only as bytes."""
        self.models += len(reply) if "delta" in reply.fields else 0
        self.up_bytes += sum(4 * values.size for values in reply.fields.values())

    def read(self) -> Ledger:
        """The entries so far; the ledger starts anew."""
        past = Ledger(self.models, self.down_bytes, self.up_bytes, self.refused, self.training)
        self.models = self.down_bytes = self.up_bytes = 0
        self.refused, self.training = Counter(), 0.0
        return past


class Door:
    """What an algorithm sees of its clients.

    Args:
        engine: reaches them.
        gate: checks what they send.
        quorum: says when a round counts.
    """

    def __init__(self, engine: Engine, gate: Gate | None = None, quorum: Quorum | None = None) -> None:
        self.engine = engine
        self.gate = gate or Gate()
        self.quorum = quorum or Quorum()
        self.ledger = Ledger()

    def run(self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key) -> Reply:
        """Ask clients (see ``Engine.run``); one clean block comes back, in ascending order of clients."""
        self.ledger.sent(which, models.shape[1])
        begun = time.perf_counter()
        replies = self.engine.run(work, ids, models, which, key=key)
        if isinstance(work, Train):
            self.ledger.training += time.perf_counter() - begun
        reply, refused = self._admit(work, ids, models, which, replies, key)
        self.ledger.refused += refused
        self.ledger.got(reply)
        return reply

    def measure(self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key) -> Reply:
        """The same for the experimenter's eyes: not metered, since no deployment would send it."""
        replies = self.engine.run(work, ids, models, which, key=key)
        return self._admit(work, ids, models, which, replies, key)[0]

    def _admit(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, replies: Sequence[Reply], key: Key
    ) -> tuple[Reply, Counter[str]]:
        r = which.shape[1] if which.ndim == 2 else 1
        return self.gate.admit(work, np.asarray(ids), replies, round=key.round, d=models.shape[1], r=r)

    def close(self) -> None:
        """Let go of processes and shared memory."""
        self.engine.close()

    def __enter__(self) -> Door:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
