"""A SuperLink without its process: Flower's own grid over HTTP, answered in this process by the
client component."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
from flwr.app import Context, Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    ObjectTree,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import (
    GetNodesResponse,
    PullAppMessagesRequest,
    PullAppMessagesResponse,
    PushAppMessagesRequest,
    PushAppMessagesResponse,
)
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.superlink.grid import HttpGrid

from coterie.flower.app import client

Spoil = Callable[[int, Message], Message]


class Body(httpx.SyncByteStream):
    """A body that notes how much of it was read."""

    def __init__(self, link: FakeSuperlink, content: bytes) -> None:
        self.link = link
        self.content = content

    def __iter__(self) -> Iterator[bytes]:
        self.link.served += len(self.content)
        yield self.content


class FakeSuperlink:
    """Nodes 100, 101, ... behind Flower's grid over HTTP.

    Args:
        contexts: of each node.
        spoil: node and reply -> what it sends instead.
        withheld: whether an object of this content is announced and never sent.
    """

    def __init__(
        self,
        contexts: Mapping[int, Context],
        spoil: Spoil = lambda node, reply: reply,
        withheld: Callable[[bytes], bool] = lambda content: False,
    ) -> None:
        self.contexts = dict(contexts)
        self.spoil = spoil
        self.withheld = withheld
        self.objects: dict[str, bytes] = {}
        self.waiting: dict[str, ObjectTree] = {}
        self.pulled = 0
        self.served = 0
        self.confirmed = 0

    def grid(self) -> HttpGrid:
        """Flower's grid, connected to this."""
        grid = HttpGrid(token="token")
        connection = RuntimeHttpClient("https://superlink")
        connection._client.close()
        connection._client = httpx.Client(transport=httpx.MockTransport(self._answer))
        grid._client = connection
        grid.set_run(Run.create_empty(1))
        return grid

    def _answer(self, request: httpx.Request) -> httpx.Response:
        name = request.url.path.rpartition("/")[2].replace("-", "_")
        content = getattr(self, f"_{name}")(request.read()).SerializeToString()
        headers = {"content-length": str(len(content))}
        return httpx.Response(200, headers=headers, stream=Body(self, content))

    def _get_nodes(self, body: bytes) -> GetNodesResponse:
        names = {node: str(one.node_config["client"]) for node, one in self.contexts.items()}
        nodes = [NodeInfo(node_id=node, name=name) for node, name in names.items()]
        return GetNodesResponse(nodes=nodes)

    def _push_messages(self, body: bytes) -> PushAppMessagesResponse:
        trees = PushAppMessagesRequest.FromString(body).message_object_trees
        self.waiting |= {tree.object_id: tree for tree in trees}
        objects = {one.object_id for tree in trees for one in iterate_object_tree(tree)}
        names = [tree.object_id for tree in trees]
        return PushAppMessagesResponse(message_ids=names, objects_to_push=objects)

    def _push_object(self, body: bytes) -> PushObjectResponse:
        request = PushObjectRequest.FromString(body)
        self.objects[request.object_id] = request.object_content
        return PushObjectResponse(stored=True)

    def _pull_messages(self, body: bytes) -> PullAppMessagesResponse:
        messages = []
        trees = []
        for name in PullAppMessagesRequest.FromString(body).message_ids:
            if name not in self.waiting:
                continue
            reply = self._reply(name, self.waiting.pop(name))
            tree = get_object_tree(reply)
            trees.append(tree)
            for digest, one in get_all_nested_objects(reply).items():
                self.objects[digest] = one.deflate()
            header = message_to_proto(remove_content_from_message(reply))
            header.metadata.message_id = tree.object_id
            messages.append(header)
        return PullAppMessagesResponse(messages_list=messages, message_object_trees=trees)

    def _reply(self, name: str, tree: ObjectTree) -> Message:
        contents = {one.object_id: self.objects[one.object_id] for one in iterate_object_tree(tree)}
        request: Any = inflate_object_from_contents(name, contents)
        request.metadata.__dict__["_message_id"] = name
        node = request.metadata.dst_node_id
        return self.spoil(node, client(request, self.contexts[node]))

    def _pull_object(self, body: bytes) -> PullObjectResponse:
        self.pulled += 1
        content = self.objects.get(PullObjectRequest.FromString(body).object_id)
        if content is None:
            return PullObjectResponse(object_found=False)
        if self.withheld(content):
            return PullObjectResponse(object_found=True, object_available=False)
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def _confirm_message_received(self, body: bytes) -> ConfirmMessageReceivedResponse:
        name = ConfirmMessageReceivedRequest.FromString(body).message_object_id
        assert name in self.objects
        self.confirmed += 1
        return ConfirmMessageReceivedResponse()
