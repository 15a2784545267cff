"""What two processes of one user say to each other over a socket: words and numbers as JSON, and
bytes. Nothing that comes is executed, and no object is made of it."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Mapping
from typing import Any

_START = struct.Struct(">4sIQ")  # mark, bytes of the head, bytes of the body
_MARK = b"CTW1"
_MOST_HEAD = 1 << 26
_MOST_BODY = 1 << 34
_CREDENTIALS = struct.Struct("3i")  # Linux's ucred: process, user, group


def send_frame(connection: socket.socket, head: Mapping[str, Any], body: bytes = b"") -> None:
    """Send words, as JSON can hold them, and bytes."""
    words = json.dumps(head).encode()
    connection.sendall(_START.pack(_MARK, len(words), len(body)) + words)
    # Nothing to send is not sent: the other end may have read all, and be closed.
    if body:
        connection.sendall(body)


def read_frame(connection: socket.socket) -> tuple[dict[str, Any], bytes]:
    """What `send_frame` sent.

    Raises:
        EOFError: if the other process ended before it was whole.
        ValueError: for anything else than a frame.
    """
    mark, head, body = _START.unpack(_read(connection, _START.size))
    if mark != _MARK or head > _MOST_HEAD or body > _MOST_BODY:
        raise ValueError("no frame")
    words = json.loads(_read(connection, head))
    if not isinstance(words, dict):
        raise ValueError("no frame")
    return words, _read(connection, body)


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    at = 0
    while at < size:
        came = connection.recv_into(view[at:])
        if not came:
            raise EOFError("the other process ended")
        at += came
    return bytes(data)


def check_peer(connection: socket.socket) -> None:
    """Refuse a process of another user."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(packed)
    if user != os.getuid():
        raise PermissionError(f"a process of another user, {user}")
