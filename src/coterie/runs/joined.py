"""The samples of clients that joined a run that was going on, ``newcomers.npz`` of its folder."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from coterie.data import Partition, Population
from coterie.data.npz import read_npz
from coterie.errors import DataError
from coterie.runs.digests import NEWCOMERS


@dataclass(frozen=True, eq=False, slots=True)
class Newcomers:
    """The samples of clients that joined.

    Args:
        x: as in `coterie.runs.newcomers.JoiningClients`.
        y: as in `coterie.runs.newcomers.JoiningClients`.
        first_client: the number of the first one that joined.
    """

    x: Tensor
    y: Tensor
    first_client: int


def newcomers_bytes(x: Tensor, y: Tensor, first: int) -> bytes:
    """The bytes of ``newcomers.npz``; the arguments are the fields of `Newcomers`."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, x=x.numpy(), y=y.numpy(), first_client=np.array(first))
    return file.getvalue()


def read_newcomers(folder: Path) -> Newcomers | None:
    """The samples of clients that joined a run; ``None`` where none did."""
    path = folder / NEWCOMERS
    if not path.is_file():
        return None
    arrays = read_npz(path)
    try:
        x = torch.from_numpy(arrays["x"])
        y = torch.from_numpy(arrays["y"])
        return Newcomers(x, y, int(arrays["first_client"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path}: no samples of new clients ({error}); expected a file written by coterie"
        ) from None


def with_joined_clients(
    population: Population, newcomers: Newcomers, parts: Partition
) -> Population:
    """A population with the clients that joined."""
    table = population.table
    if table is not None:
        # They had no part in the description of the columns, which stays as it was.
        nothing = np.zeros(parts.clients - population.clients, np.int64)
        table = replace(table, reported=np.append(table.reported, nothing))
    return replace(
        population,
        x=torch.cat([population.x, newcomers.x]),
        y=torch.cat([population.y, newcomers.y]),
        train=parts.train,
        test=parts.test,
        names=parts.names,
        table=table,
    )


def clients_before(parts: Partition, count: int) -> Partition:
    """The partition of the first clients alone, those before others joined."""
    return replace(
        parts, train=parts.train[:count], test=parts.test[:count], names=parts.names[:count]
    )
