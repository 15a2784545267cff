"""What a node does with a message: it makes ready its client's data, network and method, and answers.

It runs in the process that Flower starts for a message, or in the node's worker.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from coterie.clients.wire import Answer, Request
from coterie.core.describe import Describe
from coterie.core.work import Score, SelectGroup, Train, Work
from coterie.data.sources.files import DataForm
from coterie.engines.flower import (
    Answered,
    column_statistics,
    read_request,
    requests_in,
    run_name,
    write_answers,
    write_failure,
    write_identity,
)
from coterie.errors import CoterieError, DataError
from coterie.experiment import Experiment
from coterie.files import read_json
from coterie.flower.federation_spec import (
    DataDescription,
    FederationSpec,
    parse_config,
    target_columns,
)
from coterie.flower.node.cache import NodeCache, cache_root
from coterie.flower.node.client_data import ClientData
from coterie.flower.node.client_table import ClientTable
from coterie.flower.node.node import Node, UndescribedNode
from coterie.flower.node.node_source import is_database
from coterie.flower.node.own_data import node_context, own_classes, read_own_samples, read_own_table
from coterie.flower.processes.supernode import OWN_LINE
from coterie.flower.settings import DeploymentSettings, table_encoding
from coterie.terminal import counted


def work_line(request: Request, answer: Answer) -> str | None:
    """What a client did; ``None`` for a delivery, which has a line of its own.

    Example:
        >>> import torch
        >>> request = Request(Score(), torch.zeros(1, 4), 2, "", 0, 0, 0, "", "", 0)
        >>> work_line(request, Answer({"size": np.array(52.0)}))
        'round 3: scored the model on 52 test samples'
    """
    samples = int(answer.fields.get("size", np.array(0.0)))
    done = _done(request.work, len(request.models), samples)
    if done is None:
        return None
    return f"round {request.round + 1}: {done}"


def _done(work: Work, models: int, samples: int) -> str | None:
    match work:
        case Train():
            return f"trained on {counted(samples, 'sample')}"
        case Score():
            which = "the model" if models == 1 else f"{models} models"
            kind = {"train": "training sample", "test": "test sample"}[work.split]
            return f"scored {which} on {counted(samples, kind)}"
        case SelectGroup():
            return f"compared its update with those of {counted(models - 1, 'group')}"
        case Describe():
            # Without a number: a private statistic does not say how many samples it is of.
            return f"sent a statistic ({work.statistic})"
    return None


# --- messages -------------------------------------------------------------------------------------

log = logging.getLogger("flwr")
CONFIG = "coterie-config"
SETTINGS = "coterie-settings"
# Of the files of a client: name, time of the last change in nanoseconds, bytes.
Stamp = tuple[tuple[str, int, int], ...]


def describe_client(content: Any, context: Any, app: Path | None) -> Any:
    """Answer the server's question who this client is, see ``coterie.clients.identity.Identity``.

    Args:
        app: the app's ``client.py``; ``None`` where it has none.
    """
    try:
        node = _node(content, context, app)
        return write_identity(node.identity(_name(context), _labels(context)))
    except Exception as error:  # noqa: BLE001 - the error is only in this node's log
        return write_failure(_reason(error))


def answer_requests(content: Any, context: Any, app: Path | None) -> Any:
    """Train, evaluate, or compute a statistic: all that a message asks, in its order. Arguments and
    result as of `describe_client`."""
    try:
        node = _node(content, context, app)
        answers = [_answer(content, number, node) for number in range(requests_in(content))]
        return write_answers(answers)
    except Exception as error:  # noqa: BLE001 - the error is only in this node's log
        return write_failure(_reason(error))


def _answer(content: Any, number: int, node: Node | UndescribedNode) -> Answered | str:
    """The answer to one request of a message, or one word: what fails in one spoils no other."""
    try:
        request = read_request(content, number, node.local, node.sums, node.kept_model)
        if request is None:
            return "missing"
        answer = node.answer(request)
        line = work_line(request, answer)
        if line is not None:
            log.info("%s%s", OWN_LINE, line)
        return Answered(request, answer)
    except Exception as error:  # noqa: BLE001 - the error is only in this node's log
        return _reason(error)


def _reason(error: Exception) -> str:
    """One word for the server; the rest, which could tell something of the data, for this node's log."""
    expected = isinstance(error, CoterieError)
    log.error("coterie: %s: %s", type(error).__name__, error, exc_info=not expected)
    if isinstance(error, CoterieError):
        return {2: "config", 3: "data"}.get(error.code, "work")
    return "work"


@lru_cache(maxsize=8)
def _form(settings: str, classes: tuple[str, ...]) -> DataForm:
    """What the samples of all clients have in common, with the classes of this node if it has any."""
    form = DeploymentSettings.loads(settings).form
    if classes:
        form = replace(form, classes=classes)
    return form


@lru_cache(maxsize=8)
def _config(text: str) -> Experiment:
    return parse_config(text)


@lru_cache(maxsize=8)
def _federation_spec(
    config: str, settings: str, classes: tuple[str, ...], columns: str
) -> FederationSpec:
    """Network, task and method of a run, as every machine makes them; ``columns`` is JSON, or empty
    without a table."""
    described = DataDescription.read(columns)
    form = described.form(_form(settings, classes))
    clients = DeploymentSettings.loads(settings).clients
    return FederationSpec.of(_config(config), form, clients, described.scaling)


def _name(context: Any) -> str:
    name = str(context.node_config.get("client", ""))
    if not name:
        what = "no name"
        raise DataError("missing", "node", what, do="give --node-config 'client=\"hospital-3\"'")
    return name


def _labels(context: Any) -> tuple[str, ...]:
    """The class list as this node knows it."""
    return _form(str(context.run_config[SETTINGS]), own_classes(context.node_config)).classes


def _node(content: Any, context: Any, app: Path | None) -> Node | UndescribedNode:
    name = _name(context)
    run = run_name(content)
    # Texts, not records: specs are looked up by them.
    config = str(context.run_config[CONFIG])
    settings = str(context.run_config[SETTINGS])
    classes = own_classes(context.node_config)
    columns = column_statistics(content)
    form = _form(settings, classes)
    scales = bool(target_columns(_config(config), form))
    if form.columns:
        table = _load_table(context, form, config, app)
        encoder = DataDescription.read(columns).encoder
        if encoder is None:
            return UndescribedNode(table, scales)
        spec = _federation_spec(config, settings, classes, columns)
        data = table.encoded(encoder, spec.form)
    else:
        train, test = node_samples(context, app, form)
        data = ClientData.of(train, test, form)
        if scales and not columns:
            return UndescribedNode(data, scales)
        spec = _federation_spec(config, settings, classes, columns)
    return Node(spec, data, NodeCache(cache_root(context.node_config, name), run))


def _load_table(context: Any, form: DataForm, config: str, app: Path | None) -> ClientTable:
    """The node's rows, training and test."""
    options: Mapping[str, Any] = context.node_config
    # What a site's own code loads, and a database, do not say when they changed.
    if "data" not in options or is_database(str(options["data"])):
        return read_own_table(context, app, form, table_encoding(_config(config)))
    classes = own_classes(options)
    settings = str(context.run_config[SETTINGS])
    return _read_table(json.dumps(dict(options)), _stamp(options), settings, classes, config)


def node_samples(context: Any, app: Path | None, form: DataForm) -> tuple[Any, Any]:
    """The node's samples, training and test."""
    options: Mapping[str, Any] = context.node_config
    if "data" not in options or is_database(str(options["data"])):
        return read_own_samples(context, app, form.classes, form.features)
    return _read_samples(json.dumps(dict(options)), _stamp(options), form.classes, form.features)


@lru_cache(maxsize=1)
def _read_samples(
    options: str, stamp: Stamp, classes: tuple[str, ...], features: tuple[str, ...]
) -> tuple[Any, Any]:
    """The samples of files, read again when these change."""
    return read_own_samples(node_context(read_json(options)), None, classes, features)


@lru_cache(maxsize=1)
def _read_table(
    options: str, stamp: Stamp, settings: str, classes: tuple[str, ...], config: str
) -> ClientTable:
    """The rows of files, read again when these change."""
    # By the texts of the run: the form of samples, and how columns become numbers, have no hash.
    encode = table_encoding(_config(config))
    form = _form(settings, classes)
    return read_own_table(node_context(read_json(options)), None, form, encode)


def _stamp(options: Mapping[str, Any]) -> Stamp:
    """What tells of files whether they changed: names, times and sizes."""
    path = Path(str(options["data"])).expanduser()
    # Images are in folders of folders.
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    found = [(file, file.stat()) for file in files if file.is_file()]
    return tuple((str(file), stat.st_mtime_ns, stat.st_size) for file, stat in found)
