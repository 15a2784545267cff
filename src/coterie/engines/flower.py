"""Real clients through Flower's grid: one message per client and request, with all models that it
needs.

Only this module and ``coterie.flower_app`` know of Flower. What a message holds is listed in
``docs/privacy.md``.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from coterie.clients import wire
from coterie.core.arrays import IntArray
from coterie.core.engine import Reply
from coterie.core.keys import Key
from coterie.core.objective import Objective
from coterie.core.work import Describe, Evaluate, SelectGroup, Work
from coterie.errors import ConfigError

NOTE = "coterie"
FIELDS = "fields"
DESCRIBE = "query.describe"
_HEADER = 512  # bytes that a NumPy header may take


class FlowerEngine:
    """The one verb over Flower's grid, and the register of who is there.

    Clients have names, which they tell when they are met; a client's number is the place of its
    name in ``names`` and stays its own for the whole run, whatever node it comes back on.

    Args:
        grid: Flower's.
        ours: what a client must say of itself, but for its name.
        objective: what clients minimise.
        capacity: the most clients that ever take part, ``N``.
        run: a name of the run.
        names: of the clients met before, in the order of their numbers.
        timeout: seconds after which a request is closed, however few replies came.
        least_poll: seconds between two looks for replies, at first.
        say: what to do with a line for the user.
        joined: called with all names before a new number is used.
    """

    def __init__(
        self,
        grid: Grid,
        ours: wire.Identity,
        objective: Objective,
        capacity: int,
        run: str,
        *,
        names: Sequence[str] = (),
        timeout: float = 300.0,
        least_poll: float = 0.25,
        say: Callable[[str], None] = print,
        joined: Callable[[Sequence[str]], None] = lambda names: None,
    ) -> None:
        self.grid = grid
        self.ours = ours
        self.objective = objective
        self.capacity = capacity
        self.run_name = run
        self.timeout = timeout
        self.least_poll = least_poll
        self.say = say
        self.joined = joined
        self.names = list(names)
        self.nodes: dict[int, int] = {}  # client -> node
        self.met: dict[int, int | None] = {}  # node -> client, None: refused
        self.asked: dict[
            str, tuple[int, float]
        ] = {}  # description under way: message -> node, when it was asked
        self.waiting: dict[
            str, tuple[int, wire.Identity]
        ] = {}  # name -> node, met and without a number yet
        self.trains = np.zeros(capacity, bool)
        self.tests = np.zeros(capacity, bool)
        self.lost: Counter[str] = Counter()
        self.held: dict[int, set[str]] = {}
        self.placement = np.zeros(capacity, np.int64)
        self.said: dict[
            int, tuple[int, bool]
        ] = {}  # client -> placement, whether its data drifted since

    # --- the verb ---------------------------------------------------------------------------------

    def run(
        self, work: Work, ids: IntArray, models: Tensor, which: IntArray, *, key: Key
    ) -> Sequence[Reply]:
        """One message per client that is there; what came by the timeout. See
        ``coterie.core.engine.Engine``."""
        rows = which[:, None] if which.ndim == 1 else which
        rows = rows[:, :0] if isinstance(work, Describe) else rows
        vectors = {row: models[row].contiguous() for row in np.unique(rows).tolist()}
        named = {row: wire.digest(vector) for row, vector in vectors.items()}
        records = {
            named[row]: ArrayRecord({"w": Array(vector.numpy())}) for row, vector in vectors.items()
        }
        wanted = {
            id: [named[row] for row in mine]
            for id, mine in zip(ids.tolist(), rows.tolist(), strict=True)
        }
        text = wire.dumps(work, self.objective)
        replies: list[Reply] = []
        asked = [id for id in wanted if id in self.nodes]
        self.lost["not there"] += len(wanted) - len(asked)
        expected = _bytes(work, models.shape[1], rows.shape[1])
        for attempt in (0, 1):
            messages = [self._message(work, text, id, wanted[id], records, key) for id in asked]
            again = []
            for id, message in self._exchange(asked, messages):
                if _failure(message) == "missing" and not attempt:
                    self.held.pop(id, None)
                    again.append(id)
                else:
                    replies += self._read(
                        id,
                        message,
                        key,
                        wanted[id] if isinstance(work, SelectGroup) else [],
                        expected,
                    )
            asked = again
            if not asked:
                break
        return replies

    def _message(
        self,
        work: Work,
        text: str,
        id: int,
        names: list[str],
        records: Mapping[str, ArrayRecord],
        key: Key,
    ) -> Message:
        """A message with a record of its own: what one client is told, no other sees."""
        kept = self.held.get(id, set()) if isinstance(work, SelectGroup) else set()
        note = ConfigRecord(
            {
                "protocol": wire.PROTOCOL,
                "run": self.run_name,
                "work": text,
                "round": key.round,
                "purpose": key.purpose,
                "seed": key.seed,
                "client": id,
                "placement": int(self.placement[id]),
                "models": " ".join(names),
            }
        )
        content = RecordDict(
            {NOTE: note, **{name: records[name] for name in names if name not in kept}}
        )
        kind = (
            "query.statistic"
            if isinstance(work, Describe)
            else "evaluate"
            if isinstance(work, Evaluate)
            else "train"
        )
        return Message(content, self.nodes[id], kind, ttl=self.timeout, group_id=str(key.round))

    def _exchange(
        self, ids: Sequence[int], messages: Sequence[Message]
    ) -> list[tuple[int, Message]]:
        """Send messages and wait for the replies to them, until all are there or the time is over.

        What ``grid.send_and_receive`` does, which looks every 3 s; looking more often ends an
        exchange sooner.
        """
        if not messages:
            return []
        end = time.monotonic() + self.timeout
        sent = list(self.grid.push_messages(messages))
        owner = {name: id for name, id in zip(sent, ids, strict=True) if name is not None}
        self.lost["not sent"] += len(ids) - len(owner)
        left = set(owner)
        came = []
        pause = self.least_poll
        while left:
            for message in self.grid.pull_messages(sorted(left)):
                name = message.metadata.reply_to_message_id
                if name in owner:
                    came.append((owner[name], message))
            left -= {message.metadata.reply_to_message_id for _, message in came}
            if not left or time.monotonic() >= end:
                break
            time.sleep(min(pause, max(0.0, end - time.monotonic())))
            pause = min(2.0, 1.2 * pause)
        self.lost["no answer"] += len(left)
        return came

    def _read(
        self, id: int, message: Message, key: Key, keeps: list[str], expected: int
    ) -> list[Reply]:
        """A reply as the gate wants it. Whatever a client sent, this does not raise: what is no
        reply is counted."""
        failed = _failure(message)
        if failed is not None:
            self.lost[failed] += 1
            return []
        try:
            note, fields, other = _parts(message.content)
            round = note["round"]
            purpose = note["purpose"]
            client = note["client"]
            if type(round) is not int or not isinstance(purpose, str):
                raise ValueError("no round")
            values = {
                str(name): _array(array.data, expected)[None] for name, array in fields.items()
            }
        except Exception:  # noqa: BLE001 - the sender is not trusted
            self.lost["malformed"] += 1
            return []
        if other:
            values["another record"] = np.zeros(1)
        if (client, round, purpose) == (id, key.round, key.purpose):
            self._note(id, note, keeps)
        return [Reply(round, np.array([id if client == id else -1]), values, purpose)]

    def _note(self, id: int, note: Mapping[str, Any], keeps: list[str]) -> None:
        drifted = note.get("drifted")
        placement = note.get("placement")
        if isinstance(drifted, bool) and type(placement) is int:
            self.said[id] = (placement, drifted)
        if keeps:
            self.held[id] = set(keeps)

    def compare(self, assignment_version: IntArray) -> IntArray:
        """See ``coterie.core.engine.DriftReports``."""
        self.placement = assignment_version
        drifted = [
            client
            for client, (version, moved) in self.said.items()
            if moved and version == assignment_version[client]
        ]
        return np.array(sorted(drifted), np.int64)

    def set_population(self, population: Any) -> None:
        """Nothing: real clients hold what they hold."""

    def close(self) -> None:
        """Nothing: Flower closes its grid."""

    def counted(self) -> Counter[str]:
        """Clients that gave no reply since this was last asked, by reason."""
        past = +self.lost
        self.lost = Counter()
        return past

    # --- who is there -----------------------------------------------------------------------------

    @property
    def present(self) -> NDArray[np.bool_]:
        """Who can be asked now, bool ``[N]``."""
        here = np.zeros(self.capacity, bool)
        here[list(self.nodes)] = True
        return here

    def look(self) -> None:
        """See which nodes are there, ask new ones who they are, and hear those asked before."""
        here = set(self.grid.get_node_ids())
        for node in [node for node in self.met if node not in here]:
            self._leave(node)
        for name in [name for name, (node, _) in self.waiting.items() if node not in here]:
            del self.waiting[name]
        now = time.monotonic()
        for message, (node, since) in list(self.asked.items()):
            if node not in here or now - since > self.timeout:
                del self.asked[message]
        known = {
            *self.met,
            *(node for node, _ in self.asked.values()),
            *(node for node, _ in self.waiting.values()),
        }
        self._ask(sorted(here - known), now)
        self._hear()

    def _leave(self, node: int) -> None:
        client = self.met.pop(node)
        if client is not None and self.nodes.get(client) == node:
            del self.nodes[client]
            self.say(f"client {self.names[client]!r} left")

    def _ask(self, nodes: Sequence[int], now: float) -> None:
        if not nodes:
            return
        note = {"protocol": wire.PROTOCOL, "run": self.run_name}
        content = [RecordDict({NOTE: ConfigRecord({**note})}) for _ in nodes]
        messages = [
            Message(c, n, DESCRIBE, ttl=self.timeout) for c, n in zip(content, nodes, strict=True)
        ]
        for name, node in zip(self.grid.push_messages(messages), nodes, strict=True):
            if name is not None:
                self.asked[name] = (node, now)

    def _hear(self) -> None:
        if not self.asked:
            return
        for message in self.grid.pull_messages(sorted(self.asked)):
            node, _ = self.asked.pop(message.metadata.reply_to_message_id, (None, 0.0))
            if node is not None:
                self._meet(node, message)

    def _meet(self, node: int, message: Message) -> None:
        failed = _failure(message)
        if failed == "unavailable":
            return
        try:
            told = (
                wire.Identity.loads(str(_parts(message.content)[0]["identity"]))
                if failed is None
                else None
            )
            line = None if told is None else wire.unlike(told, self.ours) or self._taken(told, node)
        except Exception:  # noqa: BLE001 - the sender is not trusted
            told = None
            line = f"node {node}: no client of Coterie, got no identity; expected one"
        if failed is not None:
            line = f"node {node}: cannot take part, got {failed!r}; expected what that node's own log says"
        if told is None or line is not None:
            self.met[node] = None
            self.say(f"refused: {line}")
        else:
            self.waiting[told.client] = (node, told)

    def _taken(self, told: wire.Identity, node: int) -> str | None:
        """Why a name cannot be given."""
        name = told.client
        client = self.names.index(name) if name in self.names else None
        if name in self.waiting or (client is not None and self.nodes.get(client, node) != node):
            return (
                f"client {name!r}: on two nodes at once, got node {node}; expected one node a name"
            )
        if client is None and len({*self.names, *self.waiting}) >= self.capacity:
            return f"client {name!r}: one too many, got {self.capacity + 1} clients; expected at most {self.capacity}"
        return None

    def admit(self) -> list[str]:
        """Give those who were met their numbers, in the order of their names; returns who joined or
        came back."""
        new = sorted(name for name in self.waiting if name not in self.names)
        if new:
            self.names += new
            self.joined(self.names)
        came = sorted(self.waiting)
        for name in came:
            node, told = self.waiting.pop(name)
            client = self.names.index(name)
            self.nodes[client], self.met[node] = node, client
            self.trains[client], self.tests[client] = told.trains, told.tests
            self.held.pop(client, None)
        return came

    def gather(self, least: int, longest: float) -> list[str]:
        """Look until this many clients are there, or the time is over; returns who joined or came
        back."""
        end = time.monotonic() + longest
        self.look()
        pause = self.least_poll
        while len(self.nodes) + len(self.waiting) < least and time.monotonic() < end:
            time.sleep(min(pause, max(0.0, end - time.monotonic())))
            pause = min(2.0, 1.2 * pause)
            self.look()
        return self.admit()


def _parts(content: RecordDict) -> tuple[Mapping[str, Any], Mapping[str, Array], bool]:
    """The note, the fields, and whether there is anything else."""
    note = content.config_records[NOTE]
    fields = content.array_records.get(FIELDS, {})
    return note, fields, bool(set(content) - {NOTE, FIELDS})


def _failure(message: Message) -> str | None:
    """Why a message is no reply: ``unavailable`` where the node is gone, or what the client says of
    its failure."""
    if message.has_error():
        if message.error.code in (0, 1, 2):
            return "failed"
        return "unavailable"
    told = message.content.config_records.get(NOTE, {}).get("failed")
    if told is None:
        return None
    if told in wire.FAILURES:
        return told
    return "malformed"


def _bytes(work: Work, d: int, r: int) -> int:
    """The most bytes that any field of a reply may take."""
    return _HEADER + max(8 * math.prod(shape) for shape, _ in work.fields(d, r).values())


def _array(data: bytes, most: int) -> NDArray[Any]:
    """An array of NumPy's own format, of which nothing is believed.

    Raises:
        ValueError: if it is none, or larger than expected.
    """
    if len(data) > most:
        raise ValueError("too large")
    file = BytesIO(data)
    if npy.read_magic(file) != (1, 0):
        raise ValueError("another format")
    shape, fortran, dtype = npy.read_array_header_1_0(file)
    body = data[file.tell() :]
    if dtype.hasobject or not dtype.itemsize or math.prod(shape) * dtype.itemsize != len(body):
        raise ValueError("another size")
    return np.frombuffer(body, dtype).reshape(shape, order="F" if fortran else "C").copy()


# --- the client's side ----------------------------------------------------------------------------


def run_of(message: Message) -> str:
    """The name of the run that a message belongs to.

    Raises:
        ConfigError: if the server speaks another protocol.
    """
    note = message.content.config_records[NOTE]
    if note["protocol"] != wire.PROTOCOL:
        what = f"another version on the server, got protocol {note['protocol']}; expected {wire.PROTOCOL}"
        raise ConfigError(f"node: {what}: install the server's version of Coterie")
    return str(note["run"])


def read_request(
    message: Message, objective: Objective, kept: Callable[[str], Tensor | None]
) -> wire.Request | None:
    """What a client is asked; ``None`` if a model is neither in the message nor kept.

    Args:
        message: from the server.
        objective: that of the run.
        kept: a model that the client was sent before, by its digest; ``None`` where it has none.

    Raises:
        ValueError: if it is no request.
    """
    note = message.content.config_records[NOTE]
    sent = message.content.array_records
    vectors = []
    for name in note["models"].split():
        vector = torch.from_numpy(sent[name]["w"].numpy().copy()) if name in sent else kept(name)
        if vector is None:
            return None
        vectors.append(vector)
    models = torch.stack(vectors) if vectors else torch.empty(0, 0)
    return wire.Request(
        wire.loads(note["work"], objective),
        models,
        note["round"],
        note["purpose"],
        note["seed"],
        note["client"],
        note["placement"],
        note["run"],
    )


def write_answer(message: Message, request: wire.Request, answer: wire.Answer) -> Message:
    """The reply with what the work asks for, and nothing more."""
    note: dict[str, Any] = {
        "round": request.round,
        "purpose": request.purpose,
        "client": request.client,
        "placement": request.placement,
    }
    if answer.drifted is not None:
        note["drifted"] = answer.drifted
    fields = ArrayRecord(
        {name: Array(np.array(values, order="C")) for name, values in answer.fields.items()}
    )
    return Message(RecordDict({NOTE: ConfigRecord(note), FIELDS: fields}), reply_to=message)


def write_identity(message: Message, identity: wire.Identity) -> Message:
    """The reply of a client that is met."""
    return Message(
        RecordDict({NOTE: ConfigRecord({"identity": identity.dumps()})}), reply_to=message
    )


def write_failure(message: Message, reason: str) -> Message:
    """The reply of a client that could not: one word of ``wire.FAILURES``."""
    assert reason in wire.FAILURES
    return Message(RecordDict({NOTE: ConfigRecord({"failed": reason})}), reply_to=message)
