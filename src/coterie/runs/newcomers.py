"""Clients that join a run that is going on: their samples, and their places in its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import IntArray
from coterie.core.groups import NO_GROUP, Groups, GrowingRecord
from coterie.data import Partition
from coterie.data.partitions import partition_bytes
from coterie.errors import ConfigError, DataError
from coterie.methods.buffered import InFlight
from coterie.rules.cold_start import DirectionMemory
from coterie.rules.migration import DriftMemory
from coterie.rules.signatures import SignatureMemory
from coterie.rules.soft_groups import LabelPriorMemory, ShareMemory
from coterie.rules.starts import CountMemory, StartMemory
from coterie.runs.checkpoint import Checkpoint
from coterie.runs.compose import Composed
from coterie.runs.digests import NEWCOMERS, PARTITION
from coterie.runs.joined import newcomers_bytes, read_newcomers
from coterie.runs.store import RunFolder

# What methods remember of their clients, as far as a new client has a place in it.
GROWING: tuple[type[GrowingRecord], ...] = (
    CountMemory,
    DirectionMemory,
    DriftMemory,
    InFlight,
    LabelPriorMemory,
    ShareMemory,
    SignatureMemory,
    StartMemory,
)


@dataclass(frozen=True, eq=False, slots=True)
class JoiningClients:
    """Clients that are to join a run.

    Args:
        x: ``[S, ...]``, inputs as the run's network has them.
        y: ``[S]`` or ``[S, t]``, targets as the run's task has them.
        train: per client its training samples, as numbers below ``S``.
        test: per client its test samples.
    """

    x: Tensor
    y: Tensor
    train: tuple[IntArray, ...]
    test: tuple[IntArray, ...]
    names: tuple[str, ...]


def join(folder: RunFolder, composed: Composed, joining: JoiningClients) -> None:
    """Write new clients into the folder of a run; those of the run stay as they are.

    The run goes on with them when it is composed the next time. To be called under the folder's
    lock.
    """
    _check_joins(composed)
    population = composed.population
    known = set(population.names)
    for name in joining.names:
        if name in known:
            what = f"in the run already, got the client {name!r}"
            raise DataError(f"--data: {what}; expected new clients alone")
    earlier = read_newcomers(folder.path)
    x = joining.x
    y = joining.y
    first = population.clients
    if earlier is not None:
        x = torch.cat([earlier.x, x])
        y = torch.cat([earlier.y, y])
        first = earlier.first_client
    # The samples first. Until the partition names them no client holds them, so a kill in between
    # leaves the run as it was.
    folder.write({NEWCOMERS: newcomers_bytes(x, y, first)})
    parts = _extended(composed.partition, joining, len(population.y))
    folder.write({PARTITION: partition_bytes(parts)})
    folder.forget_results()


def _check_joins(composed: Composed) -> None:
    config = composed.experiment
    population = composed.population
    method = composed.partition
    reasons = {
        "[shift] decides who is there": config.shift is not None,
        "the noise of [privacy] was chosen for its clients": config.privacy is not None,
        "its attackers are a share of its clients": config.attack is not None,
        "some clients never train, by [evaluate] unseen": config.evaluate.unseen is not None,
        "its true groups are known": population.planted is not None or bool(method.transform),
        "its clients are made one by one": population.lazy,
        "its inputs are windows of series": bool(population.naive),
    }
    for reason, found in reasons.items():
        if found:
            raise ConfigError(f"--data: no client can join, got a run in which {reason}")


def _extended(parts: Partition, joining: JoiningClients, samples: int) -> Partition:
    """The partition with new clients at its end, whose samples stand after all others."""
    train = tuple(samples + rows for rows in joining.train)
    test = tuple(samples + rows for rows in joining.test)
    names = parts.names or tuple(str(client) for client in range(parts.clients))
    return replace(
        parts,
        train=(*parts.train, *train),
        test=(*parts.test, *test),
        names=(*names, *joining.names),
    )


# --- their places in the state --------------------------------------------------------------------


def with_places(checkpoint: Checkpoint, clients: int, method: str) -> Checkpoint:
    """A checkpoint with a place for each client that has joined since.

    A new client has no group: the method places it when it is first asked, as any newcomer.
    """
    groups = checkpoint.groups
    count = clients - len(groups.member)
    if count <= 0:
        return checkpoint
    try:
        memory = groups.memory.with_newcomers(count, GROWING)
    except KeyError:
        raise ConfigError(
            f"algorithm.name: {method} remembers what it knew of its clients at the start, got "
            f"{count} new ones; expected a method such as fedavg, fedgroup, flexcfl, ifca or fedclust"
        ) from None
    none = np.full(count, NO_GROUP)
    grown: Groups = replace(groups, member=np.append(groups.member, none), memory=memory)
    since = np.append(np.asarray(checkpoint.extra["since"], np.int64), none)
    extra: Mapping[str, object] = {**checkpoint.extra, "since": since}
    return replace(checkpoint, groups=grown, extra=extra)
