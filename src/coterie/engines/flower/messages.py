"""What a server reads in a message from a client, of which it believes nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, Message, RecordDict
from numpy.lib import format as npy
from numpy.typing import NDArray

from coterie.clients import wire
from coterie.core.work import Work

NOTE = "coterie"  # the record of a message with words and numbers
FIELDS = "fields"  # the record of a reply with arrays
# The kind of message that asks a node who it is. A `Describe` record, of data, is another kind.
ASK_IDENTITY = "query.describe"
_HEADER = 512  # bytes that a NumPy header may take
# Flower's codes of errors (`flwr.common.constant.ErrorCode`) of an app that failed on its node, or
# that nothing is known of. Any other is taken for a node that cannot be reached.
_APP_FAILED = (0, 1, 2)


def parts_of(content: RecordDict) -> tuple[Mapping[str, Any], Mapping[str, Array], bool]:
    """The note, the fields, and whether there is anything else."""
    note = content.config_records[NOTE]
    fields = content.array_records.get(FIELDS, {})
    return note, fields, bool(set(content) - {NOTE, FIELDS})


def failure_of(message: Message) -> str | None:
    """Why a message is no reply: ``unavailable`` where the node is gone, or what the client says of
    its failure; ``None`` where it is one."""
    if message.has_error():
        if message.error.code in _APP_FAILED:
            return "failed"
        return "unavailable"
    reported = message.content.config_records.get(NOTE, {}).get("failed")
    if reported is None:
        return None
    if reported in wire.FAILURES:
        return reported
    return "malformed"


def most_bytes(work: Work, d: int, r: int) -> int:
    """The most bytes that any field of a reply may take."""
    # Eight for each value: a client may send float64, and the validator takes nothing larger.
    return _HEADER + max(8 * math.prod(shape) for shape, _ in work.fields(d, r).values())


def read_array(data: bytes, most: int) -> NDArray[Any]:
    """An array in NumPy's own format.

    The bytes are a stranger's. ``numpy.load`` would unpickle objects, and trust a header that asks
    for more memory than there is: here the size is checked first, and the header against it.

    Args:
        data: as they came.
        most: bytes that are expected at most.

    Raises:
        ValueError: if it is none, or larger than expected.
    """
    if len(data) > most:
        raise ValueError("too large")
    file = BytesIO(data)
    # Version 1.0 is what NumPy writes for arrays of numbers; later ones are for the long headers of
    # records.
    if npy.read_magic(file) != (1, 0):
        raise ValueError("another format")
    shape, fortran, dtype = npy.read_array_header_1_0(file)
    body = data[file.tell() :]
    # Values of no bytes would fit any shape, however large.
    if dtype.hasobject or not dtype.itemsize or math.prod(shape) * dtype.itemsize != len(body):
        raise ValueError("another size")
    # Copied, since what lies in a message's bytes is read-only and keeps all of them in memory.
    flat = np.frombuffer(body, dtype)
    if fortran:
        return flat.reshape(shape, order="F").copy()
    return flat.reshape(shape).copy()
