"""Requests as the server sends them, several to one client in one message, and how it reads the answers,
of which it believes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor

from coterie.clients import wire
from coterie.core import ClientShares, Describe, IntArray, Key, Mixture, Reply
from coterie.core.arrays import rows_of_each
from coterie.core.work import Score, SelectGroup, Train, Work
from coterie.engines.flower.inbox import ReplyLimit, reply_limit
from coterie.engines.flower.messages import FIELDS, NOTE, SHARES, part_name, read_array


@dataclass(eq=False, slots=True)
class OutgoingRequest:
    """A request from which messages are made: the digests of each client's models, and by digest
    the model as it travels."""

    work: Work
    text: str
    key: Key
    wanted: Mapping[int, Sequence[str]]
    records: Mapping[str, ArrayRecord]
    fields: frozenset[str]
    limit: ReplyLimit
    sent: bool = False
    replies: list[Reply] = field(default_factory=list)

    @classmethod
    def of(
        cls, work: Work, ids: IntArray, models: Tensor, which: IntArray, key: Key, local: Train
    ) -> OutgoingRequest:
        """A request of an engine."""
        rows = rows_of_each(which)
        # A description of data needs no model, or one.
        if isinstance(work, Describe) and not work.needs_model:
            rows = rows[:, :0]
        # Models are named by their content: a client that keeps one is sent only its name, and one
        # that serves many clients is serialised once.
        digests = {}
        records = {}
        shared = _shared(models, local)
        for row in np.unique(rows).tolist():
            vector = shared[row].contiguous()
            digests[row] = wire.digest(vector)
            records[digests[row]] = ArrayRecord({"w": Array(vector.numpy())})
        wanted = {
            client: [digests[row] for row in mine]
            for client, mine in zip(ids.tolist(), rows.tolist(), strict=True)
        }
        d = models.shape[1]
        r = rows.shape[1]
        fields = frozenset(work.fields(d, r))
        limit = reply_limit(work, d, r)
        return cls(work, wire.dumps(work, local), key, wanted, records, fields, limit)

    def part(
        self, number: int, client: int, kept: set[str], envelope: Mapping[str, Any]
    ) -> dict[str, ArrayRecord | ConfigRecord]:
        """The records of this request in one client's message, without the models that the client
        ``kept``. The note of the first request also has the ``envelope``."""
        names = self.wanted[client]
        note = {
            **({} if number else envelope),
            "work": self.text,
            "round": self.key.round,
            "purpose": self.key.purpose,
            "seed": self.key.seed,
            "models": " ".join(names),
        }
        if not isinstance(self.work, SelectGroup):
            kept = set()
        part: dict[str, ArrayRecord | ConfigRecord] = {part_name(NOTE, number): ConfigRecord(note)}
        part |= {name: self.records[name] for name in names if name not in kept}
        shares = _shares_record(self.work, client)
        if shares is not None:
            part[part_name(SHARES, number)] = shares
        return part


def _shared(models: Tensor, local: Train) -> Tensor:
    """The coordinates of models that are sent: all but those that stay with clients."""
    if local.stays is None:
        return models
    return models[:, torch.from_numpy(local.stays.shared(models.shape[1]))]


def _shares_record(work: Work, client: int) -> ArrayRecord | None:
    """The shares of one client, as it receives them."""
    shares: ClientShares | None = None
    match work:
        case Train(how=Mixture(shares=shares)) | Score(shares=shares):
            pass
    if shares is None:
        return None
    arrays = {"shares": Array(shares.of(np.array([client]))[0])}
    if shares.label_prior is not None:
        arrays["label_prior"] = Array(shares.label_prior)
    return ArrayRecord(arrays)


def message_kind(works: Sequence[Work]) -> str:
    """The kind of message that Flower knows some work by: training, if there is any."""
    if any(isinstance(work, Train | SelectGroup) for work in works):
        return "train"
    if any(isinstance(work, Score) for work in works):
        return "evaluate"
    return "query.statistic"


def limit_of(requests: Sequence[OutgoingRequest]) -> ReplyLimit:
    """The most that an honest reply to a message of these requests takes."""
    limits = [request.limit for request in requests]
    return ReplyLimit(
        sum(limit.objects for limit in limits),
        sum(limit.words for limit in limits),
        sum(limit.size for limit in limits),
    )


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """A client's answer to one request; round, purpose and sender are those that it claims."""

    round: int
    purpose: str
    sender: Any
    note: Mapping[str, Any]
    values: Mapping[str, NDArray[Any]]


def read_part(
    content: RecordDict, number: int, parts: int, request: OutgoingRequest
) -> PartAnswer | str:
    """The answer to one request of a message, or a word of ``wire.FAILURES``. Raises an exception
    of any kind for what is no answer."""
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
    # Others are not read, since each may name the same large array: of their names alone the
    # validator will refuse them.
    if set(fields) != request.fields:
        return {"other fields": np.zeros(1)}
    most = request.limit.size
    return {name: read_array(array.data, most)[None] for name, array in fields.items()}
