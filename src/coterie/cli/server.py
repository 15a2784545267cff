"""``coterie server``: the server of a federation of real clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import Debug, JsonLogs
from coterie.cli.signals import stop_once

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the deployment.")]


def server_up(
    folder: Folder,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay, as a service manager wants it.")
    ] = False,
    json_logs: JsonLogs = False,
    debug: Debug = False,
) -> None:
    """Start the SuperLink, and nginx before it.

    Each is started again when it ends. Both go on in the background.
    """
    from coterie.deploy.operate.server_folder import added_nodes
    from coterie.deploy.operate.server_up import keep_server_up, start_server
    from coterie.deploy.processes.flower_commands import require_flower
    from coterie.terminal import say

    require_flower()
    if foreground:
        with stop_once():
            keep_server_up(folder, json_logs)
        return
    # A server that comes up again has its nodes already.
    added = added_nodes(folder)
    server = start_server(folder, json_logs)
    say(f"up: nodes connect to port {server.node_port} of this machine; logs in {folder / 'logs'}")
    if not added:
        say(f"next: coterie server add {folder} NAME.pub, with the file that each site sends")


def server_stop(folder: Folder, debug: Debug = False) -> None:
    """Stop the server; a run that is in progress can be resumed."""
    from coterie.deploy.operate.server_up import stop_server
    from coterie.terminal import say

    say("stopped" if stop_server(folder) else "was down")


def server_status(
    folder: Folder,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Only whether it is up: a health check, in half a second."),
    ] = False,
    debug: Debug = False,
) -> None:
    """Show the server's processes, certificate, nodes and runs.

    The exit code is 7 where the server is down.
    """
    from coterie.deploy.operate.server_up import require_listening, show_status

    if quick:
        require_listening(folder)
    else:
        show_status(folder)


def server_backup(
    folder: Folder,
    to: Annotated[Path, typer.Option(metavar="FILE", help="A new file, as backup.tar.")],
    debug: Debug = False,
) -> None:
    """Write all that the server needs to one file.

    Keys, nodes, database and runs, while the server and a run go on. The file has the server's private key. Only its owner may read it.
    """
    from coterie.deploy.operate.backup import write_backup
    from coterie.terminal import say

    backup = write_backup(folder, to)
    for name, rounds in backup.runs.items():
        say(f"{name}: goes on after round {rounds}")
    say(f"{to}: {to.stat().st_size / 1e6:.1f} MB, {len(backup.files)} files")


def server_restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Of `coterie server backup`.")],
    to: Annotated[Path, typer.Option(metavar="DIR", help="The folder to make.")],
    debug: Debug = False,
) -> None:
    """Make a deployment from a backup, whose bytes are checked."""
    from coterie.deploy.operate.backup import restore_backup
    from coterie.terminal import say

    backup = restore_backup(file, to)
    say(f"{to}: as of {backup.made}, made by Coterie {backup.coterie}, Flower {backup.flower}")
    say(f"next: coterie server up {to}, then coterie deploy run {to} --resume")


def server_add(
    folder: Folder,
    keys: Annotated[
        list[Path],
        typer.Argument(metavar="NAME.pub...", help="Public keys, named as their clients."),
    ],
    name: Annotated[
        str | None, typer.Option(help="The name of the client. Default: that of the file.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="The site lost its key: take this one in its place.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Let nodes in: bind each public key to the name of its client."""
    from coterie.deploy.operate.server_folder import add_node
    from coterie.errors import ConfigError
    from coterie.terminal import say

    if name is not None and len(keys) > 1:
        what = f"one name, got {len(keys)} keys"
        raise ConfigError(f"--name: {what}; expected one")
    for key in keys:
        say(add_node(folder, key, name, replace))


def server_remove(
    folder: Folder,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of clients.")],
    debug: Debug = False,
) -> None:
    """Let nodes in no longer."""
    from coterie.deploy.operate.server_folder import remove_node
    from coterie.terminal import say

    for name in names:
        remove_node(folder, name)
        say(f"{name}: removed")
