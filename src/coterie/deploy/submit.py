"""Starting a run on a SuperLink, and showing it as a run on this machine."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import tomli_w

from coterie.deploy.configured import check_before_submitting
from coterie.deploy.flower_commands import FEDERATION, flower_home, run_flwr, write_connection
from coterie.deploy.follow import follow
from coterie.deploy.settings import DeploymentSettings
from coterie.errors import ConfigError, CoterieError, RemoteError
from coterie.experiment import Experiment
from coterie.terminal import console, say, summary_table

LAST_RUN = "last-run.json"


def run_remote(
    folder: Path, config: Experiment, settings: DeploymentSettings, resume: bool
) -> None:
    """Submit a run, or go on with the last one; show its rounds, and print its summary."""
    # Nodes are real, and so is what a refused run would cost them: what can be known here is.
    check_before_submitting(config, settings)
    _connect(folder, settings)
    out = _run_folder(folder, settings, config, resume)
    run = submit(folder, config, settings, out, resume)
    home = flower_home(folder)
    try:
        summary = follow(home, config, run)
    except BaseException as error:
        # Also after Ctrl-C the run must not go on unseen. A failed run has ended by itself; of one
        # that cannot be reached nothing is known.
        failed = isinstance(error, CoterieError) and not isinstance(error, RemoteError)
        if not failed:
            with suppress(RemoteError):
                run_flwr(home, ["stop", str(run), FEDERATION], timeout=30.0)
        if isinstance(error, SystemExit):
            say(f"stopped, in {out}; the same command with --resume goes on")
        raise
    console().print(summary_table(summary, out), soft_wrap=True)


def submit(
    folder: Path, config: Experiment, settings: DeploymentSettings, out: str, resume: bool
) -> int:
    """Hand the app to the SuperLink; returns Flower's number of the run.

    Args:
        out: the run's folder on the SuperLink's machine.
    """
    home = flower_home(folder)
    values = {
        "coterie-config": tomli_w.dumps(_portable(config.resolved())),
        "coterie-settings": settings.dumps(),
        "coterie-out": out,
        "coterie-resume": resume,
    }
    # In a file: on a command line, TOML inside of TOML would need two kinds of quotes.
    values_file = home / "run-config.toml"
    values_file.write_text(tomli_w.dumps(values), encoding="utf-8")
    answer = run_flwr(home, ["run", str(folder), FEDERATION, "--run-config", str(values_file)])
    number = str(answer.get("run-id", ""))
    if not number.isdigit():
        raise RemoteError(f"flwr run: no number of a run, got {answer}; expected one")
    return int(number)


def _connect(folder: Path, settings: DeploymentSettings) -> None:
    """Write where this deployment's SuperLink is, for Flower's commands."""
    certificates = folder / settings.root_certificates
    if not certificates.is_file():
        what = f"no file, got {certificates}"
        raise ConfigError(f"deploy.toml: root_certificates: {what}; expected a certificate")
    write_connection(flower_home(folder), settings.superlink, certificates)


def _run_folder(
    folder: Path, settings: DeploymentSettings, config: Experiment, resume: bool
) -> str:
    """The run's folder on the SuperLink's machine: a new one, or that of the last run."""
    last = folder / LAST_RUN
    if resume:
        try:
            return str(json.loads(last.read_bytes())["out"])
        except (OSError, ValueError, KeyError, TypeError):
            start = f"`coterie deploy run {folder}`"
            raise ConfigError(f"{last}: no run to go on with: start one with {start}") from None
    name = f"{config.name('algorithm')}-{config.name('source')}-{config.seed}"
    safe_name = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
    # A time, not a number: the folders that exist are on another machine.
    out = f"{settings.folder.rstrip('/')}/{safe_name}-{datetime.now():%Y%m%d-%H%M%S}"
    # Before the run is submitted: one whose start fails half-way can still be resumed.
    last.write_text(json.dumps({"out": out}) + "\n", encoding="utf-8")
    return out


def _portable(resolved: dict[str, Any]) -> dict[str, Any]:
    """A configuration without what belongs to this machine: where data lie, how many cores."""
    tables = {name: value for name, value in resolved.items() if name not in ("engine", "folder")}
    tables["data"] = {name: value for name, value in resolved["data"].items() if name != "root"}
    return tables
