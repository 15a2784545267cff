"""Which replies of an exchange are waited for, where more clients were asked than are needed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from coterie.core.work import Train
from coterie.engines.flower.inbox import Arrival
from coterie.engines.flower.outgoing import OutgoingRequest


@dataclass(slots=True)
class FirstReplies:
    """The first replies of clients that were asked to train, and all of the others.

    Args:
        training: the clients that were asked to train.
        wanted: how many of their replies are waited for; ``None``: all.
        replied: the clients whose replies came.
    """

    training: frozenset[int]
    wanted: int | None
    replied: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, asked: Mapping[int, Sequence[OutgoingRequest]], wanted: int | None) -> FirstReplies:
        """What an exchange waits for.

        Args:
            asked: client -> its requests.
            wanted: replies to trainings of a round; ``None``: all.
        """
        return cls(frozenset(one for one, many in asked.items() if _trains(many)), wanted)

    @property
    def enough(self) -> bool:
        """Whether a further training would come too late."""
        return self.wanted is not None and len(self.replied) >= self.wanted

    def take(self, client: int, arrival: Arrival) -> bool:
        """Whether what came of a client counts; the next one is told of it."""
        # What a client sends twice is refused later, and no reply of another's.
        if client not in self.training or client in self.replied:
            return True
        if self.enough:
            return False
        # In place of one that failed another is waited for.
        if arrival.failure is None:
            self.replied.add(client)
        return True

    def all_in(self, left: Collection[int]) -> bool:
        """Whether nobody has to be waited for any more.

        Args:
            left: the clients that have not answered.
        """
        return all(self.is_late(client) for client in left)

    def is_late(self, client: int) -> bool:
        """Whether a client's answer would come too late now."""
        return self.enough and client in self.training


def _trains(requests: Sequence[OutgoingRequest]) -> bool:
    # A training that only places clients has its own number of clients, and needs all of them.
    works = [request.work for request in requests]
    return any(isinstance(work, Train) and not work.trial for work in works)
