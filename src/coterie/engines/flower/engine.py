"""Real clients through Flower's grid: one message per client and exchange, with all requests and all
models that it needs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from coterie.clients import wire
from coterie.core import IntArray, Key, Reply, SelectGroup, Work
from coterie.engines.flower.exchange import ExchangeObserver, FirstReplies, LongWait, Unobserved
from coterie.engines.flower.inbox import Arrival, GridInbox, Inbox, ReplyLimit
from coterie.engines.flower.register import ClientRegister, Pause, Terms
from coterie.engines.flower.requests import (
    OutgoingRequest,
    PartAnswer,
    limit_of,
    message_kind,
    read_part,
)


class FlowerEngine:
    """An engine over Flower's grid.

    It also keeps what clients report of their own data, see ``coterie.core.engine.DriftReports``.

    Args:
        names: the names of known clients, in the order of their numbers.
        joined: called with all names before a new number is used.
    """

    def __init__(
        self,
        grid: Grid,
        terms: Terms,
        *,
        names: Sequence[str] = (),
        say: Callable[[str], None] = print,
        joined: Callable[[Sequence[str]], None] = lambda names: None,
        observer: ExchangeObserver | None = None,
    ) -> None:
        self.grid = grid
        self.inbox = open_inbox(grid)
        self.register = ClientRegister(grid, self.inbox, terms, names, say, joined)
        self.say = say
        self.observer = observer or Unobserved()
        self._exchanges = 0
        self._posted: list[OutgoingRequest] = []
        self._lost: Counter[str] = Counter()
        # client -> digests of the models that it keeps
        self._kept: dict[int, set[str]] = {}
        self._assignment_version = np.zeros(terms.capacity, np.int64)
        # client -> the assignment that it reported on, and whether its data drifted since
        self._reports: dict[int, tuple[int, bool]] = {}

    @property
    def terms(self) -> Terms:
        """The terms on which clients are asked, and come."""
        return self.register.terms

    # --- requests ---------------------------------------------------------------------------------

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        """One message per client that is there; what came by the timeout. See
        ``coterie.core.engine.Engine``."""
        return self.post(work, ids, models, which, key=key)()

    def post(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Callable[[], Sequence[Reply]]:
        request = OutgoingRequest.of(work, ids, models, which, key, self.terms.local)
        self._posted.append(request)

        def replies() -> Sequence[Reply]:
            if not request.sent:
                self._send_posted()
            return request.replies

        return replies

    def _send_posted(self) -> None:
        """One exchange with all that was posted."""
        posted = self._posted
        self._posted = []
        asked: dict[int, list[OutgoingRequest]] = {}
        for request in posted:
            request.sent = True
            # Who left since the cohort was drawn is not waited for.
            there = [client for client in request.wanted if client in self.register.nodes]
            self._lost["not there"] += len(request.wanted) - len(there)
            for client in there:
                asked.setdefault(client, []).append(request)
        # A client that lost a model which it should have kept says so, and is asked once more.
        for attempt in (0, 1):
            again: dict[int, list[OutgoingRequest]] = {}
            for client, arrival in self._exchange(asked):
                missing = self._read(asked[client], client, arrival, last=attempt == 1)
                if missing:
                    self._kept.pop(client, None)
                    again[client] = missing
            asked = again

    def _message(self, requests: Sequence[OutgoingRequest], client: int) -> Message:
        """A message with records of its own: what one client is sent, no other sees."""
        envelope = {
            "protocol": wire.PROTOCOL,
            "run": self.terms.run,
            "server": self.terms.server,
            "since": self.terms.since,
            "columns": self.terms.columns,
            "client": client,
            "assignment_version": int(self._assignment_version[client]),
            "parts": len(requests),
        }
        kept = self._kept.get(client, set())
        content: dict[str, ArrayRecord | ConfigRecord] = {}
        for number, request in enumerate(requests):
            content |= request.part(number, client, kept, envelope)
        return Message(
            RecordDict(content),
            self.register.nodes[client],
            message_kind([request.work for request in requests]),
            ttl=self.terms.timeout,
            group_id=str(requests[0].key.round),
        )

    def _exchange(
        self, asked: Mapping[int, Sequence[OutgoingRequest]]
    ) -> list[tuple[int, Arrival]]:
        """Send each client its message and wait for the replies, until all wanted ones have come or
        the time is over. As ``grid.send_and_receive``, which polls every 3 s; polling more often at
        first ends an exchange sooner."""
        if not asked:
            return []
        self._exchanges += 1
        pause = Pause(time.monotonic() + self.terms.timeout, self.terms.least_poll)
        messages = [self._message(requests, client) for client, requests in asked.items()]
        began = time.monotonic()
        sent = list(self.grid.push_messages(messages))
        sending = time.monotonic() - began
        # What could not be sent has no name.
        owner = {name: client for name, client in zip(sent, asked, strict=True) if name}
        self._lost["not sent"] += len(asked) - len(owner)
        round = next(iter(asked.values()))[0].key.round
        requests = list({id(one): one for many in asked.values() for one in many}.values())
        # Some clients only score in the exchange in which the others train.
        kind = message_kind([request.work for request in requests])
        names = {request: self.register.names[client] for request, client in owner.items()}
        self.observer.sent(kind, round, self.terms.timeout, sending, names)
        limit = limit_of(requests)
        first = FirstReplies.of(asked, self.terms.wanted)
        long_wait = LongWait.begin(self.say, round, len(asked), pause.end)
        left = set(owner)
        came = []
        while left:
            arrivals = self._pull(left, limit)
            left -= {arrival.request for arrival in arrivals}
            # Who of them was first is not known; what counts must not be chance.
            by_client = ((owner[arrival.request], arrival) for arrival in arrivals)
            for client, arrival in sorted(by_client, key=itemgetter(0)):
                if first.take(client, arrival):
                    came.append((client, arrival))
                else:
                    self._lost["late"] += 1
            if all(first.is_late(owner[request]) for request in left) or pause.over:
                break
            long_wait.look([self.register.names[owner[request]] for request in left])
            pause.wait()
        late = {request for request in left if first.is_late(owner[request])}
        self._drop(late, "late")
        self._drop(left - late, "no answer")
        return came

    def _drop(self, missing: set[str], why: str) -> None:
        self.inbox.drop(missing)
        self.observer.dropped(missing, why)
        self._lost[why] += len(missing)

    def _pull(self, left: Collection[str], limit: ReplyLimit) -> list[Arrival]:
        began = time.monotonic()
        arrivals = self.inbox.pull(sorted(left), limit)
        failures = {arrival.request: arrival.failure for arrival in arrivals}
        self.observer.arrived(failures, time.monotonic() - began)
        return arrivals

    def _read(
        self, requests: Sequence[OutgoingRequest], client: int, arrival: Arrival, *, last: bool
    ) -> list[OutgoingRequest]:
        """Read a client's answers; returns the requests for which it lacked a model, unless this is
        the ``last`` try. Whatever a client sent, this does not raise: invalid replies are counted.
        """
        if arrival.failure == "missing" and not last:
            return list(requests)
        if arrival.failure is not None:
            self._lost[arrival.failure] += 1
            return []
        assert arrival.message is not None, "a reply without a failure is a message"
        content = arrival.message.content
        missing = []
        for number, request in enumerate(requests):
            try:
                answer = read_part(content, number, len(requests), request)
            except Exception:  # noqa: BLE001 - the sender is not trusted
                self._lost["malformed"] += 1
                continue
            if isinstance(answer, PartAnswer):
                self._take(request, client, answer)
            elif answer == "missing" and not last:
                missing.append(request)
            else:
                self._lost[answer] += 1
        return missing

    def _take(self, request: OutgoingRequest, client: int, answer: PartAnswer) -> None:
        """Add a client's answer to the replies of a request, and remember what it reports besides
        it."""
        sender = answer.sender
        round = answer.round
        purpose = answer.purpose
        # A reply to an earlier request would put an old report over a newer one.
        if (sender, round, purpose) == (client, request.key.round, request.key.purpose):
            # What the client reported with its reply, and which models it keeps now.
            drifted = answer.note.get("drifted")
            version = answer.note.get("assignment_version")
            if isinstance(drifted, bool) and type(version) is int:
                self._reports[client] = (version, drifted)
            if isinstance(request.work, SelectGroup):
                self._kept[client] = set(request.wanted[client])
        # A client may only speak for itself; as -1 the validator knows it for a stranger.
        speaks_for = client
        if sender != client:
            speaks_for = -1
        request.replies.append(Reply(round, np.array([speaks_for]), answer.values, purpose))

    # --- what clients report ----------------------------------------------------------------------

    def compare(self, assignment_version: IntArray) -> IntArray:
        self._assignment_version = assignment_version
        drifted = [
            client
            for client, (version, moved) in self._reports.items()
            if moved and version == assignment_version[client]
        ]
        return np.array(sorted(drifted), np.int64)

    def take_lost(self) -> Counter[str]:
        """Clients that gave no reply, and nodes that were not let in, since this was last called, by
        reason."""
        past = +self._lost + self.register.take_refused()
        self._lost = Counter()
        return past

    def take_exchanges(self) -> int:
        """How often clients were sent messages and their replies awaited, since this was last
        called."""
        past = self._exchanges
        self._exchanges = 0
        return past

    # --- who is there -----------------------------------------------------------------------------

    def gather(
        self,
        least: int,
        longest: float,
        waits: Callable[[], None] = lambda: None,
        expected: int = 0,
    ) -> list[str]:
        """Wait until enough clients are connected, or the time is over; returns who joined or came
        back, who are taken to have kept nothing. ``waits`` is called whenever there are too few."""
        came = self.register.gather(least, longest, waits, expected)
        for name in came:
            self._kept.pop(self.register.names.index(name), None)
        return came

    def grow(self, capacity: int) -> None:
        """Have so many places for clients, and number those who wait for one."""
        more = capacity - self.terms.capacity
        self._assignment_version = np.pad(self._assignment_version, (0, more))
        self.register.grow(capacity)
        self.register.number_clients()

    def set_population(self, population: Any) -> None:
        """Nothing: real clients have their own data."""

    def close(self) -> None:
        """Nothing: Flower closes its grid."""


def open_inbox(grid: Grid) -> Inbox:
    """The inbox of a grid, which limits replies where the grid allows it."""
    try:
        from coterie.engines.flower.http_inbox import HttpInbox
    except ImportError:  # a version of Flower with other internals
        return GridInbox(grid)
    if HttpInbox.fits(grid):
        return HttpInbox(grid)
    return GridInbox(grid)
