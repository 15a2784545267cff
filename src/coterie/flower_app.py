"""The two parts of a Flower app: ``coterie.flower_app:server`` and ``coterie.flower_app:client``.

The folder that ``coterie deploy init`` makes names both. A node's data come from
``load_client(context)`` in its ``client.py``, from another file that the node's configuration names
(``loader``), or from parquet files (``data``).
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before Flower is imported, which reads them.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from coterie.errors import CoterieError, DataError

if TYPE_CHECKING:
    from coterie.config import RunConfig
    from coterie.data.tabular.encoder import Encoder
    from coterie.deploy.client_table import ClientTable
    from coterie.deploy.data_form import DataForm
    from coterie.deploy.federation_spec import FederationSpec
    from coterie.deploy.node import Node, UndescribedNode
    from coterie.engines.flower import Answered

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
def run_server(grid: Grid, context: Context) -> None:
    """Run the rounds; see ``coterie.deploy.serve.serve``."""
    from coterie.deploy.events import event_writer
    from coterie.deploy.serve import serve

    values = {name: context.run_config.get(key, "") for name, key in KEYS.items()}
    write_event = event_writer()
    try:
        serve(grid, values, write_event)
    except CoterieError as error:
        write_event("error", {"code": error.code, "message": str(error)})
        raise


@client.query("describe")
def describe_client(message: Message, context: Context) -> Message:
    """Say who this is: name, version, network, classes.

    See ``coterie.clients.identity.Identity``.
    """
    from coterie.engines.flower import write_failure, write_identity

    try:
        node = _node(message, context)
        return write_identity(message, node.identity(_name(context), _labels(context)))
    except Exception as error:  # noqa: BLE001 - the error is only in this node's log
        return write_failure(message, _reason(error))


@client.query("statistic")
@client.train()
@client.evaluate()
def answer_request(message: Message, context: Context) -> Message:
    """Train, evaluate, or compute a statistic, on the client's own data: all that a message asks, in
    its order."""
    from coterie.engines.flower import requests_in, write_answers, write_failure

    try:
        node = _node(message, context)
        answers = [_answer(message, number, node) for number in range(requests_in(message))]
        return write_answers(message, answers)
    except Exception as error:  # noqa: BLE001 - the error is only in this node's log
        return write_failure(message, _reason(error))


def _answer(message: Message, number: int, node: Node | UndescribedNode) -> Answered | str:
    """The answer to one request of a message, or one word: what fails in one spoils no other."""
    from coterie.engines.flower import Answered, read_request

    try:
        request = read_request(message, number, node.local, node.sums, node.kept_model)
        if request is None:
            return "missing"
        return Answered(request, node.answer(request))
    except Exception as error:  # noqa: BLE001 - the error is only in this node's log
        return _reason(error)


def _reason(error: Exception) -> str:
    """One word for the server; everything else goes into this node's log.

    A message could tell the server something about the client's data.
    """
    expected = isinstance(error, CoterieError)
    log.error("coterie: %s: %s", type(error).__name__, error, exc_info=not expected)
    if isinstance(error, CoterieError):
        return {2: "config", 3: "data"}.get(error.code, "work")
    return "work"


@lru_cache(maxsize=8)
def _form(settings: str, classes: tuple[str, ...]) -> DataForm:
    """What the samples of all clients have in common, with the classes as this node knows them.

    Args:
        settings: of the deployment, as JSON.
        classes: of this node; none: the deployment's.
    """
    from coterie.deploy.settings import DeploymentSettings

    form = DeploymentSettings.loads(settings).form
    if classes:
        form = replace(form, classes=classes)
    return form


@lru_cache(maxsize=8)
def _config(text: str) -> RunConfig:
    """The configuration of a run."""
    from coterie.deploy.federation_spec import parse_config

    return parse_config(text)


@lru_cache(maxsize=8)
def _federation_spec(
    config: str, settings: str, classes: tuple[str, ...], columns: str
) -> FederationSpec:
    """Network, task and method of a run, as every machine makes them.

    Args:
        config: of the run, as TOML.
        settings: of the deployment, as JSON.
        classes: of this node; none: the deployment's.
        columns: what becomes of the columns of a table, as JSON; empty where there is none.
    """
    from coterie.deploy.federation_spec import FederationSpec

    form = _form(settings, classes)
    if columns:
        form = form.encoded(_encoder(columns))
    return FederationSpec.of(_config(config), form)


def _encoder(columns: str) -> Encoder:
    """What becomes of the columns of a table, from JSON."""
    from coterie.data.tabular.encoder import Encoder

    return Encoder.read(json.loads(columns))


def _name(context: Context) -> str:
    """The name of this node's client."""
    name = str(context.node_config.get("client", ""))
    if not name:
        raise DataError("node: no name, got none; expected --node-config 'client=\"hospital-3\"'")
    return name


def _own_classes(context: Context) -> tuple[str, ...]:
    """The class list of this node's configuration, which has commas between; none where it has
    none."""
    if "classes" not in context.node_config:
        return ()
    return tuple(part.strip() for part in str(context.node_config["classes"]).split(","))


def _labels(context: Context) -> tuple[str, ...]:
    """The class list as this node knows it."""
    return _form(str(context.run_config[KEYS["settings"]]), _own_classes(context)).classes


def _node(message: Message, context: Context) -> Node | UndescribedNode:
    """This node, ready to work."""
    from coterie.deploy.cache import NodeCache, cache_root
    from coterie.deploy.client_data import ClientData
    from coterie.deploy.node import Node, UndescribedNode
    from coterie.engines.flower import columns_of, run_of

    name = _name(context)
    run = run_of(message)
    # Texts, not records: specs are looked up by them.
    config = str(context.run_config[KEYS["config"]])
    settings = str(context.run_config[KEYS["settings"]])
    classes = _own_classes(context)
    columns = columns_of(message)
    form = _form(settings, classes)
    if form.columns:
        table = _load_table(context, form, config)
        if not columns:
            return UndescribedNode(table)
        spec = _federation_spec(config, settings, classes, columns)
        data = table.encoded(_encoder(columns), spec.form)
    else:
        spec = _federation_spec(config, settings, classes, "")
        train, test = _load(context)
        data = ClientData.of(train, test, spec.form)
    return Node(spec, data, NodeCache(cache_root(context.node_config, name), run))


def _load_table(context: Context, form: DataForm, config: str) -> ClientTable:
    """The node's rows, training and test."""
    from coterie.deploy.client_table import client_table, read_client_table
    from coterie.deploy.settings import check_encoding

    options: Mapping[str, Any] = context.node_config
    encode = check_encoding(_config(config))
    if "data" in options:
        return read_client_table(Path(str(options["data"])), options, form, encode)
    return client_table(*_loaded(context), form, encode)


def _load(context: Context) -> tuple[Any, Any]:
    """The node's samples, training and test."""
    from coterie.deploy.data_sources import read_parquet

    options: Mapping[str, Any] = context.node_config
    if "data" in options:
        return read_parquet(Path(str(options["data"])), options)
    return _loaded(context)


def _loaded(context: Context) -> tuple[Any, Any]:
    """What ``load_client`` returns."""
    loaded = _loader(context.node_config)(context)
    if not isinstance(loaded, tuple) or len(loaded) != 2:
        got = type(loaded).__name__
        raise DataError(f"load_client: not a pair, got {got}; expected (train, test)")
    return loaded


def _loader(options: Mapping[str, Any]) -> Callable[[Context], Any]:
    """``load_client`` of the file that the node's configuration names, or of the app's
    ``client.py``."""
    from coterie.deploy.data_sources import load_function

    if "loader" in options:
        return load_function(Path(str(options["loader"])).expanduser())
    # Flower puts the folder of the app on Python's path, and says nowhere else where it is.
    for folder in map(Path, sys.path):
        if (folder / "client.py").is_file() and (folder / "pyproject.toml").is_file():
            return load_function(folder / "client.py")
    what = "no data, got neither a client.py nor 'data' in --node-config"
    raise DataError(f"node: {what}; expected one of them")
