"""Options and arguments that several commands share, and what they mean in a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.cli.completion import complete_engine, complete_run, complete_set

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The configuration.")]
ConfigOrRuns = Annotated[
    list[Path],
    typer.Argument(
        metavar="CONFIG.toml",
        help="The configuration; or the folders of finished runs, which are only compared.",
        autocompletion=complete_run,
    ),
]
RunPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a run.", autocompletion=complete_run)
]
RunPaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="Folders of runs or of sweeps. Several are compared on one page.",
        autocompletion=complete_run,
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a value, for example algorithm.groups=3. Repeatable.",
        autocompletion=complete_set,
    ),
]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        "--data-root",
        help="The folder of the datasets. Default: COTERIE_DATA from the environment.",
    ),
]
# Of a command on a finished run, whose configuration has the folder that it was read from.
DataRootOfRun = Annotated[
    Path | None,
    typer.Option("--data-root", help="The folder of the datasets. Default: that of the run."),
]
OpenPage = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run the code that the run's configuration names.")
]
JsonLogs = Annotated[
    bool, typer.Option("--json-logs", help="Write each line of the logs as a JSON object.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """What belongs to this machine and not to the run: it changes no result."""

    engine: Annotated[
        str | None, typer.Option(help="pool, serial, vmap or ray.", autocompletion=complete_engine)
    ] = None
    workers: Annotated[
        int | None,
        typer.Option(help="The number of pool processes or Ray actors. Default: one per core."),
    ] = None
    data_root: DataRoot = None

    def values(self) -> dict[str, Any]:
        """Key paths of a configuration -> values; ``None`` leaves what the configuration says."""
        return {
            "engine.name": self.engine,
            "engine.workers": self.workers,
            **data_root_value(self.data_root),
        }


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """Where the engines ``ray`` and ``vmap`` run."""

    ray_address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The address of a Ray cluster: host:port, or auto."),
    ] = None
    device: Annotated[
        str | None, typer.Option(help="The device of vmap: auto, cpu, cuda, cuda:1, ...")
    ] = None

    def values(self) -> dict[str, Any]:
        """Key paths of a configuration -> values; ``None`` leaves what the configuration says."""
        return {"engine.address": self.ray_address, "engine.device": self.device}


def data_root_value(data_root: Path | None) -> dict[str, Any]:
    """The value of ``data.root`` that ``--data-root`` sets; ``None`` leaves what the configuration
    says."""
    return {"data.root": absolute(data_root)}


def absolute(data_root: Path | None) -> str | None:
    """The folder of the datasets, spelled so that a run can be resumed from another folder."""
    if data_root is None:
        return None
    return str(data_root.expanduser().absolute())


def split_names(names: str) -> list[str]:
    """Names between commas; none for an empty text."""
    if not names:
        return []
    return [name.strip() for name in names.split(",")]
