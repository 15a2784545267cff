"""Replies from a SuperLink, limited before they are decoded.

Flower takes a message apart into objects, which it names by their digests. Its own
``grid.pull_messages`` fetches all objects of all replies, however many and however large, waits
minutes for a reply that a node announced and never sent, and decodes all replies before it returns
one.
So this module uses what is underneath: the names of a message's objects come first, then each
object by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from flwr.app import Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_head_values_from_object_content,
)
from flwr.supercore.inflatable.inflatable_utils import (
    inflatable_class_registry,
    inflate_object_from_contents,
)

from coterie.engines.flower.inbox import Arrival, ReplyLimit
from coterie.files import read_json

_FRAME = 1 << 10  # bytes around an object on its way
_CHUNK = "ArrayChunk"
_ARRAY = "Array"


class _RefusedError(Exception):
    """A reply that is not taken in: its argument is the reason."""


@dataclass(slots=True)
class _SizeGuard:
    """Refuses an answer of the SuperLink by its announced length, before it is read."""

    most: int | None = None

    def __call__(self, response: httpx.Response) -> None:
        length = int(response.headers.get("content-length", 0))
        if self.most is not None and length > self.most + _FRAME:
            raise _RefusedError("malformed")

    @contextmanager
    def limit(self, most: int) -> Iterator[None]:
        self.most = most
        try:
            yield
        finally:
            self.most = None


@dataclass(slots=True)
class _Download:
    """A reply that is being fetched, by digests: of the message itself, and of the objects still to
    come."""

    message: str
    missing: list[str]
    contents: dict[str, bytes] = field(default_factory=dict)
    size: int = 0


class HttpInbox:
    """Replies from a SuperLink; see ``inbox.Inbox``."""

    def __init__(self, grid: Any) -> None:
        self.grid = grid
        self._guard = _SizeGuard()
        # Flower's connection is opened again if it was closed.
        self._guarded: httpx.Client | None = None
        self._downloads: dict[str, _Download] = {}  # by the message that each one answers

    @classmethod
    def fits(cls, grid: Grid) -> bool:
        """Whether a grid has what this class uses of its insides."""
        return hasattr(type(grid), "_runtime_client")

    def pull(self, requests: Collection[str], limit: ReplyLimit) -> list[Arrival]:
        arrivals = self._begin(requests, limit)
        for request in [name for name in requests if name in self._downloads]:
            download = self._downloads[request]
            try:
                self._fetch(download, limit)
                if download.missing:
                    continue
                message = _decoded(download, limit)
            except _RefusedError as refused:
                arrivals.append(Arrival(request, None, str(refused)))
            else:
                arrivals.append(Arrival.of(request, message))
            self.drop([request])
        return arrivals

    def drop(self, requests: Collection[str]) -> None:
        for request in requests:
            download = self._downloads.pop(request, None)
            if download is not None:
                self._confirm(download.message)

    def _begin(self, requests: Collection[str], limit: ReplyLimit) -> list[Arrival]:
        """Ask which replies there are; returns those that are refused for what they announce."""
        # The SuperLink names a reply once, so those that it named are not asked for again.
        awaited = [name for name in requests if name not in self._downloads]
        if not awaited:
            return []
        answer = self._client.PullMessages(PullAppMessagesRequest(message_ids=awaited))
        arrivals = []
        pairs = zip(answer.messages_list, answer.message_object_trees, strict=True)
        for message, tree in pairs:
            request = message.metadata.reply_to_message_id
            # Nodes may send messages that answer nothing.
            if request not in awaited:
                continue
            names = _object_names(tree, limit.objects)
            if names is None:
                self._confirm(message.metadata.message_id)
                arrivals.append(Arrival(request, None, "malformed"))
            else:
                self._downloads[request] = _Download(message.metadata.message_id, names)
        return arrivals

    def _fetch(self, download: _Download, limit: ReplyLimit) -> None:
        """Fetch the objects that a node has sent by now; refuses those that are too large, or no
        longer there."""
        while download.missing:
            left = limit.size - download.size
            request = PullObjectRequest(
                node=self.grid.node, run_id=self.grid.run.run_id, object_id=download.missing[-1]
            )
            with self._guard.limit(left):
                answer = self._client.PullObject(request)
            # The SuperLink forgets what a node announced and did not send in three minutes.
            if not answer.object_found:
                raise _RefusedError("unavailable")
            # Not waited for here: the others' replies come first.
            if not answer.object_available:
                return
            content = answer.object_content
            if len(content) > left:
                raise _RefusedError("malformed")
            download.contents[download.missing.pop()] = content
            download.size += len(content)

    def _confirm(self, message: str) -> None:
        """Let the SuperLink delete a message with all its objects."""
        request = ConfirmMessageReceivedRequest(
            node=self.grid.node, run_id=self.grid.run.run_id, message_object_id=message
        )
        self._client.ConfirmMessageReceived(request)

    @property
    def _client(self) -> Any:
        """Flower's connection to the SuperLink, with the guard at its end."""
        client = self.grid._runtime_client
        transport = client._client
        if transport is not self._guarded:
            transport.event_hooks["response"].append(self._guard)
            self._guarded = transport
        return client


def _object_names(tree: Any, most: int) -> list[str] | None:
    """The digests of a message's objects; ``None`` if they are too many."""
    names: dict[str, None] = {}
    rest = [tree]
    visited = 0
    while rest:
        one = rest.pop()
        names[one.object_id] = None
        visited += 1
        # Before the children are looked at: one object may name a million.
        if visited + len(rest) + len(one.children) > most:
            return None
        rest += one.children
    return list(names)


def _decoded(download: _Download, limit: ReplyLimit) -> Message:
    """The message that objects make; refuses those that make none, or a larger one than
    expected."""
    try:
        _check_sizes(download.contents, limit)
        message = inflate_object_from_contents(download.message, download.contents)
    except _RefusedError:
        raise
    except Exception:  # noqa: BLE001 - the sender is not trusted
        raise _RefusedError("malformed") from None
    if not isinstance(message, Message):
        raise _RefusedError("malformed")
    return message


def _check_sizes(contents: dict[str, bytes], limit: ReplyLimit) -> None:
    """Refuse objects that would grow when decoded: numbers and words take many times their bytes as
    Python's objects, and an array may name the same piece a million times."""
    size = 0
    for content in contents.values():
        kind, children, _ = get_object_head_values_from_object_content(content)
        if kind != _CHUNK and len(content) > limit.words:
            raise _RefusedError("malformed")
        if kind == _ARRAY:
            body = get_object_body(content, inflatable_class_registry[_ARRAY])
            pieces = read_json(body)["arraychunk_ids"]
            size += sum(len(contents[children[piece]]) for piece in pieces)
    if size > limit.size:
        raise _RefusedError("malformed")
