"""Commands on one run: start it, resume it, show it, watch it, take its models away."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coterie.cli.options import (
    Assignments,
    ConfigFile,
    DataRootOfRun,
    Debug,
    DeviceOptions,
    MachineOptions,
    RunPath,
    Trust,
    absolute,
)
from coterie.cli.signals import StopRequest, stop_after_round

if TYPE_CHECKING:
    from coterie.export.folder import Exported
    from coterie.runs.compose import Composed
    from coterie.runs.folder.checkpoints import Checkpoint
    from coterie.runs.folder.store import RunFolder


def run_command(
    config: ConfigFile,
    machine: MachineOptions,
    devices: DeviceOptions,
    assignments: Assignments = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A new folder for the run. Default: runs/<algorithm>-<dataset>-..."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of all random draws.")] = None,
    debug: Debug = False,
) -> None:
    """Run a configuration."""
    from coterie.experiment import load_config

    # After `--set`, so that an option of its own wins over a general assignment.
    values = {"seed": seed, **machine.values(), **devices.values()}
    validated = load_config(config, assignments or (), values)
    # Signals are handled from here on: importing torch and reading data may take a while.
    with stop_after_round() as request:
        from coterie.runs.compose import compose
        from coterie.runs.folder.store import RunFolder
        from coterie.runs.run import make_folder

        # Said before the data are read, which may take minutes.
        if out is not None:
            RunFolder.check_free(out)
        composed = compose(validated)
        folder = make_folder(composed, out)
        with folder.locked():
            _execute(composed, folder, request)


def resume_command(
    run: RunPath,
    machine: MachineOptions,
    devices: DeviceOptions,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="The total number of rounds of the run.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Rows of new clients that join the run.")
    ] = None,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Continue a run from its latest checkpoint.

    The run may have been stopped or killed. If the run is complete, its results are shown, or
    --rounds extends it.
    """
    from coterie.runs.folder.store import RunFolder

    folder = RunFolder.open(run)
    values = {**machine.values(), **devices.values()}
    # Before the lock, which may be held for long: code that is not trusted is refused at once.
    folder.config(values, trust=trust)
    # Before anything is read: what another process writes changes under the reader's hands.
    with folder.locked(), stop_after_round() as request:
        from coterie.export.joining import reopen_with

        composed, checkpoint = reopen_with(folder, data, values, rounds=rounds, trust=trust)
        _execute(composed, folder, request, checkpoint, resume=True)


def _execute(
    composed: Composed,
    folder: RunFolder,
    request: StopRequest,
    checkpoint: Checkpoint | None = None,
    resume: bool = False,
) -> None:
    """Run the rounds that are left, with progress, and show the summary."""
    from coterie.data.tabular.text_columns import text_line
    from coterie.experiment.defaults import lowered_cold_start
    from coterie.runs.reporter import Reporter
    from coterie.runs.run import execute
    from coterie.terminal import console, say, summary_table, visible

    start = 0
    if checkpoint is not None:
        start = checkpoint.round
    say(_first_line(composed, folder.path, start, resume))
    table = composed.data.population.table
    if table is not None and not resume:
        text = text_line(table.encoder, table.raw.origin.why_text)
        if text:
            say(visible(text))
    lowered = lowered_cold_start(composed.experiment)
    if lowered is not None:
        say(lowered)
    with (
        Reporter(composed.experiment.train.rounds, start, headline=folder.headline) as reporter,
        # Inside the bar, so that its last state is drawn when a signal ends the run.
        request.while_running() as stop,
    ):
        summary = execute(
            composed,
            folder,
            lambda result: reporter(result.row),
            checkpoint=checkpoint,
            resume=resume,
            stop=stop,
        )
    console().print(summary_table(summary, str(folder.path)), soft_wrap=True)


def _first_line(composed: Composed, folder: Path, done: int, resume: bool) -> str:
    """What is about to run, and where it is stored."""
    from coterie.terminal import counted

    config = composed.experiment
    parameters = sum(parameter.numel() for parameter in composed.module.parameters())
    trained = sum(p.numel() for p in composed.module.parameters() if p.requires_grad)
    size = f"{parameters:,} parameters"
    if trained < parameters:
        size += f", {trained:,} of them trained"
    model = f"{config.name('model')} ({size})"
    clients = counted(composed.population.clients, "client")
    rounds = counted(config.train.rounds, "round")
    if done == config.train.rounds:
        rounds += ", all of them done"
    elif resume:
        # People count rounds from 1, files from 0.
        rounds += f", from round {done + 1}"
    name = f"{config.name('algorithm')} on {config.name('source')}"
    return f"{name}: {clients}, {model}, {rounds}, in {folder}"


def show_command(run: RunPath, debug: Debug = False) -> None:
    """Show the results of a run, finished or not."""
    from coterie.files import refuse_malformed
    from coterie.runs.folder.store import RunFolder, check_folder
    from coterie.runs.state import read_state, summary_so_far
    from coterie.terminal import console, summary_table

    folder = RunFolder.open(run)
    check_folder(folder)
    state = read_state(folder)
    source = "summary.json"
    if state.summary is None:
        source = "config.toml or rounds.jsonl"
    # A file of a run is data of somebody: wrong shapes in it are damage, not a bug of this command.
    with refuse_malformed(folder.path / source):
        table = summary_table(summary_so_far(state), str(folder.path))
    console().print(table, soft_wrap=True)


def watch_command(
    run: RunPath,
    once: Annotated[bool, typer.Option("--once", help="Show the current state and exit.")] = False,
    interval: Annotated[
        float, typer.Option(min=0.05, max=3600, help="Seconds between updates.")
    ] = 0.5,
    debug: Debug = False,
) -> None:
    """Watch a run in progress, from any terminal.

    Shows the accuracy by round (or the headline metric of another task), groups, newcomers and
    migrations, until the run ends.
    """
    from coterie.cli.watch import watch

    watch(run, once=once, interval=interval)


def export_command(
    run: RunPath,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A new folder, or that of an earlier export. Default: export in the run's folder."
        ),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option(
            help="Export only the model of this client of a simulation, with the client's own "
            "layers or model."
        ),
    ] = None,
    onnx: Annotated[
        bool,
        typer.Option("--onnx", help="Also write each model as ONNX, and compare it with torch."),
    ] = False,
    data_root: DataRootOfRun = None,
    older: Annotated[
        bool,
        typer.Option(
            "--older-checkpoint", help="Export an older state if the latest one is damaged."
        ),
    ] = False,
    trust: Trust = False,
    debug: Debug = False,
) -> None:
    """Write a run's models for use without Coterie.

    The folder contains the weights, a loader in plain PyTorch, the group of each client, and a
    model card.
    """
    from coterie.export import export_run

    root = absolute(data_root)
    _say_exported(
        export_run(run, out, client=client, onnx=onnx, root=root, older=older, trust=trust)
    )


def _say_exported(exported: Exported) -> None:
    from coterie.terminal import say

    card = exported.card
    if exported.client is not None:
        _say_client(exported)
    else:
        _say_groups(exported)
    if exported.onnx is not None:
        say(f"onnx: differs from torch by at most {exported.onnx:.1e}")
    if card.needs:
        say(
            f"network.pt2: not written, because torch cannot export the network ({card.needs}); the weights are in the export"
        )
    loader = exported.folder / "load.py"
    hint = f"README.md is the model card; try it with python {loader}"
    say(f"export: {exported.folder.resolve()} ({hint})")


def _say_client(exported: Exported) -> None:
    from coterie.terminal import counted, say

    card = exported.card
    rounds = counted(card.summary["rounds"], "round")
    headline = card.figures.headline
    assert exported.client is not None
    what = "the model that serves it"
    if card.own_part and exported.client.own:
        what += f", with {card.own_part.replace('their', 'its')}"
    elif card.own_part:
        what += f"; it has stored no {card.own_part.removeprefix('a ').replace('their', 'its')}"
    say(f"client {exported.client.name}: {what}, after {rounds}")
    say(f"{headline.title} on its own test samples: {headline.text(card.figures.score)}")


def _say_groups(exported: Exported) -> None:
    from coterie.terminal import counted, found_groups, say

    card = exported.card
    files = counted(len(card.figures.groups), "file")
    rounds = counted(card.summary["rounds"], "round")
    headline = card.figures.headline
    summary = card.summary
    found = found_groups(summary["sizes"], summary["clients"], summary["algorithm"])
    say(f"models: {files}, after {rounds}: {found}")
    whose = ""
    if card.own_part:
        say(f"these files contain only the shared models: clients keep {card.own_part}")
        # Real clients have scored with all that they keep, and have it on their own machines.
        if card.figures.groups[0].train is None:
            say(
                "to export these values, run `coterie node export NAME` on the client's own machine"
            )
            whose = f" with {card.own_part}"
        else:
            say("to export the model of one client, run `coterie export RUN --client NAME`")
            whose = " with only the shared models"
    say(
        f"{headline.title} on the clients' own test samples{whose}: {headline.text(card.figures.score)}"
    )
