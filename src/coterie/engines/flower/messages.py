"""How the server reads a message from a client, of which it believes nothing.

Used by the server's side of this package (`engine`, `inbox`, `register`). The names of a message's
parts stand here for both sides; what a client reads and writes is in `node_messages`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Message
from numpy.lib import format as npy
from numpy.typing import NDArray

from coterie.clients import wire

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
    """The name of a record of one of several requests in a message.

    Args:
        record: what it is: `NOTE`, `FIELDS` or `SHARES`.
        number: of the request, from 0.

    Example:
        >>> part_name(NOTE, 0), part_name(NOTE, 1)
        ('coterie', 'coterie.1')
    """
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
