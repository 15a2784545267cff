"""What a server and its clients agree on before the rounds: the network, and what becomes of the
columns of tables.

Each client reports sums of its own training rows, and all receive what follows from the totals; no
row leaves a client.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from coterie.clients.clients import Clients
from coterie.clients.identity import Identity, signature
from coterie.clients.robust_scale import Scale
from coterie.clients.validation import ReplyValidator
from coterie.core.arrays import BoolArray, FloatArray, IntArray
from coterie.core.describe import Describe
from coterie.core.keys import Key
from coterie.core.vectors import Layout, frozen_digest
from coterie.core.work import Train
from coterie.data.partitions import partition_bytes
from coterie.data.tabular.encoder import Encoder
from coterie.data.tabular.raw import Column, Encode, Origin
from coterie.data.tabular.reports import MOMENTS, add_reports, report_bytes, report_width
from coterie.engines.flower import ExchangeObserver, FlowerEngine, Terms
from coterie.flower.federation_spec import DataDescription, FederationSpec, target_columns
from coterie.flower.server.attendance import Attendance, NodesFile, names_only
from coterie.flower.server.configured import ServerInput
from coterie.flower.server.live import WriteEvent
from coterie.flower.server.unlabelled import fate_without_labels
from coterie.flower.settings import DeploymentSettings, table_encoding
from coterie.runs.data import read_record
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.digests import COLUMNS, PARTITION, TARGETS
from coterie.runs.folder.store import RunFolder
from coterie.runs.stored import make_record, record_bytes
from coterie.runs.target_scaling import scaling_bytes, stored_scaling
from coterie.tasks.scaling import scaling_from

COLUMNS_ARE_PLAIN = "[privacy] protects updates, but not the clients' reports on their columns, which are sent without noise"

FIXED_BY_PRIVACY = "the noise of [privacy] was chosen for `clients` of deploy.toml"

# How far the values of a client may be from those of the others, in multiples of the typical distance.
# Hospitals differ more than updates of one model do, and a report that is left out costs its client
# nothing: it takes part all the same.
_FAR = Scale(spread=10.0, floor=30.0, few=30.0)


@dataclass(frozen=True, eq=False)
class Description:
    """What became of the columns."""

    data: DataDescription
    ids: IntArray  # [n], the clients that reported
    reported: IntArray  # [n], bytes of what each reported
    refused: Counter[str]


def describe_columns(
    engine: FlowerEngine,
    settings: DeploymentSettings,
    encode: Encode,
    targets: tuple[Column, ...],
    seed: int,
) -> Description:
    """Ask all clients that are there for reports of their columns, and of ``targets``."""
    columns = (*settings.table_columns, *targets)
    work = Describe("columns", features=report_width(columns))
    ids = np.flatnonzero(engine.register.present & engine.register.trains)
    clients = Clients(engine, ReplyValidator(cap=settings.most_samples))
    reply = clients.run(work, ids, key=Key(seed, round=0).of("describe"))
    reports = reply.fields["columns"].astype(np.float64)
    used = _possible(columns, reports, reply.size)
    used[used] = usual_reports(columns, reports[used])
    refused = clients.ledger.refused + Counter(columns=int((~used).sum()))
    reports = reports[used]
    of_table, of_targets = np.split(reports, [report_width(settings.table_columns)], axis=1)
    encoder = None
    if settings.columns:
        rows = int(reply.size[used].sum())
        encoder = Encoder.of(add_reports(settings.table_columns, of_table), encode, rows)
    scaling = scaling_from(of_targets) if targets else None
    data = DataDescription(encoder, scaling)
    return Description(data, reply.ids[used], report_bytes(columns, reports), +refused)


def _by_column(
    columns: Sequence[Column], reports: FloatArray
) -> Iterator[tuple[Column, FloatArray]]:
    """Each column, and what the reports say of it, ``[n, width]``."""
    at = 0
    for column in columns:
        width = report_width([column])
        yield column, reports[:, at : at + width]
        at += width


def _possible(columns: tuple[Column, ...], reports: FloatArray, size: FloatArray) -> BoolArray:
    """Which reports are possible: counts from 0 to ``size``, and no negative squares."""
    possible = np.ones(len(reports), bool)
    for column, part in _by_column(columns, reports):
        if column.kind == "category":
            counts = part
            possible &= part.sum(axis=1) == size
        else:
            assert part.shape[1] == MOMENTS, "a count, a mean and squares"
            counts = part[:, :1]
            possible &= part[:, 2] >= 0
        possible &= ((counts >= 0) & (counts <= size[:, None])).all(axis=1)
    return possible


def usual_reports(columns: Sequence[Column], reports: FloatArray) -> BoolArray:
    """Which reports are not far from all others, bool ``[n]``.

    One client with a mean of ``1e15`` would give a column such a deviation that the inputs of all others
    became the same number. With ``m_i`` the mean of a column and ``s_i`` its standard deviation, and ``m``
    the median of the ``m_i``, a report is far if ``|m_i - m| + s_i`` is beyond the limit.

    Args:
        reports: float64 ``[n, report_width]``, possible ones.
    """
    usual = np.ones(len(reports), bool)
    everyone = np.zeros(len(reports), np.int64)
    for column, part in _by_column(columns, reports):
        if column.kind == "category":
            continue
        count, mean, squares = part.T
        held = count > 0
        if not held.any():
            continue
        deviation = np.sqrt(np.divide(squares, count, out=np.zeros_like(squares), where=held))
        apart = np.where(held, np.abs(mean - np.median(mean[held])) + deviation, 0.0)
        usual &= apart <= _FAR.limits(apart, everyone)
    return usual


def description_bytes(data: DataDescription) -> int:
    """How much clients are sent, as in a simulation."""
    size = 0
    if data.encoder is not None:
        size += len(json.dumps(data.encoder.record()).encode())
    if data.scaling is not None:
        size += len(scaling_bytes(data.scaling))
    return size


def read_description(folder: RunFolder) -> DataDescription | None:
    """What the run's clients received about their data; ``None`` before that."""
    encoder = None
    if folder.file(COLUMNS) is not None:
        record = read_record(folder.path)
        assert record is not None, "the file is there"
        encoder = Encoder.read(record["rules"])
    # A run that has rounds and no such file has targets as they are.
    elif folder.file(TARGETS) is None and not folder.rows():
        return None
    return DataDescription(encoder, stored_scaling(folder.path))


# --- the engine, and what is trained --------------------------------------------------------------


def make_flower_engine(
    grid: Any,
    server: ServerInput,
    folder: RunFolder,
    checkpoint: Checkpoint | None,
    write_event: WriteEvent,
    observer: ExchangeObserver,
) -> FlowerEngine:
    """The engine over Flower's grid, which knows the clients that an earlier server met. What they
    train is agreed later (`agree`)."""
    settings = server.settings
    run_name, names = NodesFile(folder, settings.shape, settings.classes).read()
    start = 0
    places = settings.clients
    if checkpoint is not None:
        start = checkpoint.round
        places = len(checkpoint.groups.member)

    def save_names(names: Sequence[str]) -> None:
        shape = engine.terms.identity.shape
        file = NodesFile(folder, shape, settings.classes, settings.target_shape)
        file.write(run_name, names)
        folder.write({PARTITION: partition_bytes(names_only(names, engine.terms.capacity))})

    # Replies that a round waits for, where it asks more clients than it needs.
    wanted = None
    if server.config.train.over_selection != 1:
        wanted = server.config.train.clients_per_round
    terms = Terms(
        Identity("server", version("coterie"), "", (), settings.classes),
        Train(),
        max(places, len(names)),
        run_name,
        server=secrets.token_hex(8),
        since=start,
        timeout=settings.reply_wait,
        wanted=wanted,
        without_labels=fate_without_labels(server.config),
        closed="" if server.config.privacy is None else FIXED_BY_PRIVACY,
    )
    say = partial(write_event, "say")
    engine = FlowerEngine(grid, terms, names=names, say=say, joined=save_names, observer=observer)
    return engine


def agree(engine: FlowerEngine, federation: FederationSpec) -> None:
    """Say what clients train: they have to have this network, and inputs of this shape."""
    module = federation.network.module
    model = signature(Layout.of(module), frozen_digest(module))
    identity = replace(engine.terms.identity, model=model, shape=federation.form.shape)
    engine.register.agree(replace(engine.terms, identity=identity, local=federation.local))
    # Also where no client has come yet: commands that read the folder look for the files.
    engine.register.joined(engine.register.names)


def describe_data(
    engine: FlowerEngine,
    attendance: Attendance,
    server: ServerInput,
    folder: RunFolder,
    write_event: WriteEvent,
) -> tuple[DataDescription, Description | None]:
    """What becomes of the columns of tables and of the targets of a regression; and what clients
    reported of them, where they were asked now and not by an earlier process."""
    targets = target_columns(server.config, server.settings.form)
    if not server.settings.columns and not targets:
        return DataDescription(None, None), None
    data = read_description(folder)
    description = None
    if data is None:
        what = "the columns of their tables" if server.settings.columns else "their targets"
        write_event("say", f"waiting for clients, which describe {what}")
        attendance.gather(0)
        encode = table_encoding(server.config)
        seed = server.config.seed
        description = describe_columns(engine, server.settings, encode, targets, seed)
        data = description.data
        folder.write(_description_files(data, server.settings, with_targets=bool(targets)))
        if data.encoder is not None:
            for line in data.encoder.notes:
                write_event("say", line)
            if server.config.privacy is not None:
                write_event("say", COLUMNS_ARE_PLAIN)
    engine.register.agree(replace(engine.terms, columns=data.text()))
    return data, description


def _description_files(
    data: DataDescription, settings: DeploymentSettings, *, with_targets: bool
) -> dict[str, bytes]:
    """What the folder of the run says of the clients' data."""
    files = {}
    if data.encoder is not None:
        rules = data.encoder.record()
        shape = (len(data.encoder.features),)
        record = make_record(rules, Origin("label"), settings.classes or None, shape)
        files[COLUMNS] = record_bytes(record)
    if with_targets:
        files[TARGETS] = scaling_bytes(data.scaling)
    return files
