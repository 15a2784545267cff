"""What a node reads in a message from the server, and what it writes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from coterie.clients import wire
from coterie.clients.identity import Identity
from coterie.core.plan import ClientShares
from coterie.core.task import SumShapes
from coterie.core.work import Train
from coterie.engines.flower.messages import FIELDS, NOTE, SHARES, part_name
from coterie.errors import ConfigError


def run_name(content: RecordDict) -> str:
    """The name of the run that a message belongs to.

    Raises:
        ConfigError: if the server speaks another protocol.
    """
    note = content.config_records[NOTE]
    if note["protocol"] != wire.PROTOCOL:
        raise ConfigError(
            f"node: another version on the server, got protocol {note['protocol']}; "
            f"expected {wire.PROTOCOL}: install the server's version of Coterie"
        )
    return str(note["run"])


def column_statistics(content: RecordDict) -> str:
    """What the server says of the columns of tables, as JSON; empty where it says nothing yet."""
    return str(content.config_records[NOTE]["columns"])


def requests_in(content: RecordDict) -> int:
    """How many requests a message has."""
    return int(content.config_records[NOTE]["parts"])


def read_request(
    content: RecordDict,
    number: int,
    local: Train,
    sums: SumShapes,
    kept: Callable[[str], Tensor | None],
) -> wire.Request | None:
    """What a client is asked; ``None`` if a model is neither in the message nor kept.

    Args:
        content: of a message from the server.
        number: of the request in the message, from 0.
        local: the training of the run's method.
        sums: those of the run's task.
        kept: a model that the client was sent before, by its digest; ``None`` where it has none.

    Raises:
        ValueError: if it is no request.
    """
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
    """An answer, and the request that it answers."""

    request: wire.Request
    answer: wire.Answer


def write_answers(answers: Sequence[Answered | str]) -> RecordDict:
    """The reply with what the work asks for, and nothing more.

    Args:
        answers: to each request of a message, in their order; a word of ``wire.FAILURES`` where there is
            none.
    """
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
    """The two records of an answer."""
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
