"""The folder of a deployment: a thin Flower app, the run's configuration, and what a user fills
in."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import tomli_w

from coterie.config import check
from coterie.config.reading import read
from coterie.deploy.keys import make_server
from coterie.deploy.settings import OWN, known_of
from coterie.errors import ConfigError

PYPROJECT = """\
# The Flower app. Its parts are in Coterie, which the server and every node have installed. Nodes
# are sent client.py and
# this file, never keys or results.
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "A federation of Coterie's"
license = {{ file = "LICENSE" }}
dependencies = ["flwr>=1.41,<2", "coterie=={version}"]

[tool.flwr.app]
publisher = "coterie"
license = {{ file = "LICENSE" }}
fab-include = ["*.py", "LICENSE"]

[tool.flwr.app.components]
serverapp = "coterie.flower_app:server"
clientapp = "coterie.flower_app:client"

# `coterie deploy run` fills these in
[tool.flwr.app.config]
coterie-config = ""
coterie-settings = ""
coterie-out = ""
coterie-resume = false
"""
CLIENT = '''\
"""A node's own samples. This file is sent to every node; where a site must keep its own, it names one of its own in
--node-config 'loader="/etc/coterie/client.py"', or parquet files in 'data="/srv/patients"'."""

from coterie.deploy.own import share

TRIAL = {tables}


def load_client(context):
    """Inputs [n, ...] and labels [n] to train on, and the same to test on. Fill in; here: a share of {source}."""
    return share(TRIAL, int(context.node_config["share"]))
'''
OWN_CLIENT = '''\
"""A node's own samples. This file is sent to every node; where a site must keep its own, it names one of its own in
--node-config 'loader="/etc/coterie/client.py"', or parquet files in 'data="/srv/patients"'."""


def load_client(context):
    """Inputs [n, ...] and labels [n] to train on, and the same to test on: fill in."""
    raise NotImplementedError("load_client of client.py is to be filled in")
'''
DEPLOY = """\
# Whom the server expects, and how it is reached.
clients = {clients}                 # the most that ever take part
min_clients = {clients}             # that many have to be there for a round to begin
shape = {shape}            # of one input
classes = {classes}
longest_wait = 600.0        # seconds that a round waits for them
reply_wait = 300.0          # seconds that clients have for an answer; more than 60
most_samples = 1e6          # a client that claims more is refused
superlink = "127.0.0.1:18001"
root_certificates = "keys/ca.crt"   # of the authority that signed the SuperLink's certificate
folder = "{folder}"   # of the runs, on the SuperLink's machine
"""
LICENSE = "All rights reserved. This folder holds no code but client.py.\n"
README = """\
# {name}

| file | what |
|---|---|
| `run.toml` | method, network, local training, rounds: as for `coterie run` |
| `deploy.toml` | how many clients, shape of the data, classes, waits, address of the SuperLink |
| `client.py` | `load_client(context)`: the samples of a node; fill it in |
| `keys/` | for trials: an authority and the server's certificate; `coterie deploy key` adds those of nodes |
| `pyproject.toml` | the Flower app; nothing to change |

    coterie deploy local . --clients {clients}   # everything on this machine, to try
    coterie deploy run .                # on a SuperLink that runs
    coterie deploy run . --resume       # go on after a kill

The guide is docs/deploy.md of Coterie.
"""


def init(
    folder: Path, config: Path, clients: int | None = None, hosts: Sequence[str] = ()
) -> list[Path]:
    """Write the folder; returns what was written.

    Args:
        folder: new or empty.
        config: a configuration, whose data tell shape and classes, and for a trial who holds what.
        clients: the most that take part; default those of the partition.
        hosts: names under which nodes reach the server, beside localhost.

    Raises:
        ConfigError: if the folder holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: not empty, got a folder in use; expected a new one")
    tables = read(config)
    validated = check(tables, str(config))
    resolved = validated.resolved()
    shape, labels = known_of(validated)
    own = validated.data.source == OWN
    known = clients or resolved["data"]["partition"].get("clients", 2)
    name = (
        "".join(c if c.isalnum() else "-" for c in folder.resolve().name.lower()).strip("-")
        or "federation"
    )
    folder.mkdir(parents=True, exist_ok=True)
    trial = {key: resolved[key] for key in ("seed", "data", "model", "train", "algorithm", "local")}
    listed = (
        "["
        + ", ".join(tomli_w.dumps({"x": label}).partition(" = ")[2].strip() for label in labels)
        + "]"
    )
    runs = (
        tomli_w.dumps({"x": str(folder.resolve() / "runs")}).partition(" = ")[2].strip().strip('"')
    )
    written = {
        "pyproject.toml": PYPROJECT.format(name=name, version=version("coterie")),
        "client.py": OWN_CLIENT
        if own
        else CLIENT.format(tables=_literal(trial), source=validated.data.source),
        "deploy.toml": DEPLOY.format(clients=known, shape=list(shape), classes=listed, folder=runs),
        "run.toml": tomli_w.dumps(
            {key: v for key, v in resolved.items() if key not in ("engine", "folder")}
        ),
        "LICENSE": LICENSE,
        "README.md": README.format(name=name, clients=known),
        ".gitignore": "keys/\nruns/\nlogs/\n",
    }
    for file, text in written.items():
        (folder / file).write_text(text, encoding="utf-8")
    tomllib.loads(written["deploy.toml"])
    make_server(folder / "keys", ("localhost", "127.0.0.1", *hosts))
    return [folder / file for file in written] + [folder / "keys"]


def _literal(tables: object) -> str:
    import pprint

    return pprint.pformat(tables, width=100, sort_dicts=False)
