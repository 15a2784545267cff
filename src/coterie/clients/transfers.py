"""Every transfer between server and clients, and sums over them.

A transfer is (round, from, to, what, models, bytes). What is sent to or received from many clients
at once is one block, so that a run of a thousand clients costs no more than one of ten;
``Block.transfers`` spells it out.

`coterie.clients.ledger` adds a block for each request and reply of a round;
`coterie.runs.round_row` writes the sums into the row of the round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from coterie.core.arrays import IntArray

SERVER = -1


class Transfer(NamedTuple):
    """One client and the server (``-1``): who sent what to whom in which round."""

    round: int
    sender: int
    receiver: int
    what: str
    models: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Block:
    """The same transfer between the server and several clients.

    Args:
        round: its number.
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

    def transfers(self) -> Iterator[Transfer]:
        """One by one."""
        for client, models, size in zip(
            self.clients.tolist(), self.models.tolist(), self.bytes.tolist(), strict=True
        ):
            if self.up:
                yield Transfer(self.round, client, SERVER, self.what, models, size)
            else:
                yield Transfer(self.round, SERVER, client, self.what, models, size)


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

    Training, cold start and IFCA's choice count as they are. A newcomer counts the ``m`` directions
    it downloads once (``notes["directions"]``) and then places itself, now and whenever it
    migrates, for nothing; its ``w_0`` is not counted. Inter-group aggregation counts one exchange
    per group and round (``notes["exchange"]``).
    """
    # FlexCFL's newcomers compare their update with the directions themselves. Where the server
    # compares instead, `newcomers_frozen` requests move `w_0` and updates, which the paper's do not
    # send. The directions that they download are in the notes.
    counted = sum(int(b.models.sum()) for b in blocks if b.what != "newcomers_frozen")
    return counted + int(notes.get("directions", 0)) + int(notes.get("exchange", 0))
