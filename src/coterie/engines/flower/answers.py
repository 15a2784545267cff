"""How the server reads a client's answers to the requests of a message, of which it believes
nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, RecordDict
from numpy.typing import NDArray

from coterie.clients import wire
from coterie.engines.flower.messages import FIELDS, NOTE, part_name, read_array
from coterie.engines.flower.outgoing import OutgoingRequest


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """A client's answer to one request.

    Args:
        round: that it says it is of.
        purpose: likewise.
        sender: the client that it says it is of.
        note: all its words and numbers.
        values: the arrays, with a row for the client.
    """

    round: int
    purpose: str
    sender: Any
    note: Mapping[str, Any]
    values: Mapping[str, NDArray[Any]]


def read_part(
    content: RecordDict, number: int, parts: int, request: OutgoingRequest
) -> PartAnswer | str:
    """The answer to one request of a message, or a word of ``wire.FAILURES``.

    Args:
        content: of the reply.
        number: of the request in the message.
        parts: how many requests the message had.
        request: what was asked.

    Raises:
        Exception: of any kind, for what is no answer.
    """
    note = content.config_records[part_name(NOTE, number)]
    failure = note.get("failed")
    if failure is not None:
        if failure not in wire.FAILURES:
            raise ValueError("no word for a failure")
        return str(failure)
    round = note["round"]
    purpose = note["purpose"]
    # A bool is an int in Python, and no round.
    if type(round) is not int or not isinstance(purpose, str):
        raise ValueError("no round")
    fields = content.array_records.get(part_name(FIELDS, number), {})
    values = _read_fields(fields, request)
    known = {part_name(record, one) for record in (NOTE, FIELDS) for one in range(parts)}
    if set(content) - known:  # a record too many, which the validator will refuse
        values["another record"] = np.zeros(1)
    return PartAnswer(round, purpose, note["client"], note, values)


def _read_fields(fields: Mapping[str, Array], request: OutgoingRequest) -> dict[str, NDArray[Any]]:
    """The arrays of an answer, with a row for its client."""
    # Others are not read, since each may name the same large array: of their names alone the
    # validator will refuse them.
    if set(fields) != request.fields:
        return {"other fields": np.zeros(1)}
    most = request.limit.size
    return {name: read_array(array.data, most)[None] for name, array in fields.items()}
