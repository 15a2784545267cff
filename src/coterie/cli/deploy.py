"""``coterie deploy``: real federations over Flower."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Run a federation of real clients over Flower.")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the deployment.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with the last run, from its newest checkpoint.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a value of run.toml; repeatable."),
]


@app.command()
def init(
    folder: Folder,
    config: Annotated[Path, typer.Option(help="A configuration, as for `coterie run`.")],
    clients: Annotated[
        int | None,
        typer.Option(min=1, help="The most that ever take part; default those of its partition."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address by which nodes reach the server; repeatable."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write the folder of a deployment: the app, its configuration, client.py to fill in, keys for
    a trial."""
    from coterie.deploy.folder import init as write
    from coterie.terminal import say

    for path in write(folder, config, clients, host or ()):
        say(str(path))
    say(
        f"next: coterie deploy local {folder}, then fill in {folder / 'client.py'} and {folder / 'deploy.toml'}"
    )


@app.command()
def run(
    folder: Folder, resume: Resume = False, assignments: Assignments = None, debug: Debug = False
) -> None:
    """Run on the SuperLink that deploy.toml names, and show it."""
    with _signals():
        from coterie.deploy.process import need_flower
        from coterie.deploy.run import run_remote
        from coterie.deploy.settings import load

        need_flower()
        config, settings = load(folder, assignments or ())
        run_remote(folder, config, settings, resume)


@app.command()
def local(
    folder: Folder,
    clients: Annotated[
        int | None, typer.Option(min=1, help="SuperNodes; default those of deploy.toml.")
    ] = None,
    resume: Resume = False,
    assignments: Assignments = None,
    debug: Debug = False,
) -> None:
    """Bring up a SuperLink and SuperNodes on this machine, with TLS and keys, run, and take them
    down."""
    with _signals():
        from dataclasses import replace

        from coterie.deploy import local as here
        from coterie.deploy.process import need_flower
        from coterie.deploy.run import run_remote
        from coterie.deploy.settings import load
        from coterie.terminal import say

        need_flower()
        config, settings = load(folder, assignments or ())
        count = clients or settings.clients
        settings = replace(
            settings,
            clients=max(count, settings.clients),
            min_clients=min(count, settings.min_clients),
        )
        say(f"starting a SuperLink and {count} SuperNodes; their logs are in {folder / 'logs'}")
        with here.local(folder, count) as up:
            run_remote(folder, config, here.settings_here(settings, up), resume)


@app.command()
def key(
    folder: Folder,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of clients.")],
    debug: Debug = False,
) -> None:
    """Make the keys of nodes, for a trial; a site makes its own for a real federation."""
    from coterie.deploy.keys import make_node
    from coterie.terminal import say

    for name in names:
        say(str(make_node(folder / "keys", name)))


@contextmanager
def _signals() -> Iterator[None]:
    """The first SIGINT or SIGTERM ends the command, which takes down what it started; another does
    not disturb that."""
    caught: list[int] = []

    def handler(number: int, frame: object) -> None:
        if not caught:
            caught.append(number)
            raise SystemExit(128 + number)

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
