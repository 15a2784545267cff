"""What a server and its clients agree on before the rounds: the network, and what becomes of the
columns of tables."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

from coterie.clients.identity import Identity, signature
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
from coterie.deploy.events import WriteEvent
from coterie.deploy.federation_spec import FederationSpec
from coterie.deploy.nodes_file import NodesFile, names_only
from coterie.deploy.server_input import ServerInput
from coterie.deploy.settings import check_encoding
from coterie.deploy.unlabelled import fate_without_labels
from coterie.engines.flower import ExchangeObserver, FlowerEngine, Terms
from coterie.experiment import Experiment
from coterie.objectives import plain
from coterie.runs.folder.digests import PARTITION
from coterie.runs.folder.store import RunFolder


def make_flower_engine(
    grid: Any,
    server: ServerInput,
    folder: RunFolder,
    start: int,
    write_event: WriteEvent,
    observer: ExchangeObserver,
) -> FlowerEngine:
    """The engine over Flower's grid, which knows the clients that an earlier server met. What they
    train is agreed later (`agree`)."""
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
    engine = FlowerEngine(grid, terms, names=names, say=say, joined=save_names, observer=observer)
    return engine


def _wanted(config: Experiment) -> int | None:
    """Replies that a round waits for, where it asks more clients than it needs."""
    if config.train.over_selection == 1:
        return None
    return config.train.clients_per_round


def agree(engine: FlowerEngine, federation: FederationSpec) -> None:
    """Say what clients train: they have to have this network, and inputs of this shape."""
    module = federation.network.module
    model = signature(Layout.of(module), frozen_digest(module))
    identity = replace(engine.terms.identity, model=model, shape=federation.form.shape)
    engine.agree(replace(engine.terms, identity=identity, local=federation.local))
    # Also where nobody has come yet: commands that read the folder look for the files.
    engine.register.joined(engine.register.names)


def describe_tables(
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
