"""A run that continues with more clients: those of a table of new rows."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.config import registry
from coterie.core.keys import Key
from coterie.data.partitions.helpers import split_train_test
from coterie.errors import ConfigError, DataError
from coterie.export.table_files import read_rows_for_run
from coterie.runs.compose import Composed
from coterie.runs.data import read_record
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.store import RunFolder
from coterie.runs.resume import JoiningClients, join, reopen, with_places
from coterie.runs.stored import Record

if TYPE_CHECKING:
    import pandas as pd


def reopen_with(
    folder: RunFolder,
    data: str | PathLike[str] | pd.DataFrame | None,
    values: Mapping[str, Any],
    *,
    rounds: int | None = None,
    trust: bool = False,
) -> tuple[Composed, Checkpoint | None]:
    """The run of a folder, whose lock the caller holds, with the new clients of these rows, if any,
    and the state that it resumes from.

    Raises:
        ConfigError: for a run that no client can join, or that has no round left.
        DataError: for rows that cannot be used.
    """
    if data is None:
        return reopen(folder, values, rounds=rounds, trust=trust)
    composed, checkpoint = reopen(folder, values, trust=trust)
    total = rounds or composed.experiment.train.rounds
    if checkpoint is None or checkpoint.round >= total:
        done = 0 if checkpoint is None else checkpoint.round
        what = "new clients can join only after the first round and before the last"
        got = f"{done} of {total} rounds"
        expected = "a larger value of --rounds"
        raise ConfigError("does-not-fit", "--data", what, found=got, allowed=expected)
    joining = read_joining(data, composed, read_record(folder.path))
    clients = composed.population.clients + len(joining.names)
    # Tried first: what refuses new clients refuses them before the folder changes.
    with_places(checkpoint, clients, composed.experiment.name("algorithm"))
    join(folder, composed, joining)
    return reopen(folder, values, rounds=rounds, trust=trust)


def read_joining(
    data: str | PathLike[str] | pd.DataFrame, composed: Composed, record: Record | None
) -> JoiningClients:
    """The clients of a table of new rows, with the columns of the run's own data.

    Raises:
        DataError: for rows without a client or a label.
    """
    population = composed.population
    source = composed.experiment.name("source")
    new = read_rows_for_run(data, record, source, population.names)
    names = tuple(dict.fromkeys(new.client.tolist()))
    if new.unnamed in names:
        rows = int((new.client == new.unnamed).sum())
        what = "rows without a client"
        raise DataError("missing", "--data", what, found=rows, allowed="a client in every row")
    if not new.labelled.all():
        row = int(np.argmin(new.labelled))
        what = "a row without a label"
        expected = "a label in every row"
        raise DataError("missing", "--data", what, found=f"row {row}", allowed=expected)
    held = [np.flatnonzero(new.client == name) for name in names]
    # A partition whose test samples are the source's has no such option.
    _, fraction = registry.options("partition", "natural")["test_fraction"]
    said = composed.experiment.options("partition").get("test_fraction")
    if said is not None:
        fraction = said
    # By the number of the first of them, so that clients that join later draw something else.
    key = Key(composed.experiment.seed).of("newcomers").at(population.clients)
    parts = split_train_test(held, key, fraction)
    target = new.target.reshape(len(new.target), *population.y.shape[1:])
    return JoiningClients(new.x, target.to(population.y.dtype), parts.train, parts.test, names)
