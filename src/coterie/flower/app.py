"""The two parts of a Flower app: ``coterie.flower.app:server`` and ``coterie.flower.app:client``.

The folder that ``coterie deploy init`` makes names both. A node's data come from
``load_client(context)`` in its ``client.py``, from another file that the node's configuration names
(``loader``), or from files, a database or images (``data``).

Flower starts a process for each message of a node. It hands the message to the node's worker, which
has PyTorch loaded; so this module imports neither PyTorch nor Numba.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Before Flower is imported, which reads them.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as PackedRecordDict
from flwr.serverapp import Grid, ServerApp

from coterie.errors import CoterieError
from coterie.flower.node.worker_link import WorkerLostError, WorkerPlace, ask_worker, find_place

log = logging.getLogger("flwr")
KEYS = {
    "config": "coterie-config",
    "settings": "coterie-settings",
    "out": "coterie-out",
    "resume": "coterie-resume",
}
# What a worker is started with.
WORKER = "from coterie.flower.app import work; work()"

server = ServerApp()
client = ClientApp()


@server.main()
def run_server(grid: Grid, context: Context) -> None:
    """Run the rounds; see ``coterie.flower.server.serve.serve``."""
    from coterie.flower.server.live import event_writer
    from coterie.flower.server.serve import serve

    values = {name: context.run_config.get(key, "") for name, key in KEYS.items()}
    write_event = event_writer()
    try:
        serve(grid, values, write_event)
    except CoterieError as error:
        write_event("error", {"code": error.code, "message": str(error)})
        raise


@client.query("describe")
def on_describe(message: Message, context: Context) -> Message:
    """Say who this is; see ``coterie.flower.node.app.describe_client``."""
    return Message(_reply("describe", message.content, context), reply_to=message)


@client.query("statistic")
@client.train()
@client.evaluate()
def on_work(message: Message, context: Context) -> Message:
    """Train, evaluate, or compute a statistic; see ``coterie.flower.node.app.answer_requests``."""
    return Message(_reply("work", message.content, context), reply_to=message)


def _reply(kind: str, content: RecordDict, context: Context) -> RecordDict:
    """The content of the reply: the worker's, or this process's own where there is none."""
    place = find_place(context.node_config, WORKER)
    if place is not None:
        try:
            return _ask(place, kind, content, context)
        except WorkerLostError:
            # Work may have changed what the client keeps, so it is not done twice. Who the client
            # is can be asked as often as one likes.
            if kind == "work":
                raise
        except OSError as error:
            log.warning("coterie: no worker (%s); this message is slower", error)
    return _work(kind, content, context, _client_file())


def _ask(place: WorkerPlace, kind: str, content: RecordDict, context: Context) -> RecordDict:
    """Have the worker do it."""
    file = _client_file()
    head = {
        # What a worker cannot change any more: its code, and where it looks for an app's.
        "identity": [version("coterie"), sys.path],
        "kind": kind,
        "app": None if file is None else str(file),
        "run_id": context.run_id,
        "node_id": context.node_id,
        "node_config": dict(context.node_config),
        "run_config": dict(context.run_config),
    }
    _, body = ask_worker(place, head, recorddict_to_proto(content).SerializeToString())
    return recorddict_from_proto(PackedRecordDict.FromString(body))


def _client_file() -> Path | None:
    """The app's ``client.py``; ``None`` where it has none."""
    # Flower puts the folder of the app on Python's path, and says nowhere else where it is.
    for folder in map(Path, sys.path):
        if (folder / "client.py").is_file() and (folder / "pyproject.toml").is_file():
            return folder / "client.py"
    return None


def _work(kind: str, content: RecordDict, context: Context, app: Path | None) -> RecordDict:
    """The content of the reply to a message; imports PyTorch."""
    from coterie.flower.node import app as node_app

    answer = node_app.describe_client if kind == "describe" else node_app.answer_requests
    replied: RecordDict = answer(content, context, app)
    return replied


# --- the worker -----------------------------------------------------------------------------------


def work() -> None:
    """Be the worker of a node; see ``coterie.flower.node.worker``."""
    from coterie.flower.node.worker import run_worker

    run_worker(_handle)


def _handle(head: Mapping[str, Any], body: bytes) -> tuple[Mapping[str, Any], bytes]:
    """A message of `_ask`."""
    # An app's own modules are found where the process of the message would find them.
    sys.path[:] = head["identity"][1]
    app = None if head["app"] is None else Path(head["app"])
    context = Context(
        run_id=head["run_id"],
        node_id=head["node_id"],
        node_config=head["node_config"],
        state=RecordDict(),
        run_config=head["run_config"],
    )
    content = recorddict_from_proto(PackedRecordDict.FromString(body))
    replied = _work(head["kind"], content, context, app)
    return {}, recorddict_to_proto(replied).SerializeToString()
