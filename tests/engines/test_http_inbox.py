"""What a registered node may send over Flower's own grid: nothing of it ends a run, and little of it
is fetched or decoded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.message.arraychunk import ArrayChunk
from flwr.supercore.inflatable.inflatable_object import add_header_to_object_body, get_object_tree
from flwr.superlink.grid import HttpGrid

from coterie.engines.flower.engine import open_inbox
from coterie.engines.flower.http_inbox import HttpInbox, _object_names
from coterie.engines.flower.inbox import GridInbox
from tests.engines.fake_grid import FakeGrid, contexts
from tests.engines.fake_superlink import FakeSuperlink
from tests.engines.test_flower import SETTINGS, deploy, models, nodes, note_of, tables

HOSTILE = 105  # the node of the last client


def superlink(folder: Path, **options: Any) -> FakeSuperlink:
    return FakeSuperlink(contexts(tables(), SETTINGS, range(6), folder), **options)


def test_the_installed_flower_lets_replies_be_limited() -> None:
    assert isinstance(open_inbox(HttpGrid(token="token")), HttpInbox)
    assert isinstance(open_inbox(FakeGrid({})), GridInbox)


def test_models_are_the_same_as_over_the_other_grid(tmp_path: Path) -> None:
    link = superlink(tmp_path)
    reported = deploy(tmp_path, tables(), link.grid())
    deploy(tmp_path / "b", tables())
    assert not reported.refused
    assert torch.equal(models(tmp_path / "run"), models(tmp_path / "b" / "run"))
    # Nothing is left in the SuperLink's store: six names, two rounds, and the scores of the last.
    assert link.confirmed == 6 * (1 + 2 + 1)


# --- what a node may send instead of its reply ----------------------------------------------------


def garbage(reply: Message) -> None:
    """A record of words that no decoder takes."""
    record: Any = reply.content.config_records["coterie"]
    record.deflate = lambda: add_header_to_object_body(b"\xff\xff\xff\xff", record)


def many_fields(reply: Message) -> None:
    fields = {f"field {i}": Array(np.full(1, i)) for i in range(3000)}
    reply.content["fields"] = ArrayRecord(fields)


def many_bytes(reply: Message) -> None:
    reply.content["fields"] = ArrayRecord({"delta": Array(np.zeros(8_000_000))})


def many_small_pieces(reply: Message) -> None:
    """Less than is too much by itself, and more than is expected in sum."""
    arrays = {name: Array(np.full(60_000, i)) for i, name in enumerate(("delta", "size", "loss"))}
    reply.content["fields"] = ArrayRecord(arrays)


def one_piece_a_million_times(reply: Message) -> None:
    """A few kilobytes that would be joined to gigabytes."""
    reply.content["fields"] = ArrayRecord({"delta": Array(np.zeros(300))})
    array: Any = reply.content.array_records["fields"]["delta"]
    body = json.dumps(
        {"dtype": "float64", "shape": [1], "stype": "numpy", "arraychunk_ids": [0] * 20_000}
    )
    array.deflate = lambda: add_header_to_object_body(body.encode(), array)


def many_words(reply: Message) -> None:
    """Numbers of one byte each, which Python keeps in eight and more."""
    reply.content["coterie"] = ConfigRecord({"numbers": [1] * 100_000})


def deep_json(reply: Message) -> None:
    content: Any = reply.content
    body = b"[" * 30_000
    content.deflate = lambda: add_header_to_object_body(body, content)


def no_message(reply: Message) -> None:
    """The whole is no message but a piece of an array."""
    piece = ArrayChunk(memoryview(b"piece"))
    whole: Any = reply
    whole.deflate = piece.deflate
    whole.__class__ = type("Piece", (Message,), {"children": property(lambda self: None)})


SPOILED: dict[str, Callable[[Message], None]] = {
    function.__name__: function
    for function in (
        garbage,
        many_fields,
        many_bytes,
        many_small_pieces,
        one_piece_a_million_times,
        many_words,
        deep_json,
        no_message,
    )
}


def spoiled(how: Callable[[Message], None], kind: str) -> Callable[[int, Message], Message]:
    def spoil(node: int, reply: Message) -> Message:
        if node == HOSTILE and reply.metadata.message_type == kind:
            how(reply)
        return reply

    return spoil


@pytest.mark.sampled(4)
@pytest.mark.parametrize("how", SPOILED)
def test_a_reply_that_cannot_be_read_is_counted_and_changes_nothing(
    how: str, tmp_path: Path
) -> None:
    link = superlink(tmp_path, spoil=spoiled(SPOILED[how], "train"))
    reported = deploy(tmp_path, tables(rounds=1), link.grid())
    assert reported.refused == {"malformed": 1}

    def lose(node: int, request: Message, replies: list[Message]) -> list[Message]:
        return [] if node == HOSTILE and request.metadata.message_type == "train" else replies

    without = tmp_path / "without"
    grid = nodes(without, tables(), meddle=lose)
    deploy(without, tables(rounds=1), grid, reply_wait=0.1)
    assert torch.equal(models(tmp_path / "run"), models(without / "run"))


@pytest.mark.parametrize("how", ["garbage", "many_fields", "deep_json"])
def test_a_node_that_cannot_say_who_it_is_is_refused(how: str, tmp_path: Path) -> None:
    link = superlink(tmp_path, spoil=spoiled(SPOILED[how], "query.describe"))
    waits = {"min_clients": 5, "longest_wait": 0.2}
    reported = deploy(tmp_path, tables(rounds=1), link.grid(), **waits)
    assert reported.refused == {"malformed": 1}
    (line,) = reported.lines
    assert line.startswith("refused: node 105: cannot take part, got 'malformed'")


def test_what_is_too_much_is_not_fetched(tmp_path: Path) -> None:
    """By the number of objects and by the announced length, before anything is read."""
    honest = superlink(tmp_path)
    deploy(tmp_path / "honest", tables(rounds=1), honest.grid())
    for how in (many_fields, many_bytes):
        link = superlink(tmp_path, spoil=spoiled(how, "train"))
        deploy(tmp_path / how.__name__, tables(rounds=1), link.grid())
        assert link.pulled <= honest.pulled
        assert link.served < honest.served + 500_000


def test_an_object_that_was_announced_and_never_sent_holds_up_no_other(tmp_path: Path) -> None:
    """Flower itself waits for it, for minutes, before it looks at the other replies."""

    def spoil(node: int, reply: Message) -> Message:
        if node == HOSTILE and reply.metadata.message_type == "train":
            reply.content["coterie"] = ConfigRecord({**note_of(reply), "withheld": True})
        return reply

    link = superlink(tmp_path, spoil=spoil, withheld=lambda content: b"withheld" in content)
    reported = deploy(tmp_path, tables(rounds=1), link.grid(), reply_wait=1.0)
    assert reported.refused == {"no answer": 1}


def test_a_tree_is_not_walked_beyond_the_limit() -> None:
    record = RecordDict({"fields": ArrayRecord({str(i): Array(np.full(1, i)) for i in range(50)})})
    tree = get_object_tree(record)
    assert _object_names(tree, 50) is None
    names = _object_names(tree, 200)
    assert names is not None
    assert len(names) == 102
