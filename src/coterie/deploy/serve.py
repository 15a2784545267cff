"""The server of a deployment: the rounds of a simulation, with real clients."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from coterie.clients.clients import Clients
from coterie.clients.identity import Identity, signature
from coterie.clients.model_shape import ModelShape
from coterie.clients.validation import ReplyValidator
from coterie.config import RunConfig
from coterie.config.trust import remember
from coterie.core.client_store import ClientStore
from coterie.core.task import CORRECT, headline_of
from coterie.core.vectors import Layout, frozen_digest
from coterie.core.work import Train
from coterie.data.partitions import partition_bytes
from coterie.data.tabular.encoder import Encoder
from coterie.deploy.attendance import Attendance
from coterie.deploy.column_description import (
    COLUMNS_ARE_PLAIN,
    Description,
    describe_columns,
    description_text,
    read_description,
    write_description,
)
from coterie.deploy.configured import configured_spec
from coterie.deploy.events import WriteEvent
from coterie.deploy.federation_spec import FederationSpec, parse_config
from coterie.deploy.live import LiveState, watch_engine
from coterie.deploy.nodes_file import NodesFile, names_only
from coterie.deploy.releases import NODES_KNOW_THE_SEED, private_deployment
from coterie.deploy.settings import DeploymentSettings, check_encoding, require_cohort
from coterie.deploy.unlabelled import fate_without_labels, serve_unlabelled
from coterie.engines.flower import FlowerEngine, Terms
from coterie.errors import ConfigError
from coterie.objectives import plain
from coterie.runs.check_folder import check_folder
from coterie.runs.checkpoint import Checkpoint
from coterie.runs.digests import PARTITION
from coterie.runs.finish import write_results
from coterie.runs.loop import RoundResult
from coterie.runs.progress import make_progress
from coterie.runs.run import Run
from coterie.runs.spec import RunSpec
from coterie.runs.store import RunFolder


@dataclass(frozen=True, slots=True)
class ServerInput:
    """What the app was started with.

    Args:
        config: of the run.
        settings: of the deployment.
        out: the folder of the run.
        resume: continue the run in that folder.
    """

    config: RunConfig
    settings: DeploymentSettings
    out: Path
    resume: bool

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ServerInput:
        """From the app's own values: ``config`` (TOML), ``settings`` (JSON), ``out`` and
        ``resume``.

        Raises:
            ConfigError: for values that are not valid.
        """
        config = parse_config(str(values["config"]))
        settings = DeploymentSettings.loads(str(values["settings"]))
        require_cohort(config, settings.clients)
        return cls(config, settings, Path(str(values["out"])), bool(values["resume"]))


def serve(grid: Any, values: Mapping[str, Any], write_event: WriteEvent) -> dict[str, Any]:
    """Run the rounds that are left on the clients of a grid; returns the summary.

    Args:
        grid: Flower's.
        values: see `ServerInput.of`.
        write_event: called at the start, after every round, when a client comes or goes, before it
            waits for clients, and at the end.

    Raises:
        CoterieError: for anything expected; the state is saved after every round.
    """
    server = ServerInput.of(values)
    folder = _open_folder(server)
    with folder.locked():
        live = LiveState(folder.path)
        return _serve_rounds(grid, server, folder, live.noting(write_event), live)


def _serve_rounds(
    grid: Any,
    server: ServerInput,
    folder: RunFolder,
    write_event: WriteEvent,
    live: LiveState,
) -> dict[str, Any]:
    """The rounds that are left; returns the summary."""
    settings = server.settings
    config = server.config
    checkpoint = _find_checkpoint(server, folder)
    start = 0
    if checkpoint is not None:
        start = checkpoint.round
    engine = _make_engine(grid, server, folder, start, write_event)
    watch_engine(engine, live)
    attendance = Attendance(engine, settings, live, partial(write_event, "waiting"))
    form = settings.form
    described = None
    if form.columns:
        encoder, described = _describe(engine, attendance, server, folder, write_event)
        form = form.encoded(encoder)
    federation = FederationSpec.of(config, form)
    _agree(engine, federation)
    folder.write_headline(headline_of(federation.task))
    layout = Layout.of(federation.network.module)
    # Before the wait, too: a budget that would be exceeded is refused at once.
    private = private_deployment(configured_spec(federation, settings), config, folder, start)
    started = {
        "folder": str(folder.path),
        "round": start,
        "rounds": config.train.rounds,
        "parameters": layout.d,
        "pid": os.getpid(),
    }
    # Before the wait for clients, which may take long, so that the user sees that the run began.
    write_event("start", started)
    if config.privacy is not None and config.privacy.randomness == "seed":
        write_event("say", NODES_KNOW_THE_SEED)
    # The first models may need clients, so some have to be there before the first round.
    attendance.gather(start)
    spec = _run_spec(private, attendance)
    clients = _make_clients(engine, settings, federation, spec)
    if described is not None:
        sent = len(description_text(described.encoder).encode())
        clients.ledger.described(described.ids, described.reported, sent)
        clients.ledger.refused += described.refused
    progress = make_progress(spec, folder, checkpoint, resume=server.resume)
    run = Run(spec, clients, progress, folder, annotate=partial(_annotate, engine))
    for result in run.rounds():
        # Saved before it is shown, so that a round that somebody saw is not lost. Without a
        # snapshot of the federation: who is connected is looked up again.
        run.save(config.checkpoint.keep, with_snapshot=False)
        write_event("round", result.row)
    serve_unlabelled(run, engine, partial(write_event, "say"))
    run.save(config.checkpoint.keep, with_snapshot=False)
    names = tuple(engine.register.names)
    summary = write_results(
        folder, spec, run.groups, progress.since, config, names, samples_at_hand=False
    )
    write_event("done", summary)
    return summary


def _open_folder(server: ServerInput) -> RunFolder:
    """The run's folder, new or to go on with.

    Raises:
        ConfigError: if a new run would overwrite one.
    """
    # A run that was killed before its folder was made begins anew.
    if not server.resume or not (server.out / "config.toml").exists():
        resolved = server.config.resolved()
        folder = RunFolder.create(server.out, resolved)
        remember(folder.path, resolved)
        return folder
    return RunFolder.open(server.out)


def _find_checkpoint(server: ServerInput, folder: RunFolder) -> Checkpoint | None:
    """The checkpoint to go on from; ``None`` in a new folder.

    Raises:
        ConfigError: if the number of clients was changed.
        CheckpointError: if no checkpoint is valid, or it is of another configuration.
    """
    if not server.resume:
        return None
    checkpoint = folder.checkpoints.latest(server.config.resolved())
    check_folder(folder, resumed=True)
    if checkpoint is not None:
        clients = len(checkpoint.groups.member)
        if clients != server.settings.clients:
            what = f"another number than the run began with, got {server.settings.clients}"
            expected = f"{clients}, as in {folder.path}"
            raise ConfigError(f"deploy.toml: clients: {what}; expected {expected}")
    return checkpoint


def _make_engine(
    grid: Any, server: ServerInput, folder: RunFolder, start: int, write_event: WriteEvent
) -> FlowerEngine:
    """The engine over Flower's grid, which knows the clients that an earlier server met. What they
    train is agreed later (`_agree`)."""
    settings = server.settings
    run_name, names = NodesFile(folder, settings.shape, settings.classes).read()

    def save_names(names: Sequence[str]) -> None:
        shape = engine.terms.identity.shape
        file = NodesFile(folder, shape, settings.classes, settings.target_shape)
        file.write(run_name, names)
        folder.write({PARTITION: partition_bytes(names_only(names, settings.clients))})

    terms = Terms(
        Identity("server", version("coterie"), "", (), settings.classes),
        Train(plain),
        settings.clients,
        run_name,
        server=secrets.token_hex(8),
        since=start,
        timeout=settings.reply_wait,
        wanted=_wanted(server.config),
        without_labels=fate_without_labels(server.config),
    )
    say = partial(write_event, "say")
    engine = FlowerEngine(grid, terms, names=names, say=say, joined=save_names)
    return engine


def _wanted(config: RunConfig) -> int | None:
    """Replies that a round waits for, where it asks more clients than it needs."""
    if config.train.over_selection == 1:
        return None
    return config.train.clients_per_round


def _agree(engine: FlowerEngine, federation: FederationSpec) -> None:
    """Say what clients train: they have to have this network, and inputs of this shape."""
    module = federation.network.module
    model = signature(Layout.of(module), frozen_digest(module))
    identity = replace(engine.terms.identity, model=model, shape=federation.form.shape)
    engine.agree(replace(engine.terms, identity=identity, local=federation.local))
    # Also where nobody has come yet: commands that read the folder look for the files.
    engine.register.joined(engine.register.names)


def _describe(
    engine: FlowerEngine,
    attendance: Attendance,
    server: ServerInput,
    folder: RunFolder,
    write_event: WriteEvent,
) -> tuple[Encoder, Description | None]:
    """What becomes of the columns of tables; and what clients reported of them, where they were asked
    now and not by an earlier process."""
    encode = check_encoding(server.config)
    encoder = read_description(folder)
    description = None
    if encoder is None:
        write_event("say", "waiting for clients, which describe the columns of their tables")
        attendance.gather(0)
        description = describe_columns(engine, server.settings, encode, server.config.seed)
        encoder = description.encoder
        write_description(folder, encoder)
        for line in encoder.notes:
            write_event("say", line)
        if server.config.privacy is not None:
            write_event("say", COLUMNS_ARE_PLAIN)
    engine.agree(replace(engine.terms, columns=description_text(encoder)))
    return encoder, description


def _make_clients(
    engine: FlowerEngine, settings: DeploymentSettings, federation: FederationSpec, spec: RunSpec
) -> Clients:
    """What the method sees of its clients: validated replies, and who noticed drift."""
    # Of what stays with clients the server knows only which coordinates these are.
    store = ClientStore()
    if engine.terms.local.stays is not None:
        store.begin(engine.terms.local.stays)
    return Clients(
        engine,
        # A simulation caps claims at what its largest client holds; here nobody knows that.
        ReplyValidator(cap=settings.most_samples),
        spec.quorum,
        _model_shape(federation),
        drift_reports=engine,
        bounds=spec.bounds,
        store=store,
        clip=True,
        solver=spec.local,
    )


def _model_shape(federation: FederationSpec) -> ModelShape:
    """What rules may ask of the model."""
    classes = 0
    if federation.task.class_labels:
        classes = federation.classes
    # Right answers where there are any; no more, since methods pay for what they are sent.
    sums = tuple(one for one in federation.task.sums if one in CORRECT)
    layout = Layout.of(federation.network.module)
    return ModelShape(classes, math.prod(federation.form.shape), layout, sums)


def _run_spec(spec: RunSpec, attendance: Attendance) -> RunSpec:
    """The run with the clients that came.

    Attendance is its shift, and only clients that are connected and can train are sampled.
    """
    sampler = spec.sampler
    return replace(
        spec,
        population=attendance.population(),
        sampler=lambda round, present: sampler(round, present & attendance.engine.register.trains),
        shift=attendance,
    )


def _annotate(engine: FlowerEngine, result: RoundResult) -> None:
    """Put into the row of a round who came and went, and which clients gave no reply.

    A simulation's row says what a shift did to the data; here only the clients know.
    """
    row = result.row
    refused = dict(row["refused"])
    for reason, count in engine.take_lost().items():
        refused[reason] = refused.get(reason, 0) + count
    row["refused"] = dict(sorted(refused.items()))
    row["attendance"] = row.pop("shift")
    row["exchanges"] = engine.take_exchanges()
    del row["changed"]
    del row["missed"]
