"""What passed between server and clients."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, fields, replace

import numpy as np
from torch import Tensor

from coterie.clients.sent_models import SentModels
from coterie.clients.transfers import Block
from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.keys import Key

_FLOAT = 4  # bytes of a value on its way: float32, whatever it was computed in


@dataclass(slots=True)
class Ledger:
    """What passed between server and clients since it was last read.

    Args:
        blocks: transfers, request by request.
        refused: replies that were refused, by reason.
        clipped: replies that were brought within their bounds, by reason.
        training: seconds that the server waited for training.
        steps: mini-batch steps that clients took.
        sent_models: which client was sent which model in this round.
        scores: what real clients answered when they scored the models that serve them; ``None``:
            they were not asked.
    """

    blocks: list[Block] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    clipped: Counter[str] = field(default_factory=Counter)
    training: float = 0.0
    steps: int = 0
    sent_models: SentModels = field(default_factory=SentModels)
    scores: Reply | None = None

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
        if which.ndim == 1:
            which = which[:, None]
        fresh = self.sent_models.add(models, ids, which)
        # Of a model that stays with its client nothing is sent, so it is no transfer.
        if not values:
            fresh[:] = 0
        size = _FLOAT * values * fresh
        self.blocks.append(Block(key.round, key.what, False, ids, fresh, size))

    def received(self, key: Key, reply: Reply, shared: int) -> None:
        """What clients sent; an update of all ``shared`` values counts as one model, anything less
        only as bytes."""
        size = sum(_FLOAT * math.prod(values.shape[1:]) for values in reply.fields.values())
        # By the shape of one client's value: a reply of no client at all keeps its names.
        fields = {
            name: values for name, values in reply.fields.items() if math.prod(values.shape[1:])
        }
        whole = 0
        if "delta" in fields and fields["delta"].shape[-1] == shared:
            # Clients of mixtures send an update of each model, [n, r, d].
            whole = math.prod(fields["delta"].shape[1:-1])
        names = tuple(fields)
        if not whole:
            names = tuple("slice" if name == "delta" else name for name in names)
        models = np.full(len(reply), whole)
        sizes = np.full(len(reply), size)
        self.blocks.append(Block(key.round, key.what, True, reply.ids, models, sizes, names))

    def described(self, ids: IntArray, reported: IntArray, answered: int) -> None:
        """Each client reports of the columns of its table, before the first round, and is sent how
        they become inputs.

        Args:
            ids: the clients.
            reported: int64 ``[n]``, bytes that each sends.
            answered: bytes that each is sent.
        """
        none = np.zeros(len(ids), np.int64)
        self.blocks.append(Block(0, "describe", True, ids, none, reported, ("columns", "size")))
        self.blocks.append(Block(0, "describe", False, ids, none, none + answered))

    def read(self) -> Ledger:
        """The entries so far; the ledger starts anew."""
        past = replace(self)
        fresh = Ledger()
        for one in fields(Ledger):
            setattr(self, one.name, getattr(fresh, one.name))
        return past
