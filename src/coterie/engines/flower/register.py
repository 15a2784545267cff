"""The clients of a federation: their names and numbers, and on which node each one is now."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from coterie.clients import wire
from coterie.clients.identity import Identity, mismatch
from coterie.core.work import Train
from coterie.engines.flower.inbox import Arrival, Inbox, identity_limit
from coterie.engines.flower.messages import ASK_IDENTITY, NOTE

_SHARE_OF_WAIT = 0.1  # a pause, of the time waited so far
_LONGEST_PAUSE = 2.0  # seconds


@dataclass(frozen=True, slots=True)
class Terms:
    """What a federation asks of its clients, and allows them.

    Args:
        identity: what a client must say of itself, but for its name.
        local: the training of the method, with what stays with its clients.
        capacity: places that there are for clients, see `ClientRegister.grow`.
        closed: why there cannot be more places, in words; empty: there can.
        server: a name of this process of the server.
        since: the first round of this process.
        wanted: replies to trainings after which an exchange waits no longer for the others; ``None``:
            it waits for all.
        least_poll: seconds between two polls for replies, at first.
        without_labels: what becomes of a client whose data have no labels, in words.
    """

    identity: Identity
    local: Train
    capacity: int
    run: str
    server: str = ""
    since: int = 0
    columns: str = ""
    timeout: float = 300.0
    wanted: int | None = None
    least_poll: float = 0.25
    without_labels: str = "it does not train"
    closed: str = ""


@dataclass(slots=True)
class Pause:
    """Waits between two polls: each is a share of the time waited so far, so that a long wait costs
    few polls, and a reply is read soon after it came, compared with the time that it took."""

    end: float
    least: float
    begin: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.end

    def wait(self) -> None:
        """Sleep, but not beyond the end."""
        now = time.monotonic()
        seconds = min(max(self.least, _SHARE_OF_WAIT * (now - self.begin)), _LONGEST_PAUSE)
        time.sleep(min(seconds, max(0.0, self.end - now)))


class ClientRegister:
    """Who takes part. A node is asked who it is when it is first seen; its client gets a number
    between two rounds, never in one.

    A client's number is the place of its name in ``names`` for the whole run, whatever node it
    comes back on. A name belongs to the key that was registered with it (``coterie server add DIR
    NAME.pub``): a node with another key cannot take it. ``joined`` is called with all names before
    a new number is used. A client for which there is no place waits until `grow`.
    """

    def __init__(
        self,
        grid: Grid,
        inbox: Inbox,
        terms: Terms,
        names: Sequence[str],
        say: Callable[[str], None],
        joined: Callable[[Sequence[str]], None],
    ) -> None:
        self.grid = grid
        self.inbox = inbox
        self.terms = terms
        self.names = list(names)
        self.say = say
        self.joined = joined
        # client -> the node that it is on now
        self.nodes: dict[int, int] = {}
        self.trains = np.zeros(terms.capacity, bool)
        self.tests = np.zeros(terms.capacity, bool)
        self.labelled = np.ones(terms.capacity, bool)
        # node -> the name that its key was registered with, "" where it has none
        self._registered: dict[int, str] = {}
        self._refused: Counter[str] = Counter()
        self._answered: dict[int, int | None] = {}  # node -> its client, None: refused
        # message -> node and time of questions that were not answered yet
        self._asked: dict[str, tuple[int, float]] = {}
        # name -> node and identity of clients without a number yet
        self._waiting: dict[str, tuple[int, Identity]] = {}

    @property
    def present(self) -> NDArray[np.bool_]:
        """Who can be asked now, bool ``[N]``."""
        present = np.zeros(self.terms.capacity, bool)
        present[list(self.nodes)] = True
        return present

    @property
    def there(self) -> list[str]:
        """The names of the clients that are there, or wait for a number, in their order."""
        return sorted({*(self.names[client] for client in self.nodes), *self._waiting})

    @property
    def wanted(self) -> int:
        """How many places the clients would take that have a number, or wait for one."""
        return len({*self.names, *self._waiting})

    def grow(self, capacity: int) -> None:
        """Have so many places, for clients that wait for one."""
        more = capacity - self.terms.capacity
        self.trains = np.pad(self.trains, (0, more))
        self.tests = np.pad(self.tests, (0, more))
        self.labelled = np.pad(self.labelled, (0, more), constant_values=True)
        self.terms = replace(self.terms, capacity=capacity)

    def close(self, why: str) -> None:
        """Have no more places, and refuse those who wait for one."""
        self.terms = replace(self.terms, closed=why)
        without = [name for name in self._waiting if name not in self.names]
        for name in sorted(without)[self._free :]:
            node, _ = self._waiting.pop(name)
            self._refuse(node, "mismatch", self._too_many(name))

    @property
    def _free(self) -> int:
        return self.terms.capacity - len(self.names)

    def agree(self, terms: Terms) -> None:
        """From now on clients come on these terms; those who are there stay."""
        self.terms = terms

    def gather(
        self,
        least: int,
        longest: float,
        waits: Callable[[], None] = lambda: None,
        expected: int = 0,
    ) -> list[str]:
        """Wait until ``least`` clients are there that can train, and ``expected`` in all, or the time
        is over; returns who joined or came back."""
        pause = Pause(time.monotonic() + longest, self.terms.least_poll)
        self.poll()
        while self.able < least or self.answered < expected:
            # Said at least once, however long the first look took.
            waits()
            if pause.over:
                break
            pause.wait()
            self.poll()
        return self.number_clients()

    @property
    def able(self) -> int:
        """How many clients that can train are there, or wait for a number."""
        numbered = int((self.present & self.trains).sum())
        return numbered + sum(identity.trains for _, identity in self._waiting.values())

    @property
    def answered(self) -> int:
        """How many nodes that are connected have said who they are, also those that were refused."""
        return len(self._answered) + len(self._waiting)

    def poll(self) -> None:
        """See which nodes are there, ask new ones who they are, and read what those asked before
        answered."""
        self._registered = {node.node_id: node.name for node in self.grid.get_nodes()}
        present = set(self._registered)
        self._forget_absent(present)
        asked = {node for node, _ in self._asked.values()}
        waiting = {node for node, _ in self._waiting.values()}
        self._ask(sorted(present - asked - waiting - set(self._answered)))
        limit = identity_limit(self.terms.identity.dumps())
        for arrival in self.inbox.pull(sorted(self._asked), limit):
            node, _ = self._asked.pop(arrival.request, (None, 0.0))
            if node is not None:
                self._identify(node, arrival)

    def number_clients(self) -> list[str]:
        """Give those who were met their numbers, in the order of their names; returns who joined or
        came back."""
        # By name, since the order in which nodes answer is chance, and numbers are in all results.
        new = sorted(name for name in self._waiting if name not in self.names)[: self._free]
        if new:
            self.names += new
            # The names are on disk before a number is used: a number must not have two clients,
            # whatever ends the server.
            self.joined(self.names)
        came = sorted(name for name in self._waiting if name in self.names)
        for name in came:
            node, identity = self._waiting.pop(name)
            client = self.names.index(name)
            self.nodes[client] = node
            self._answered[node] = client
            self.trains[client] = identity.trains and identity.labelled
            self.tests[client] = identity.tests and identity.labelled
            self.labelled[client] = identity.labelled
            if not identity.labelled:
                self.say(f"client {name!r} has no labels: {self.terms.without_labels}")
        return came

    # --- one node ---------------------------------------------------------------------------------

    def _forget_absent(self, present: set[int]) -> None:
        """Forget nodes that are gone, and questions that are too old."""
        for node in [node for node in self._answered if node not in present]:
            client = self._answered.pop(node)
            if client is not None and self.nodes.get(client) == node:
                del self.nodes[client]
                self.say(f"client {self.names[client]!r} left")
        for name in [name for name, (node, _) in self._waiting.items() if node not in present]:
            del self._waiting[name]
        now = time.monotonic()
        for message, (node, since) in list(self._asked.items()):
            if node not in present or now - since > self.terms.timeout:
                del self._asked[message]
                self.inbox.drop([message])

    def _ask(self, nodes: Sequence[int]) -> None:
        if not nodes:
            return
        note = {
            "protocol": wire.PROTOCOL,
            "run": self.terms.run,
            "columns": self.terms.columns,
        }
        messages = []
        for node in nodes:
            # Each message has a record of its own: nothing that one node is sent reaches another.
            content = RecordDict({NOTE: ConfigRecord({**note})})
            messages.append(Message(content, node, ASK_IDENTITY, ttl=self.terms.timeout))
        now = time.monotonic()
        for message, node in zip(self.grid.push_messages(messages), nodes, strict=True):
            if message:
                self._asked[message] = (node, now)

    def _identify(self, node: int, arrival: Arrival) -> None:
        """Take in a node that said who it is, or refuse it in one line."""
        failed = arrival.failure
        # Not refused: a node that comes back, or whose process was killed, is asked again.
        if failed in ("unavailable", "crashed"):
            return
        if failed is not None:
            line = f"node {node}: cannot take part, got {failed!r}"
            self._refuse(node, failed, f"{line}; the log of that node has the details")
            return
        assert arrival.message is not None, "an answer without a failure is a message"
        try:
            note = arrival.message.content.config_records[NOTE]
            identity = Identity.loads(str(note["identity"]))
        except Exception:  # noqa: BLE001 - the sender is not trusted
            line = f"node {node}: not a Coterie client, got no identity; expected one"
            self._refuse(node, "malformed", line)
            return
        # The name first: of a node that uses another client's name nothing else matters.
        wrong_name = self._wrong_name(identity, node)
        other = mismatch(identity, self.terms.identity) or self._taken(identity, node)
        if wrong_name is not None:
            self._refuse(node, "name", wrong_name)
        elif other is not None:
            self._refuse(node, "mismatch", other)
        else:
            self._waiting[identity.client] = (node, identity)

    def _refuse(self, node: int, reason: str, line: str) -> None:
        self._answered[node] = None
        self._refused[reason] += 1
        self.say(f"refused: {line}")

    def take_refused(self) -> Counter[str]:
        """Nodes that were not let in since this was last called, by reason."""
        past = self._refused
        self._refused = Counter()
        return past

    def _wrong_name(self, identity: Identity, node: int) -> str | None:
        """Why a name is not that of the node's key."""
        name = identity.client
        # A node that left since it answered has no name now, and is asked again when it returns.
        registered = self._registered.get(node, "")
        if name == registered:
            return None
        if not registered:
            what = "the key of its node was registered without a name"
            expected = f"coterie server add DIR KEY --name {name}"
            return f"client {name!r}: {what}, got node {node}; expected {expected}"
        return f"node {node}: another client's name, got {name!r}; expected {registered!r}"

    def _taken(self, identity: Identity, node: int) -> str | None:
        """Why a name cannot be given."""
        name = identity.client
        known = name in self.names
        on_another = known and self.nodes.get(self.names.index(name), node) != node
        if name in self._waiting or on_another:
            return (
                f"client {name!r}: on two nodes at once, got node {node}; expected one node for "
                "each name"
            )
        if self.terms.closed and not known and self.wanted >= self.terms.capacity:
            return self._too_many(name)
        return None

    def _too_many(self, name: str) -> str:
        most = self.terms.capacity
        what = f"too many clients, got {most + 1}; expected at most {most}"
        return f"client {name!r}: {what}, because {self.terms.closed}"
