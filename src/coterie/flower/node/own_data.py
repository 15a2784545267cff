"""The samples of a node, from what its site names, else from the app's ``client.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from coterie.data.sources.files import DataForm
from coterie.data.tabular.raw import Encode
from coterie.errors import DataError
from coterie.flower.node.client_table import ClientTable, loaded_table, read_client_table
from coterie.flower.node.data_sources import inputs_alone, load_function
from coterie.flower.node.node_source import read_node_data


def own_classes(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The class list of a node's own options, which has commas between; none where it has none."""
    if "classes" not in options:
        return ()
    return tuple(part.strip() for part in str(options["classes"]).split(","))


def node_context(options: Mapping[str, Any]) -> Any:
    """What ``load_client`` is called with where there is no run."""
    return SimpleNamespace(node_config=dict(options), run_config={})


def read_own_samples(
    context: Any,
    app: Path | None,
    classes: Sequence[str] | None,
    features: Sequence[str] | None = None,
) -> Any:
    """Training and test samples of a node, from its ``data`` or its ``load_client``.

    Args:
        context: a ``flwr.app.Context``, whose ``node_config`` has the node's options.
        app: the app's ``client.py``, for a node that names no data.
        classes: see `read_node_data`.
        features: see `read_node_data`.
    """
    if "data" in context.node_config:
        return read_node_data(context.node_config, classes, features)
    return _loaded(context, app)


def read_own_table(context: Any, app: Path | None, form: DataForm, encode: Encode) -> ClientTable:
    """The same of a node with a table; arguments as of `read_own_samples`."""
    options: Mapping[str, Any] = context.node_config
    if "data" in options:
        path = Path(str(options["data"])).expanduser()
        return read_client_table(path, options, form, encode)
    return loaded_table(*_loaded(context, app), form, encode)


def _loaded(context: Any, app: Path | None) -> tuple[Any, Any]:
    """What ``load_client`` returns, that of the node's own file or else of the app."""
    options: Mapping[str, Any] = context.node_config
    if "loader" in options:
        app = Path(str(options["loader"])).expanduser()
    if app is None:
        advice = "write a client.py, or set 'data' in --node-config"
        raise DataError("missing", "node", "no data", do=advice)
    loaded = load_function(app)(context)
    if not isinstance(loaded, tuple) or len(loaded) != 2:
        got = type(loaded).__name__
        what = "not a pair"
        raise DataError("wrong-type", "load_client", what, found=got, allowed="(train, test)")
    return inputs_alone(loaded, options)
