"""``coterie server``: the server of a federation of real clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import Debug
from coterie.cli.signals import stop_once

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the deployment.")]


def server_up(folder: Folder, debug: Debug = False) -> None:
    """Run the SuperLink, with nginx in front, until Ctrl-C or SIGTERM.

    If one of the two ends, the command exits with code 7, so that a service manager can restart it.
    """
    from coterie.flower.operate.server_up import serve_until_end
    from coterie.flower.processes.flower_commands import require_flower

    require_flower()
    with stop_once():
        serve_until_end(folder)


def server_status(
    folder: Folder,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Only check whether nodes can connect, which takes a second."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Show the server's certificate, nodes and runs.

    The exit code is 7 if the server is down.
    """
    from coterie.flower.operate.server_up import require_listening, show_status

    if quick:
        require_listening(folder)
    else:
        show_status(folder)


def server_add(
    folder: Folder,
    keys: Annotated[
        list[Path],
        typer.Argument(metavar="NAME.pub...", help="Public keys of clients."),
    ],
    name: Annotated[
        str | None, typer.Option(help="The client's name. Default: that in the key or of the file.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the key of a site that lost it.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Add nodes: bind each public key to the name of its client."""
    from coterie.errors import ConfigError
    from coterie.flower.operate.server_folder import add_node
    from coterie.terminal import say

    if name is not None and len(keys) > 1:
        what = "one name for several keys"
        got = f"{len(keys)} keys"
        raise ConfigError("in-conflict", "--name", what, found=got, allowed="one key")
    for key in keys:
        say(add_node(folder, key, name, replace))


def server_remove(
    folder: Folder,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of clients.")],
    debug: Debug = False,
) -> None:
    """Remove nodes, which can then no longer connect."""
    from coterie.flower.operate.server_folder import remove_node
    from coterie.terminal import say

    for name in names:
        remove_node(folder, name)
        say(f"{name}: removed")
