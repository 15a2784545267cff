"""The one door to the clients: engine, gate, quorum and meter behind the engine's own verb."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from coterie.data.population import Population
from coterie.engines.gate import Gate
from coterie.keys import Key
from coterie.ledger import Block
from coterie.types import Engine, IntArray, Reply, Train, Watch, Work
from coterie.vectors import Layout


@dataclass(frozen=True, slots=True)
class Quorum:
    """When a round counts.

    Args:
        min_replies: with fewer updates than this the round is skipped and the models stay as they were.
        max_skipped_rounds: after more than this many skipped rounds in a row the run stops.
    """

    min_replies: int = 1
    max_skipped_rounds: int = 10


def gate_for(population: Population) -> Gate:
    """A gate that lets no client of a simulation claim more samples than any of them holds.

    Example:
        >>> import torch
        >>> x, y = torch.zeros(6, 2), torch.zeros(6, dtype=torch.long)
        >>> gate_for(Population(x, y, (np.arange(2),), (np.arange(2, 6),), 2))
        Gate(cap=2.0, tested=4.0, limit=1000000000000000.0)
    """
    most = (float(max(1, population.sizes(split).max())) for split in ("train", "test"))
    return Gate(*most)


@dataclass(slots=True)
class Ledger:
    """What passed the door since it was last read: transfers, refusals, seconds of training."""

    blocks: list[Block] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    training: float = 0.0
    held: set[tuple[int, int]] = field(default_factory=set)

    def sent(self, key: Key, ids: IntArray, models: Tensor, which: IntArray) -> None:
        """Each client is sent its models of ``d`` float32 values, unless it got the very same one this round."""
        which = which[:, None] if which.ndim == 1 else which
        start, stride = models.data_ptr(), models.shape[1]
        fresh = np.zeros(len(ids), np.int64)
        for at, (id, rows) in enumerate(zip(ids.tolist(), which.tolist(), strict=True)):
            wanted = {(id, start + row * stride) for row in rows}
            fresh[at] = len(wanted - self.held)
            self.held |= wanted
        self.blocks.append(Block(key.round, key.what, False, ids, fresh, 4 * stride * fresh))

    def got(self, key: Key, reply: Reply, d: int) -> None:
        """What came home; a whole update counts as one model, anything less only as bytes."""
        each = sum(4 * math.prod(values.shape[1:]) for values in reply.fields.values())
        whole = "delta" in reply.fields and reply.fields["delta"].shape[1:] == (d,)
        count = np.full(len(reply), int(whole))
        names = tuple("slice" if name == "delta" and not whole else name for name in reply.fields)
        self.blocks.append(Block(key.round, key.what, True, reply.ids, count, np.full(len(reply), each), names))

    def read(self) -> Ledger:
        """The entries so far; the ledger starts anew."""
        past = Ledger(self.blocks, self.refused, self.training)
        self.blocks, self.refused, self.training, self.held = [], Counter(), 0.0, set()
        return past


class Door:
    """What an algorithm sees of its clients.

    Args:
        engine: reaches them.
        gate: checks what they send.
        quorum: says when a round counts.
        classes: number of classes, which all clients agree on.
        able: int64, the clients that can train (they are there and hold samples); ``None``: all.
        layout: names and places of the model's tensors in its flat vector.
        features: values of one input.
        watch: where clients notice drift and place themselves, how to ask what they said; a simulation has none.
    """

    def __init__(
        self,
        engine: Engine,
        gate: Gate | None = None,
        quorum: Quorum | None = None,
        classes: int = 0,
        able: IntArray | None = None,
        layout: Layout | None = None,
        features: int = 0,
        watch: Watch | None = None,
    ) -> None:
        self.engine = engine
        self.gate = gate or Gate()
        self.quorum = quorum or Quorum()
        self.classes = classes
        self.able = able
        self.layout = layout
        self.features = features
        self.watch = watch
        self.ledger = Ledger()

    def run(self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key) -> Reply:
        """Ask clients (see ``Engine.run``); one clean block comes back, in ascending order of clients."""
        self.ledger.sent(key, np.asarray(ids), models, which)
        begun = time.perf_counter()
        replies = self.engine.run(work, ids, models, which, key=key)
        if isinstance(work, Train):
            self.ledger.training += time.perf_counter() - begun
        reply, refused = self._admit(work, ids, models, which, replies, key)
        self.ledger.refused += refused
        self.ledger.got(key, reply, models.shape[1])
        return reply

    def measure(self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key) -> Reply:
        """The same for the experimenter's eyes: no transfer, since no deployment would send it; refusals count."""
        replies = self.engine.run(work, ids, models, which, key=key)
        reply, refused = self._admit(work, ids, models, which, replies, key)
        self.ledger.refused += refused
        return reply

    def _admit(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, replies: Sequence[Reply], key: Key
    ) -> tuple[Reply, Counter[str]]:
        r = which.shape[1] if which.ndim == 2 else 1
        return self.gate.admit(
            work, np.asarray(ids), replies, round=key.round, d=models.shape[1], r=r, purpose=key.purpose
        )

    def hold(self, population: Population, present: NDArray[np.bool_] | None = None) -> None:
        """From now on the clients of a simulation hold these data, and these of them are there."""
        self.engine.hold(population)
        now, before = gate_for(population), self.gate
        tested = None if before.tested is None else max(before.tested, now.tested or 0)
        self.gate = replace(before, cap=max(before.cap, now.cap), tested=tested)
        able = population.sizes("train") > 0
        self.able = np.flatnonzero(able if present is None else able & present)

    def close(self) -> None:
        """Let go of processes and shared memory."""
        self.engine.close()

    def __enter__(self) -> Door:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
