"""What is in a message: how the server reads one from a client, of which it believes nothing, and what a
node reads and writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from coterie.clients import wire
from coterie.clients.identity import Identity
from coterie.core import ClientShares, SumShapes, Train
from coterie.errors import ConfigError

NOTE = "coterie"  # the record of a message with words and numbers
FIELDS = "fields"  # the record of a reply with arrays
SHARES = (
    "shares"  # the record of a request with the shares of its client; models have digests as names
)
# The kind of message that asks a node who it is. It is not the work `Describe`, which asks a client
# about its data.
ASK_IDENTITY = "query.describe"
HEADER = 512  # the most bytes of a NumPy header
# What Flower's codes of errors mean (`flwr.common.constant.ErrorCode`), in one word. A code that is
# not here is of a later version, and taken for a node that cannot be reached.
FLOWER_ERRORS: Mapping[int, str] = {
    0: "failed",  # unknown
    1: "failed",  # the app could not be loaded on the node
    2: "failed",  # the app raised an error there
    3: "unavailable",  # the request expired, or the node never sent all of its reply
    4: "unavailable",  # the reply expired
    5: "unavailable",  # the node gave no sign of life
    6: "failed",  # a mod of Flower around the app refused the message
    7: "unverified",  # the node accepts signed apps alone, and could not verify this one
    8: "crashed",  # the app's process on the node fell silent, as when it is killed
}


def part_name(record: str, number: int) -> str:
    """The name of a record of one of several requests in a message."""
    if not number:
        return record
    return f"{record}.{number}"


def failure_of(message: Message) -> str | None:
    """Why a message is no reply: a word of `FLOWER_ERRORS`, or what the client says of its failure,
    or ``malformed``; ``None`` where it is one."""
    try:
        if message.has_error():
            return FLOWER_ERRORS.get(message.error.code, "unavailable")
        # Of several requests each has its own note, which says whether that one failed.
        if len(message.content.config_records) > 1:
            return None
        reported = message.content.config_records.get(NOTE, {}).get("failed")
        if reported is None or reported in wire.FAILURES:
            return reported
    except Exception:  # noqa: BLE001 - the sender is not trusted
        return "malformed"
    return "malformed"


def read_array(data: bytes, most: int) -> NDArray[Any]:
    """An array in NumPy's own format; a ValueError if it is not one, or larger than ``most`` bytes.

    The bytes are a stranger's. ``numpy.load`` would unpickle objects, and trust a header that asks
    for more memory than there is. So the size is checked first, then the header against it.
    """
    if len(data) > most:
        raise ValueError("too large")
    file = BytesIO(data)
    # Version 1.0 is what NumPy writes for arrays of numbers; later ones are for the long headers of
    # records.
    if npy.read_magic(file) != (1, 0):
        raise ValueError("wrong format")
    shape, fortran, dtype = npy.read_array_header_1_0(file)
    body = data[file.tell() :]
    # Values of no bytes would fit any shape, however large.
    if dtype.hasobject or not dtype.itemsize or math.prod(shape) * dtype.itemsize != len(body):
        raise ValueError("wrong size")
    # Copied, since what lies in a message's bytes is read-only and keeps all of them in memory.
    flat = np.frombuffer(body, dtype)
    if fortran:
        return flat.reshape(shape, order="F").copy()
    return flat.reshape(shape).copy()


def run_name(content: RecordDict) -> str:
    """The name of the run that a message belongs to; refuses a server that speaks another
    protocol."""
    note = content.config_records[NOTE]
    if note["protocol"] != wire.PROTOCOL:
        what = "the server has a different version"
        got = f"protocol {note['protocol']}"
        expected = f"{wire.PROTOCOL}: install the server's version of Coterie"
        raise ConfigError("differs", "node", what, found=got, allowed=expected)
    return str(note["run"])


def column_statistics(content: RecordDict) -> str:
    """What the server says of the columns of tables, as JSON; empty where it says nothing yet."""
    return str(content.config_records[NOTE]["columns"])


def requests_in(content: RecordDict) -> int:
    return int(content.config_records[NOTE]["parts"])


def read_request(
    content: RecordDict,
    number: int,
    local: Train,
    sums: SumShapes,
    kept: Callable[[str], Tensor | None],
) -> wire.Request | None:
    """What a client is asked; ``None`` if a model is neither in the message nor ``kept`` by its
    digest. Anything else is a ValueError."""
    envelope = content.config_records[NOTE]
    note = content.config_records[part_name(NOTE, number)]
    sent = content.array_records
    vectors = []
    for name in note["models"].split():
        vector: Tensor | None
        if name in sent:
            # A copy, since the memory of a message is read-only.
            vector = torch.from_numpy(sent[name]["w"].numpy().copy())
        else:
            vector = kept(name)
        if vector is None:
            return None
        vectors.append(vector)
    models = torch.empty(0, 0)
    if vectors:
        models = torch.stack(vectors)
    shares = sent.get(part_name(SHARES, number))
    known = wire.Known(local, sums, _read_shares(shares, envelope["client"]))
    return wire.Request(
        work=wire.loads(note["work"], known),
        models=models,
        round=note["round"],
        purpose=note["purpose"],
        seed=note["seed"],
        client=envelope["client"],
        assignment_version=envelope["assignment_version"],
        run=envelope["run"],
        server=envelope["server"],
        since=envelope["since"],
    )


def _read_shares(record: ArrayRecord | None, client: int) -> ClientShares | None:
    """The client's shares of the models that it is sent; ``None`` where there are none."""
    if record is None:
        return None
    arrays = {name: array.numpy() for name, array in record.items()}
    return ClientShares(np.array([client]), arrays["shares"][None], arrays.get("label_prior"))


@dataclass(frozen=True, slots=True)
class Answered:
    request: wire.Request
    answer: wire.Answer


def write_answers(answers: Sequence[Answered | str]) -> RecordDict:
    """The reply with what the work asks for, and nothing more: an answer to each request of a
    message in order, or a word of ``wire.FAILURES``."""
    content: dict[str, ConfigRecord | ArrayRecord] = {}
    for number, answer in enumerate(answers):
        if isinstance(answer, str):
            assert answer in wire.FAILURES
            content[part_name(NOTE, number)] = ConfigRecord({"failed": answer})
        else:
            content |= _answer_records(number, answer.request, answer.answer)
    return RecordDict(content)


def _answer_records(
    number: int, request: wire.Request, answer: wire.Answer
) -> dict[str, ConfigRecord | ArrayRecord]:
    note: dict[str, Any] = {
        "round": request.round,
        "purpose": request.purpose,
        "client": request.client,
        "assignment_version": request.assignment_version,
    }
    if answer.drifted is not None:
        note["drifted"] = answer.drifted
    fields = ArrayRecord(
        {name: Array(np.array(values, order="C")) for name, values in answer.fields.items()}
    )
    return {part_name(NOTE, number): ConfigRecord(note), part_name(FIELDS, number): fields}


def write_identity(identity: Identity) -> RecordDict:
    """The reply of a client that is asked who it is."""
    note = ConfigRecord({"identity": identity.dumps()})
    return RecordDict({NOTE: note})


def write_failure(reason: str) -> RecordDict:
    """The reply of a client that could not: one word of ``wire.FAILURES``. Its own log has the
    rest, which may name its data."""
    assert reason in wire.FAILURES
    return RecordDict({NOTE: ConfigRecord({"failed": reason})})
