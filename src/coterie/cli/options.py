"""Options and arguments that several commands share, and what they mean in a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.cli.completion import complete_engine, complete_run, complete_set

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The configuration.")]
RunPath = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="The folder of a run.", autocompletion=complete_run),
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
        help="The folder of the datasets. Default: the environment variable COTERIE_DATA.",
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option("--engine", help="pool, serial, vmap or ray.", autocompletion=complete_engine),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="The number of processes of the pool, or of actors of Ray. Default: one per core.",
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="ADDRESS",
        help="The address of a Ray cluster: host:port, or auto.",
    ),
]
DeviceName = Annotated[
    str | None,
    typer.Option("--device", help="The device of vmap: auto, cpu, cuda, cuda:1, ..."),
]
OpenPage = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def engine_values(
    engine: str | None = None,
    workers: int | None = None,
    ray_address: str | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """The values of ``[engine]`` that options set; ``None`` leaves what the configuration says.

    Example:
        >>> engine_values("pool", 2)["engine.workers"]
        2
    """
    return {
        "engine.name": engine,
        "engine.workers": workers,
        "engine.address": ray_address,
        "engine.device": device,
    }


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
    """Names between commas; none for an empty text.

    Example:
        >>> split_names("fedavg, ifca"), split_names("")
        (['fedavg', 'ifca'], [])
    """
    if not names:
        return []
    return [name.strip() for name in names.split(",")]
