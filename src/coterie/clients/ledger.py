"""What passed between server and clients: every transfer, and sums over them.

A transfer is (round, from, to, what, models, bytes). What is sent to or received from many clients
at once is one block, so that a run of a thousand clients costs no more than one of ten. The ledger
adds a block for each request and reply of a round; `coterie.runs.round_row` writes the sums into the
row of the round.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from torch import Tensor, UntypedStorage

from coterie.core import IntArray, Key, Reply
from coterie.core.arrays import rows_of_each

_FLOAT = 4  # bytes of a value on its way: float32, whatever it was computed in


@dataclass(frozen=True, slots=True)
class Block:
    """The same transfer between the server and several clients.

    Args:
        what: the purpose, as the rule that asks names it with ``Round.of``: ``cold_start``,
            ``newcomers``, ``choose``, ...; ``train`` for the training of the round.
        up: whether from the clients to the server.
        clients: int64 ``[n]``.
        models: int64 ``[n]``, model-sized vectors per client.
        bytes: int64 ``[n]``.
        fields: what came up, by the names of the reply; ``delta`` is a whole update, ``slice`` a
            part of one.
    """

    round: int
    what: str
    up: bool
    clients: IntArray
    models: IntArray
    bytes: IntArray
    fields: tuple[str, ...] = ()


def transfer_totals(blocks: Iterable[Block]) -> dict[str, int]:
    """Everything: model-sized transfers, and bytes down and up."""
    blocks = list(blocks)  # three sums are made of what may be an iterator
    return {
        "models": sum(int(b.models.sum()) for b in blocks),
        "down_bytes": sum(int(b.bytes.sum()) for b in blocks if not b.up),
        "up_bytes": sum(int(b.bytes.sum()) for b in blocks if b.up),
    }


def flexcfl_models(blocks: Iterable[Block], notes: Mapping[str, Any]) -> int:
    """Model-sized transfers as FlexCFL's Fig. 6 counts them.

    A newcomer counts the ``m`` directions it downloads once (``notes["directions"]``), but neither
    its ``w_0`` nor its placing, then or when it migrates. Inter-group aggregation counts one
    exchange per group and round (``notes["exchange"]``). Everything else counts as it is.
    """
    # FlexCFL's newcomers compare their update with the directions themselves. Where the server
    # compares instead, `newcomers_frozen` requests move `w_0` and updates, which the paper's do not
    # send. The directions that they download are in the notes.
    counted = sum(int(b.models.sum()) for b in blocks if b.what != "newcomers_frozen")
    return counted + int(notes.get("directions", 0)) + int(notes.get("exchange", 0))


@dataclass(slots=True)
class SentModels:
    """Which client was sent which model, so that none is counted twice.

    A model is known by its address. States are immutable, so the same address means the same values
    while that memory is in use; what was sent from freed memory is forgotten.

    Args:
        clients: for each address, the clients that were sent the model there.
        storages: for each tensor's first address, a weak reference to its memory.
    """

    clients: dict[int, set[int]] = field(default_factory=dict)
    storages: dict[int, weakref.ref[UntypedStorage]] = field(default_factory=dict)

    def add(self, models: Tensor, ids: IntArray, which: IntArray) -> IntArray:
        """Mark models as sent; returns how many of them each client did not have, int64 ``[n]``.

        Args:
            which: int64 ``[n, r]``, the rows that each is sent.

        Example:
            >>> import torch
            >>> sent, client = SentModels(), np.array([7])
            >>> models = torch.zeros(3, 5)
            >>> sent.add(models, client, np.array([[0, 2]])), sent.add(models, client, np.array([[1, 2]]))
            (array([2]), array([1]))
        """
        self._watch(models)
        first = models.data_ptr()
        step = models.stride(0) * models.element_size()
        fresh = np.zeros(len(ids), np.int64)
        for at, (client, rows) in enumerate(zip(ids.tolist(), which.tolist(), strict=True)):
            for row in set(rows):
                had = self.clients.setdefault(first + row * step, set())
                if client not in had:
                    had.add(client)
                    fresh[at] += 1
        return fresh

    def _watch(self, models: Tensor) -> None:
        """Forget what was sent from this memory as soon as it is given back."""
        storage = models.untyped_storage()
        begin = storage.data_ptr()
        if begin in self.storages:
            return
        end = begin + max(1, storage.nbytes())
        clients = self.clients
        storages = self.storages

        def forget(_: object) -> None:
            storages.pop(begin, None)
            for address in [a for a in clients if begin <= a < end]:
                del clients[address]

        storages[begin] = weakref.ref(storage, forget)


@dataclass(slots=True)
class Ledger:
    """What passed between server and clients in a round, since it was last read. A request of another
    round resets it, so it never holds more than one.

    Args:
        clipped: replies that were brought within their bounds, by reason.
        training: seconds that the server waited for training.
        scores: what real clients answered when they scored the models that serve them; ``None``:
            they were not asked.
        round: the round of the requests so far; ``None``: there were none.
    """

    blocks: list[Block] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    clipped: Counter[str] = field(default_factory=Counter)
    training: float = 0.0
    steps: int = 0
    sent_models: SentModels = field(default_factory=SentModels)
    scores: Reply | None = None
    round: int | None = None

    def sent(
        self, key: Key, ids: IntArray, models: Tensor, which: IntArray, shared: int | None = None
    ) -> None:
        """Each client is sent its models as float32 values, unless it got the same one this round;
        only ``shared`` of the ``d`` values, if the others stay with clients."""
        if self.round not in (None, key.round):
            self.read()
        self.round = key.round
        values = shared
        if values is None:
            values = models.shape[1]
        fresh = self.sent_models.add(models, ids, rows_of_each(which))
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
        """Before the first round, client ``i`` reported the columns of its table in ``reported[i]``
        bytes, and was sent how they become inputs in ``answered`` bytes."""
        none = np.zeros(len(ids), np.int64)
        self.blocks.append(Block(0, "describe", True, ids, none, reported, ("columns", "size")))
        self.blocks.append(Block(0, "describe", False, ids, none, none + answered))

    def read(self) -> Ledger:
        """The entries so far; the ledger is reset."""
        past = replace(self)
        fresh = Ledger()
        for one in fields(Ledger):
            setattr(self, one.name, getattr(fresh, one.name))
        return past
