"""How the columns of all clients' tables become inputs, by what the clients report of them.

The server asks before the first round. Each client reports sums of its own training rows, and all are
told what follows from the totals; no row leaves a client.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from coterie.clients.clients import Clients
from coterie.clients.robust_scale import Scale
from coterie.clients.validation import ReplyValidator
from coterie.core.arrays import BoolArray, FloatArray, IntArray
from coterie.core.describe import Describe
from coterie.core.keys import Key
from coterie.data.tabular.encoder import Encoder
from coterie.data.tabular.raw import Column, Encode
from coterie.data.tabular.reports import MOMENTS, add_reports, report_bytes, report_width
from coterie.deploy.settings import DeploymentSettings
from coterie.engines.flower import FlowerEngine
from coterie.errors import CheckpointError
from coterie.runs.folder.digests import COLUMNS
from coterie.runs.folder.files import MALFORMED
from coterie.runs.folder.store import RunFolder

COLUMNS_ARE_PLAIN = "privacy: covers updates, and not what clients report of their columns, which is sent without noise"

# How far the values of a client may be from those of the others, in multiples of the typical distance.
# Hospitals differ more than updates of one model do, and a report that is left out costs its client
# nothing: it takes part all the same.
_FAR = Scale(spread=10.0, floor=30.0, few=30.0)


@dataclass(frozen=True, eq=False)
class Description:
    """What became of the columns.

    Args:
        ids: int64 ``[n]``, the clients that reported.
        reported: int64 ``[n]``, bytes of what each reported.
    """

    encoder: Encoder
    ids: IntArray
    reported: IntArray
    refused: Counter[str]


def describe_columns(
    engine: FlowerEngine, settings: DeploymentSettings, encode: Encode, seed: int
) -> Description:
    """Ask all clients that are there for reports of their columns."""
    columns = settings.form.columns
    work = Describe("columns", features=report_width(columns))
    ids = np.flatnonzero(engine.register.present & engine.register.trains)
    clients = Clients(engine, ReplyValidator(cap=settings.most_samples))
    none = np.zeros(len(ids), np.int64)
    key = Key(seed, round=0).of("describe")
    reply = clients.run(work, ids, torch.zeros(1, 0), none, key=key)
    reports = reply.fields["columns"].astype(np.float64)
    used = _possible(columns, reports, reply.fields["size"])
    used[used] = usual_reports(columns, reports[used])
    refused = clients.ledger.refused + Counter(columns=int((~used).sum()))
    reports = reports[used]
    rows = int(reply.fields["size"][used].sum())
    encoder = Encoder.of(add_reports(columns, reports), encode, rows)
    return Description(encoder, reply.ids[used], report_bytes(columns, reports), +refused)


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


def description_text(encoder: Encoder) -> str:
    """What clients are told of the columns, as JSON."""
    return json.dumps(encoder.record())


def write_description(folder: RunFolder, encoder: Encoder) -> None:
    """Note in the run's folder what clients are told."""
    folder.write({COLUMNS: description_text(encoder).encode()})


def read_description(folder: RunFolder) -> Encoder | None:
    """What the run's clients were told of their columns; ``None`` before they were asked."""
    data = folder.file(COLUMNS)
    if data is None:
        return None
    try:
        return Encoder.read(json.loads(data))
    except (*MALFORMED, RecursionError):
        what = "damaged, got no columns"
        raise CheckpointError(f"{folder.path / COLUMNS}: {what}; expected some") from None
