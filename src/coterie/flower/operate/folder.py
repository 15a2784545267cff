"""The folder of a deployment: a thin Flower app, the run's configuration, and what a user fills
in."""

from __future__ import annotations

import pprint
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w

from coterie.config.identity import SIMULATION
from coterie.config.toml_text import read
from coterie.errors import ConfigError
from coterie.experiment import Experiment, check
from coterie.experiment.defaults import fit_cohort, resolved_without_lowered
from coterie.experiment.experiment import fit_to_clients
from coterie.flower.federation_spec import refuse_in_deployment
from coterie.flower.keys import make_server_keys
from coterie.flower.operate.proxy import CONTROL_PORT, NGINX, NODE_PORT, nginx_text
from coterie.flower.settings import NODES_SOURCE, form_of
from coterie.flower.templates import render_template

LICENSE = "All rights reserved. This folder holds no code but client.py.\n"
TRIAL_TABLES = ("seed", "data", "task", "model", "train", "algorithm", "local")
# What client.py says until it is filled in, see its template.
UNFILLED = "fill in load_client in client.py"


def init(
    folder: Path, config_file: Path, clients: int | None = None, hosts: Sequence[str] = ()
) -> list[Path]:
    """Write the folder for a configuration; returns what was written.

    Args:
        clients: the most that take part; default those of the partition, else as many as a round
            asks.
        hosts: names and addresses of the server for nodes, in addition to localhost.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError("in-use", folder, "not empty", do="choose a new folder")
    config = check(read(config_file), str(config_file))
    refuse_in_deployment(config)
    # All texts before the folder: a configuration that is refused leaves nothing behind.
    texts = _texts(folder, config, clients)
    make_server_keys(folder / "keys", ("localhost", "127.0.0.1", *hosts))
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    return [*(folder / file for file in texts), folder / "keys"]


def next_step(folder: Path) -> str:
    """What to do with a folder that was just written, in a line."""
    config = check(read(folder / "run.toml"), str(folder / "run.toml"))
    if config.name("source") == NODES_SOURCE:
        sites = f"sites with {folder / 'keys' / 'ca.crt'} join it with `coterie node join`"
        return f"next: coterie server up {folder}; {sites}"
    files = f"{folder / 'client.py'} and {folder / 'deploy.toml'}"
    return f"next: coterie deploy local {folder}, then fill in {files}"


def refuse_unfilled(folder: Path) -> None:
    """Refuse to start nodes on this machine that have no samples."""
    file = folder / "client.py"
    if file.exists() and UNFILLED in file.read_text(encoding="utf-8", errors="replace"):
        joined = f"(coterie server up {folder}, coterie node join)"
        advice = f"fill it in, or have sites with their own data join {joined}"
        raise ConfigError("missing", file, "load_client returns no samples", do=advice)


def _texts(folder: Path, config: Experiment, clients: int | None) -> dict[str, str]:
    form = form_of(config)
    if clients is None:
        # Two sites, or as many as a round asks by the configuration.
        least = max(2, fit_cohort(config, 2).train.clients_per_round)
        clients = config.options("partition").get("clients", least)
    fit_to_clients(config, clients)
    resolved = resolved_without_lowered(config)
    values: dict[str, Any] = {
        "name": _app_name(folder),
        "version": version("coterie"),
        "clients": clients,
        # Fewer than all: else each lost site would stop the others.
        "enough": max(1, 3 * clients // 4),
        "shape": list(form.shape),
        "classes": f"[{', '.join(map(_toml_string, form.classes))}]",
        "target_shape": list(form.target_shape),
        "columns": "",
        "features": f"[{', '.join(map(_toml_string, form.features))}]",
        "missing": f"[{', '.join(map(_toml_string, form.missing))}]" if form.missing else "",
        "folder": _toml_string(str(folder.resolve() / "runs")),
        "superlink": f"127.0.0.1:{CONTROL_PORT}",
        "node_port": NODE_PORT,
        "source": config.name("source"),
        "trial": None,
    }
    if config.name("source") != NODES_SOURCE:
        trial = {key: resolved[key] for key in TRIAL_TABLES if key in resolved}
        values["trial"] = pprint.pformat(trial, width=100, sort_dicts=False)
    run = {key: value for key, value in resolved.items() if key not in SIMULATION}
    if form.columns:
        values["columns"] = tomli_w.dumps({"columns": form.columns})
    rendered = ("pyproject.toml", "client.py", "deploy.toml", "README.md")
    return {
        **{file: render_template(file, values) for file in rendered},
        NGINX: nginx_text(str(NODE_PORT), values["superlink"]),
        "run.toml": tomli_w.dumps(run),
        "LICENSE": LICENSE,
        # Keys must not come into a repository; results and logs need not.
        ".gitignore": "keys/\nruns/\nlogs/\n.nginx-*\n",
    }


def _app_name(folder: Path) -> str:
    """The folder's name, with only those letters that the name of a Python project may have."""
    name = re.sub(r"[^a-z0-9]", "-", folder.resolve().name.lower())
    return name.strip("-") or "federation"


def _toml_string(text: str) -> str:
    """Text as a TOML file spells it, with quotes."""
    return tomli_w.dumps({"key": text}).removeprefix("key = ").strip()
