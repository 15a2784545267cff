"""How one-shot grouping asks clients for their signatures, of many clients block by block.

Used by `coterie.rules.one_shot`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from coterie.clients.round import Round
from coterie.core.arrays import IntArray
from coterie.core.describe import Describe
from coterie.core.work import Train
from coterie.rules.large_federations import LargeFederation
from coterie.rules.signatures import Signature

# Bytes of signatures, and clients, that are handled at once: so many clients' distances to 4,096
# others take 0.3 GB.
_BLOCK = 2**27
_MOST = 8192


def ask_signatures(
    signature: Signature, origin: Tensor, ids: IntArray, round: Round, notes: Counter[str]
) -> tuple[IntArray, Tensor]:
    """The signatures that were received and are not zero.

    Args:
        signature: what is asked for.
        origin: float32 ``[d]``, the model that they are made with.
        ids: int64, who is asked.
        round: its stream.
        notes: counts ``unsigned``, those who sent none that is usable.

    Returns:
        int64 ``[n]`` and float32 ``[n, ...]``.
    """
    work = signature.work(round)
    if isinstance(work, Train):
        name = "delta"
        which = np.zeros(len(ids), np.int64)
    else:
        name = work.statistic
        # No model is sent for a statistic of a client's data.
        which = np.zeros((len(ids), 0), np.int64)
    reply = round.clients.run(work, ids, origin[None], which, key=round.key)
    rows = torch.from_numpy(reply.fields[name]).to(torch.float32)
    # A zero signature would be equally near to all, and a zero vector has no angle.
    usable = rows.flatten(1).any(dim=1)
    if len(ids) > int(usable.sum()):
        notes["unsigned"] += len(ids) - int(usable.sum())
    return reply.ids[usable.numpy()], rows[usable]


def ask_shortened(
    signature: Signature,
    large: LargeFederation,
    origin: Tensor,
    ids: IntArray,
    round: Round,
    notes: Counter[str],
) -> tuple[IntArray, Tensor]:
    """The same, each block of clients shortened before the next one is asked.

    Args:
        signature: what is asked for.
        large: how it is shortened.
        origin: float32 ``[d]``, the model that signatures are made with.
        ids: int64, who is asked, at least one.
        round: its stream.
        notes: counts ``unsigned``.
    """
    answered = []
    shortened = []
    for block in blocks_of(ids, signature.work(round), len(origin)):
        some, rows = ask_signatures(signature, origin, block, round, notes)
        answered.append(some)
        shortened.append(large.shortened(rows, round))
    return np.concatenate(answered), torch.cat(shortened)


def blocks_of(ids: IntArray, work: Train | Describe, d: int) -> Iterator[IntArray]:
    """The clients in blocks whose answers fit into memory.

    Args:
        ids: int64 ``[n]``.
        work: what they are asked.
        d: values of a model.
    """
    width = d
    if isinstance(work, Train) and work.upload is not None:
        width = work.upload[1] - work.upload[0]
    block = min(_MOST, max(1, _BLOCK // (4 * width)))
    for at in range(0, len(ids), block):
        yield ids[at : at + block]
