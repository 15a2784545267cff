"""How an exchange with clients goes: which replies are waited for, what is said while waiting, and
who watches it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from coterie.core.work import Train
from coterie.engines.flower.inbox import Arrival
from coterie.engines.flower.requests import OutgoingRequest
from coterie.terminal import counted, duration, first_few

SILENT = 30.0  # seconds of waiting before the first line; each later one comes after twice the time


class ExchangeObserver(Protocol):
    """Receives what an engine sends to clients, and what comes. No result depends on it."""

    def sent(
        self, kind: str, round: int, ttl: float, sending: float, clients: Mapping[str, str]
    ) -> None:
        """Requests were sent; clients have ``ttl`` seconds for an answer, sending took ``sending``
        seconds, and ``clients`` are names by message."""
        ...

    def arrived(self, failures: Mapping[str, str | None], reading: float) -> None:
        """Replies came, and were read in ``reading`` seconds; ``failures`` are by message, ``None``
        for a reply."""
        ...

    def dropped(self, messages: Collection[str], why: str) -> None:
        """Replies to these messages are waited for no longer: ``no answer``, or ``late`` where there
        were enough without them."""
        ...


class Unobserved:
    """An observer that does nothing."""

    def sent(
        self, kind: str, round: int, ttl: float, sending: float, clients: Mapping[str, str]
    ) -> None: ...

    def arrived(self, failures: Mapping[str, str | None], reading: float) -> None: ...

    def dropped(self, messages: Collection[str], why: str) -> None: ...


@dataclass(slots=True)
class FirstReplies:
    """The first ``wanted`` replies of clients that were asked to train (``None``: all), and all of
    the others."""

    training: frozenset[int]
    wanted: int | None
    replied: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, asked: Mapping[int, Sequence[OutgoingRequest]], wanted: int | None) -> FirstReplies:
        """What an exchange waits for."""
        return cls(frozenset(one for one, many in asked.items() if _trains(many)), wanted)

    @property
    def enough(self) -> bool:
        """Whether a further training would come too late."""
        return self.wanted is not None and len(self.replied) >= self.wanted

    def take(self, client: int, arrival: Arrival) -> bool:
        """Whether what came of a client counts; it is reported to the next one."""
        # What a client sends twice is refused later, and no reply of another's.
        if client not in self.training or client in self.replied:
            return True
        if self.enough:
            return False
        # Wait for another reply in place of a failed one.
        if arrival.failure is None:
            self.replied.add(client)
        return True

    def is_late(self, client: int) -> bool:
        """Whether a client's answer would come too late now."""
        return self.enough and client in self.training


def _trains(requests: Sequence[OutgoingRequest]) -> bool:
    # A training that only places clients has its own number of clients, and needs all of them.
    works = [request.work for request in requests]
    return any(isinstance(work, Train) and not work.trial for work in works)


@dataclass(slots=True)
class LongWait:
    """Says whom an exchange waits for, now and then; times are of the monotonic clock, in
    seconds."""

    say: Callable[[str], None]
    round: int
    asked: int
    end: float
    next: float
    pause: float

    @classmethod
    def begin(cls, say: Callable[[str], None], round: int, asked: int, end: float) -> LongWait:
        """An exchange begins; arguments as of the class."""
        return cls(say, round, asked, end, time.monotonic() + SILENT, SILENT)

    def look(self, awaited: Sequence[str]) -> None:
        """Say who is awaited, if it is time."""
        now = time.monotonic()
        if now < self.next or not awaited:
            return
        self.pause *= 2
        self.next = now + self.pause
        left = duration(max(0.0, self.end - now))
        names = first_few(sorted(awaited))
        who = f"{names} ({len(awaited)} of {counted(self.asked, 'client')})"
        self.say(f"round {self.round + 1}: waiting for {who}, for at most {left}")
