"""The server of a deployment: the rounds of a simulation, with real clients."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from coterie.clients.clients import Clients, ClientStores, ModelShape
from coterie.clients.cohort import Sampler
from coterie.clients.ledger import Ledger
from coterie.clients.validation import ReplyValidator
from coterie.config.trust import remember
from coterie.core.task import KnowsPossibleSums, Task, headline_of
from coterie.core.vectors import Layout
from coterie.engines.flower import FlowerEngine
from coterie.errors import ConfigError
from coterie.experiment import Experiment
from coterie.flower.federation_spec import FederationSpec
from coterie.flower.server.agreement import (
    Description,
    agree,
    describe_data,
    description_bytes,
    make_flower_engine,
)
from coterie.flower.server.attendance import Attendance
from coterie.flower.server.configured import (
    NODES_KNOW_THE_SEED,
    ServerInput,
    check_rounds,
    private_deployment,
)
from coterie.flower.server.live import LiveState, WriteEvent
from coterie.flower.server.scores import (
    COLUMN,
    FIGURES,
    client_scores,
    figures_of_clients,
    write_clients,
)
from coterie.flower.server.unlabelled import Say, serve_unlabelled
from coterie.flower.settings import DeploymentSettings
from coterie.runs.finish import write_results
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.store import RunFolder, check_folder
from coterie.runs.loop import RoundResult
from coterie.runs.progress import make_progress
from coterie.runs.resume import with_places
from coterie.runs.run import OnRound, Run
from coterie.runs.spec import RunSpec

UNSCORED = (
    "warning: no client was scored after the last round, since none replied; the models are those "
    "of the last training"
)


def serve(grid: Any, values: Mapping[str, Any], write_event: WriteEvent) -> dict[str, Any]:
    """Run the rounds that are left on the clients of a grid; returns the summary. `ServerInput.of`
    reads ``values``."""
    server = ServerInput.of(values)
    folder = _open_folder(server)
    with folder.locked():
        live = LiveState(folder.path)
        return _serve_rounds(grid, server, folder, live.noting(write_event), live)


def _serve_rounds(
    grid: Any, server: ServerInput, folder: RunFolder, write_event: WriteEvent, live: LiveState
) -> dict[str, Any]:
    """The rounds that are left; returns the summary."""
    settings = server.settings
    config = server.config
    checkpoint = _find_checkpoint(server, folder)
    engine = make_flower_engine(grid, server, folder, checkpoint, write_event, live)
    start = engine.terms.since
    rows = folder.rows()[:start]
    attendance = Attendance.begin(engine, settings, rows, live, partial(write_event, "waiting"))

    # Step 1: what is trained; of tables, and of targets that are numbers, the clients have to say
    # first what they hold.
    data, described = describe_data(engine, attendance, server, folder, write_event)
    form = data.form(settings.form)
    federation = FederationSpec.of(config, form, settings.clients, data.scaling)
    agree(engine, federation)
    folder.write_headline(headline_of(federation.task))
    # Before the wait, too: a budget that would be exceeded is refused at once.
    private = private_deployment(federation.run, config, folder, start)

    # Step 2: enough clients. Say first that the run began, since the wait may be long.
    _announce_start(write_event, folder, config, federation, start)
    # The first models may need clients, so some have to be there before the first round.
    attendance.gather(start)
    make_spec = partial(_run_spec, private, attendance)
    spec = make_spec()
    clients = _make_clients(engine, settings, federation, spec)
    if described is not None:
        _count_description(clients.ledger, described)

    # Step 3: the rounds.
    progress = make_progress(spec, folder, checkpoint, resume=server.resume)
    run = Run(spec, clients, progress, folder, annotate=_annotation(engine, spec), simulated=False)
    say = partial(write_event, "say")
    for result in _rounds(run, attendance, make_spec, config.name("algorithm"), say):
        # Saved before it is shown, so that a round that somebody saw is not lost. Without a
        # snapshot of the federation: who is connected is looked up again.
        run.save(config.checkpoint.keep, with_snapshot=False)
        write_event("round", result.row)

    # Step 4: clients without labels, and the results.
    serve_unlabelled(run, engine, say)
    run.save(config.checkpoint.keep, with_snapshot=False)
    summary = _write_results(run, folder, config, engine)
    write_event("done", summary)
    return summary


def _annotation(engine: FlowerEngine, spec: RunSpec) -> OnRound:
    """What adds to each row of a run what only a federation knows."""
    # Of a sample of the clients, which changes with the groups, single scores say little.
    all_scored = spec.schedule.train.evaluate_clients is None
    return partial(_annotate, engine, spec.task, all_scored)


def _announce_start(
    write_event: WriteEvent,
    folder: RunFolder,
    config: Experiment,
    federation: FederationSpec,
    start: int,
) -> None:
    """Say that the run begins or goes on, and in which process."""
    started = {
        "folder": str(folder.path),
        "round": start,
        "rounds": config.train.rounds,
        "parameters": Layout.of(federation.network.module).d,
        "pid": os.getpid(),
    }
    write_event("start", started)
    if config.privacy is not None and config.privacy.randomness == "seed_not_private":
        write_event("say", NODES_KNOW_THE_SEED)


def _rounds(
    run: Run,
    attendance: Attendance,
    make_spec: Callable[[], RunSpec],
    method: str,
    say: Say,
) -> Iterator[RoundResult]:
    """The rounds that are left. Where clients have come for which the run has no place, it gets
    places for them and goes on as if it were resumed."""
    while True:
        _make_places(run, attendance, method)
        run.spec = make_spec()
        for result in run.rounds():
            yield result
            over = run.progress.round == run.spec.schedule.rounds
            if over and result.row[headline_of(run.spec.task).name] is None:
                say(UNSCORED)
            if not over and attendance.is_crowded():
                break
        else:
            return


def _make_places(run: Run, attendance: Attendance, method: str) -> None:
    """Have a place in a run for every client that came: a new one has no group, and the method
    places it as any newcomer."""
    register = attendance.engine.register
    places = register.terms.capacity
    if not register.terms.closed:
        places = max(places, register.wanted)
    progress = run.progress
    if progress.groups is not None:
        state = Checkpoint(progress.round, progress.groups, {"since": progress.since})
        try:
            state = with_places(state, places, method)
        except ConfigError as error:
            register.close(error.problems[0].what)
            return
        progress.groups = state.groups
        progress.since = state.since
    attendance.grow(places)


def _write_results(
    run: Run, folder: RunFolder, config: Experiment, engine: FlowerEngine
) -> dict[str, Any]:
    """The files that a run writes at its end; returns the summary."""
    names = tuple(engine.register.names)
    since = run.progress.since
    # A federation has places for clients that never came, and those have no line.
    write_clients(folder, names, run.groups.member[: len(names)], headline_of(run.spec.task))
    # The samples are with the clients: nothing that needs them is written here.
    return write_results(folder, run.spec, run.groups, since, config, names, samples_at_hand=False)


def _open_folder(server: ServerInput) -> RunFolder:
    """The run's folder, new or to go on with."""
    # A run that was killed before its folder was made begins anew.
    if not server.resume or not (server.out / "config.toml").exists():
        resolved = server.config.resolved()
        folder = RunFolder.create(server.out, resolved)
        remember(folder.path, resolved)
        return folder
    return RunFolder.open(server.out)


def _find_checkpoint(server: ServerInput, folder: RunFolder) -> Checkpoint | None:
    """The checkpoint to go on from; ``None`` in a new folder."""
    if not server.resume:
        return None
    config = server.config
    planned = folder.resolved["train"]["rounds"]
    checkpoint = folder.checkpoints.latest(config.with_table("train", rounds=planned).resolved())
    check_folder(folder, resumed=True)
    check_rounds(folder, config, 0 if checkpoint is None else checkpoint.round)
    if config.train.rounds != planned:
        folder.plan_rounds(config.train.rounds)
    if checkpoint is not None and config.privacy is not None:
        clients = len(checkpoint.groups.member)
        if clients != server.settings.clients:
            what = "differs from the number for which the noise of [privacy] was chosen"
            got = server.settings.clients
            expected = f"{clients}, as in {folder.path}"
            error = ConfigError("differs", "clients", what, found=got, allowed=expected)
            raise error.located("deploy.toml")
    return checkpoint


def _count_description(ledger: Ledger, described: Description) -> None:
    """Count what was exchanged about the columns of tables: it was before there was a ledger."""
    sent = description_bytes(described.data)
    ledger.described(described.ids, described.reported, sent)
    ledger.refused += described.refused


def _make_clients(
    engine: FlowerEngine, settings: DeploymentSettings, federation: FederationSpec, spec: RunSpec
) -> Clients:
    """What the method sees of its clients: validated replies, and who noticed drift."""
    # Of what stays with clients the server knows only which coordinates these are.
    stores = ClientStores()
    if engine.terms.local.stays is not None:
        stores.parts.begin(engine.terms.local.stays)
    layout = Layout.of(federation.network.module)
    # A task that can tell sums that no samples have.
    task = federation.task if isinstance(federation.task, KnowsPossibleSums) else None
    shape = ModelShape.of(federation.task, federation.classes, federation.form.shape, layout)
    return Clients(
        engine,
        # A simulation caps claims at what its largest client holds; here it is unknown.
        ReplyValidator(cap=settings.most_samples, task=task),
        shape,
        drift_reports=engine,
        bounds=replace(spec.bounds, scores=True),
        stores=stores,
        solver=spec.local,
    )


def _run_spec(spec: RunSpec, attendance: Attendance) -> RunSpec:
    """The run with the clients that came.

    Attendance is its shift, and only clients that are connected and can train are sampled.
    """
    population = attendance.population()
    sampler = spec.schedule.sampler
    if isinstance(sampler, Sampler):
        sampler = replace(sampler, clients=np.arange(population.clients))
    schedule = replace(
        spec.schedule,
        sampler=lambda round, present: sampler(round, present & attendance.engine.register.trains),
        shift=attendance,
    )
    return replace(spec, population=population, schedule=schedule)


def _annotate(engine: FlowerEngine, task: Task, all_scored: bool, result: RoundResult) -> None:
    """Put into the row of a round who came and went, which clients gave no reply, and what each of those
    that were scored reached.

    A simulation's row says what a shift did to the data; here only the clients know.
    """
    row = result.row
    refused = dict(row["refused"])
    for reason, count in engine.take_lost().items():
        refused[reason] = refused.get(reason, 0) + count
    row["refused"] = dict(sorted(refused.items()))
    row["attendance"] = row.pop("shift")
    if all_scored and result.scores is not None:
        row[COLUMN] = client_scores(engine.register.names, result.scores, task)
        figures = figures_of_clients(engine.register.names, result.scores, task)
        if figures:
            row[FIGURES] = figures
    row["exchanges"] = engine.take_exchanges()
    del row["changed"]
    del row["missed"]
