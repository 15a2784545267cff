"""``coterie deploy``: federations of real clients over Flower."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.options import Debug
from coterie.cli.signals import stop_once

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the deployment.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the last run from its latest checkpoint.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a value of run.toml. Repeatable."),
]
# What `coterie deploy check` calls an attempt that worked, that was refused, and neither.
_STATES = {True: "OPEN", False: "closed", None: "not known"}


def deploy_init(
    folder: Folder,
    config: Annotated[Path, typer.Option(help="A configuration, as for `coterie run`.")],
    clients: Annotated[
        int | None,
        typer.Option(
            min=1, help="The expected number of clients. Default: the number in the partition."
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address by which nodes reach the server. Repeatable."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write the folder of a deployment.

    It contains the app, its configuration, a client.py to fill in, and keys for a trial.
    """
    from coterie.flower.operate.folder import init, next_step
    from coterie.terminal import say

    for path in init(folder, config, clients, host or ()):
        say(str(path))
    say(next_step(folder))


def deploy_run(
    folder: Folder, resume: Resume = False, assignments: Assignments = None, debug: Debug = False
) -> None:
    """Start a run on the SuperLink that deploy.toml names."""
    # Rounds run on the server. Here is none to finish, only processes to take down.
    with stop_once():
        from coterie.flower.operate.submit import run_remote
        from coterie.flower.processes.flower_commands import require_flower
        from coterie.flower.settings import load_deployment

        # Flower is an extra: without it the first line says how to install it, before
        # anything is read.
        require_flower()
        config, settings = load_deployment(folder, assignments or (), resume=resume)
        run_remote(folder, config, settings, resume)


def deploy_local(
    folder: Folder,
    clients: Annotated[
        int | None,
        typer.Option(min=1, help="The number of SuperNodes. Default: clients in deploy.toml."),
    ] = None,
    unlabelled: Annotated[
        int,
        typer.Option(min=0, help="The number of SuperNodes without labels, which do not train."),
    ] = 0,
    resume: Resume = False,
    assignments: Assignments = None,
    debug: Debug = False,
) -> None:
    """Try a whole federation on this machine.

    Starts a SuperLink and SuperNodes with TLS and keys, executes the run, and stops the processes.
    If any of them ends, the run stops; `--resume` continues it.
    """
    with stop_once():
        from coterie.errors import ConfigError
        from coterie.flower.operate.folder import refuse_unfilled
        from coterie.flower.operate.local import local_federation
        from coterie.flower.operate.submit import run_remote
        from coterie.flower.processes.flower_commands import require_flower
        from coterie.flower.server.configured import check_before_submitting
        from coterie.flower.settings import load_deployment
        from coterie.terminal import say

        require_flower()
        config, settings = load_deployment(folder, assignments or (), resume=resume)
        refuse_unfilled(folder)
        count = clients or settings.clients
        training = count - unlabelled
        if training < 1:
            what = "no client would remain for training"
            got = f"{unlabelled} of {count}"
            raise ConfigError("out-of-range", "--unlabelled", what, found=got, allowed="fewer")
        # All of them are here: a round without one would differ from that of a simulation.
        settings = replace(
            settings,
            clients=max(count, settings.clients),
            min_clients=training,
            start_clients=count,
        )
        # Before any process is started, not when the run is.
        check_before_submitting(config, settings)
        say(f"starting a SuperLink and {count} SuperNodes; their logs are in {folder / 'logs'}")
        # In `stop_once`, so that a signal takes all processes of the federation down.
        with local_federation(folder, count, unlabelled) as federation:
            say(federation.access)
            with federation.watched():
                run_remote(folder, config, federation.settings(settings), resume)


def deploy_check(
    folder: Folder,
    superlink: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="The address to which nodes connect, as seen from outside."
        ),
    ],
    root_certificates: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The certificate of the authority for that address. Default: the one in deploy.toml.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Test what an outsider can do at the address of a federation.

    The outsider has the public certificate but no registered key. Run this command on another
    machine.
    """
    from coterie.flower.operate.exposure import refuse_exposed, try_as_stranger
    from coterie.flower.processes.flower_commands import require_flower
    from coterie.flower.settings import load_deployment
    from coterie.terminal import say

    require_flower()
    _, settings = load_deployment(folder)
    certificates = root_certificates or folder / settings.root_certificates
    attempts = try_as_stranger(superlink, certificates)
    for attempt in attempts:
        say(f"{_STATES[attempt.worked]}: {attempt.what}: {attempt.answer}")
    refuse_exposed(superlink, attempts)


def deploy_status(
    folder: Folder,
    page: Annotated[
        bool, typer.Option("--page", help="Serve a live page on this machine until Ctrl-C.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port of the page. 0 means any free port.")
    ] = 18201,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the page to a file instead of serving it."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Show which clients a run is waiting for, and until when.

    It reads the run's folder, on the machine of the server. DIR may also be the folder of a run.
    """
    from coterie.files import refuse_unwritable_output
    from coterie.flower.watch.page import StatusServer, status_page
    from coterie.flower.watch.status import read_status, refuse_strange_state
    from coterie.flower.watch.tables import print_status
    from coterie.terminal import say

    if out is not None:
        status = read_status(folder)
        with refuse_strange_state(status.state.path):
            text = status_page(status, refresh=0)
        with refuse_unwritable_output("--out", out):
            out.write_text(text, encoding="utf-8", errors="backslashreplace")
        say(f"page: {out.resolve()}")
    elif page:
        with stop_once(), StatusServer(folder, port) as server:
            say(
                f"page: {server.address} (Prometheus: {server.address}metrics); stop it with Ctrl-C"
            )
            server.serve_forever()
    else:
        status = read_status(folder)
        with refuse_strange_state(status.state.path):
            print_status(status)
