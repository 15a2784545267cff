"""Replies as they come from a grid: each is read by itself, so that a bad one spoils no other."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from flwr.app import Message
from flwr.serverapp import Grid

from coterie.core.work import Work
from coterie.engines.flower.messages import HEADER, failure_of

# A message, its content, and the two records of a reply, with room for records too many: what a
# client should not have sent is named by the validator as long as there is little of it.
_OBJECTS = 12
_LEAST_CHUNK = (
    1 << 20
)  # bytes of the pieces that a node cuts arrays into; Flower's default is 5 MiB
_WORDS = 1 << 16  # bytes of a record of words and numbers


@dataclass(frozen=True, slots=True)
class ReplyLimit:
    """The most that one reply may hold. What holds more is refused before it is decoded.

    Args:
        objects: into which Flower takes a message apart: itself, its records, its arrays, and the
            pieces of these.
        words: bytes of each object that is no piece of an array.
        size: bytes of all objects.
    """

    objects: int
    words: int
    size: int


def reply_limit(work: Work, d: int, r: int) -> ReplyLimit:
    """The most that an honest reply to a request takes."""
    # Eight bytes for each value: a client may send float64, and the validator takes nothing larger.
    sizes = [HEADER + 8 * math.prod(shape) for shape, _ in work.fields(d, r).values()]
    objects = _OBJECTS + sum(1 + math.ceil(size / _LEAST_CHUNK) for size in sizes)
    # An array names each of its pieces twice, by 64 letters and by a number.
    words = _WORDS + 128 * objects
    return ReplyLimit(objects, words, sum(sizes) + 4 * words)


def identity_limit(text: str) -> ReplyLimit:
    """The most that a client takes to say who it is."""
    # JSON has up to six letters for one of a name.
    words = _WORDS + 6 * len(text)
    return ReplyLimit(_OBJECTS, words, 4 * words)


@dataclass(frozen=True, slots=True)
class Arrival:
    """What came in answer to ``request``, the message that was sent, not what the reply says of
    itself; ``failure``: why it is no reply, see ``messages.failure_of``."""

    request: str
    message: Message | None
    failure: str | None

    @classmethod
    def of(cls, request: str, message: Message) -> Arrival:
        return cls(request, message, failure_of(message))


class Inbox(Protocol):
    """Where replies come in."""

    def pull(self, requests: Collection[str], limit: ReplyLimit) -> list[Arrival]:
        """What came since the last call. It does not wait, and does not raise for what a node sent."""
        ...

    def drop(self, requests: Collection[str]) -> None:
        """Await the replies to these messages no longer."""
        ...


class GridInbox:
    """Replies from any grid, by its public methods, which decode a reply before it can be limited."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def pull(self, requests: Collection[str], limit: ReplyLimit) -> list[Arrival]:
        return [arrival for request in requests for arrival in self._pull_one(request)]

    def _pull_one(self, request: str) -> Sequence[Arrival]:
        # One at a time: a grid that meets a bad reply loses all that it was asked for.
        try:
            return [Arrival.of(request, message) for message in self.grid.pull_messages([request])]
        except Exception:  # noqa: BLE001 - the sender is not trusted
            return [Arrival(request, None, "malformed")]

    def drop(self, requests: Collection[str]) -> None:
        """See `Inbox`."""
