"""What passed between server and clients."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from coterie.clients.transfers import Block
from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.keys import Key


@dataclass(slots=True)
class Ledger:
    """What passed the door since it was last read: transfers, refusals, seconds of training."""

    blocks: list[Block] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    training: float = 0.0
    held: set[tuple[int, int]] = field(default_factory=set)

    def sent(
        self, key: Key, ids: IntArray, models: Tensor, which: IntArray, shared: int | None = None
    ) -> None:
        """Each client is sent its models as float32 values, unless it got the very same one this
        round.

        Args:
            key: of the request.
            ids: the clients.
            models: ``[k, d]``.
            which: ``[n]`` or ``[n, r]``, their rows.
            shared: how many of the ``d`` values are sent, where the others stay with clients.
        """
        values = models.shape[1] if shared is None else shared
        which = which[:, None] if which.ndim == 1 else which
        start = models.data_ptr()
        stride = models.shape[1]
        fresh = np.zeros(len(ids), np.int64)
        for at, (id, rows) in enumerate(zip(ids.tolist(), which.tolist(), strict=True)):
            wanted = {(id, start + row * stride) for row in rows}
            fresh[at] = len(wanted - self.held)
            self.held |= wanted
        self.blocks.append(Block(key.round, key.what, False, ids, fresh, 4 * values * fresh))

    def got(self, key: Key, reply: Reply, shared: int) -> None:
        """What came home; an update of all ``shared`` values counts as one model, anything less
        only as bytes."""
        each = sum(4 * math.prod(values.shape[1:]) for values in reply.fields.values())
        whole = "delta" in reply.fields and reply.fields["delta"].shape[1:] == (shared,)
        count = np.full(len(reply), int(whole))
        names = tuple("slice" if name == "delta" and not whole else name for name in reply.fields)
        self.blocks.append(
            Block(key.round, key.what, True, reply.ids, count, np.full(len(reply), each), names)
        )

    def read(self) -> Ledger:
        """The entries so far; the ledger starts anew."""
        past = Ledger(self.blocks, self.refused, self.training)
        self.blocks = []
        self.refused = Counter()
        self.training = 0.0
        self.held = set()
        return past
