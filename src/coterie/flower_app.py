"""The two components of a Flower app: ``coterie.flower_app:server`` and
``coterie.flower_app:client``.

The folder that ``coterie deploy init`` makes names both. A node's data come from
``load_client(context)`` in its ``client.py``, from another file that the node's configuration names
(``loader``), or from parquet files (``data``).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from coterie.errors import CoterieError, DataError

log = logging.getLogger("flwr")
KEYS = {
    "config": "coterie-config",
    "settings": "coterie-settings",
    "out": "coterie-out",
    "resume": "coterie-resume",
}

server = ServerApp()
client = ClientApp()


@server.main()
def serve(grid: Grid, context: Context) -> None:
    """The rounds of a run; see ``coterie.deploy.serve.serve``."""
    from coterie.deploy import serve as rounds

    given = {name: context.run_config.get(key, "") for name, key in KEYS.items()}
    tell = rounds.teller()
    try:
        rounds.serve(grid, given, tell)
    except CoterieError as error:
        tell("error", {"code": error.code, "message": str(error)})
        raise


@client.query("describe")
def describe(message: Message, context: Context) -> Message:
    """Who this is: name, version, network, classes; see ``coterie.clients.identity.Identity``."""
    from coterie.engines.flower import write_failure, write_identity

    try:
        node, name = _node(message, context)
        return write_identity(message, node.identity(name, node.built.labels))
    except Exception as error:  # noqa: BLE001 - what fails here is told in this node's log alone
        return write_failure(message, _reason(error))


@client.query("statistic")
@client.train()
@client.evaluate()
def work(message: Message, context: Context) -> Message:
    """Local training, scores on the client's own data, or a statistic of them."""
    from coterie.engines.flower import read_request, write_answer, write_failure

    try:
        node, _ = _node(message, context)
        request = read_request(message, node.built.objective, node.cache.model)
        if request is None:
            return write_failure(message, "missing")
        return write_answer(message, request, node.answer(request))
    except Exception as error:  # noqa: BLE001 - what fails here is told in this node's log alone
        return write_failure(message, _reason(error))


def _reason(error: Exception) -> str:
    """One word for the server; the rest is for this node's log."""
    log.error(
        "coterie: %s: %s", type(error).__name__, error, exc_info=not isinstance(error, CoterieError)
    )
    if isinstance(error, CoterieError):
        return {2: "config", 3: "data"}.get(error.code, "work")
    return "work"


@lru_cache(maxsize=8)
def _built(config: str, settings: str, classes: str | None) -> Any:
    """Network and method of a run, as every machine makes them; ``classes`` is the node's own
    list."""
    from coterie.deploy.built import Built
    from coterie.deploy.serve import parse
    from coterie.deploy.settings import Settings

    known = Settings.loads(settings)
    labels = (
        known.classes if classes is None else tuple(part.strip() for part in classes.split(","))
    )
    return Built.of(parse(config), known.shape, labels)


def _node(message: Message, context: Context) -> tuple[Any, str]:
    """This node, ready to work, and its name."""
    from coterie.deploy.node import Cache, Holding, Node, cache_root
    from coterie.engines.flower import run_of

    name = str(context.node_config.get("client", ""))
    if not name:
        raise DataError("node: no name, got none; expected --node-config 'client=\"hospital-3\"'")
    given = context.node_config.get("classes")
    texts = (str(context.run_config[KEYS[key]]) for key in ("config", "settings"))
    built = _built(*texts, None if given is None else str(given))
    holding = Holding.of(*_load(context), shape=built.shape, classes=built.classes)
    return Node(built, holding, Cache(cache_root(context.node_config, name), run_of(message))), name


def _load(context: Context) -> tuple[Any, Any]:
    """The node's samples, training and test."""
    given: Mapping[str, Any] = context.node_config
    if "data" in given:
        from coterie.deploy.own import read_own

        return read_own(Path(str(given["data"])), given)
    loaded = _loader(given)(context)
    if not isinstance(loaded, tuple) or len(loaded) != 2:
        raise DataError(
            f"load_client: not a pair, got {type(loaded).__name__}; expected (train, test)"
        )
    return loaded


def _loader(given: Mapping[str, Any]) -> Callable[[Context], Any]:
    """``load_client`` of the file that the node's configuration names, or of the app's
    ``client.py``."""
    from coterie.deploy.own import load_function

    if "loader" in given:
        return load_function(Path(str(given["loader"])).expanduser())
    for folder in map(Path, sys.path):
        if (folder / "client.py").is_file() and (folder / "pyproject.toml").is_file():
            return load_function(folder / "client.py")
    raise DataError(
        "node: no data, got neither a client.py nor 'data' in --node-config; expected one of them"
    )
