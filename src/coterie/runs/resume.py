"""A run that is resumed from its folder, also to another number of rounds, and with new clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from coterie.core.arrays import EMPTY, IntArray
from coterie.data import Partition
from coterie.data.partitions import partition_bytes
from coterie.errors import ConfigError, DataError
from coterie.experiment import Experiment
from coterie.runs.compose import Composed, compose
from coterie.runs.data import newcomers_bytes, read_newcomers
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.digests import NEWCOMERS, PARTITION
from coterie.runs.folder.store import RunFolder, check_folder
from coterie.terminal import counted


def reopen(
    folder: RunFolder,
    values: Mapping[str, Any] = EMPTY,
    *,
    rounds: int | None = None,
    trust: bool = False,
) -> tuple[Composed, Checkpoint | None]:
    """The run of a folder with ``values`` that change no result, and the state that it resumes
    from; call it under the folder's lock.

    Another number of rounds is written to the folder. Final models, members and rows are those of a
    run of this number from the start.
    """
    config = folder.config(values, trust=trust)
    # With the options of the caller: those that change results are refused here.
    checkpoint = folder.checkpoints.latest(config.resolved())
    check_folder(folder, resumed=True)
    folder.record_changed_code()
    # Nothing to change, so nothing is written: also a run that is done may be resumed.
    if rounds is None or rounds == config.train.rounds:
        composed = compose(config, folder.partition)
        return composed, _grown(composed, checkpoint)
    done = 0 if checkpoint is None else checkpoint.round
    refuse_rounds(config, rounds, done)
    changed = folder.config({**values, "train.rounds": rounds}, trust=trust)
    # Composed first, which refuses what a longer run would spend; only then the folder changes.
    composed = compose(changed, folder.partition)
    folder.plan_rounds(rounds)
    return composed, _grown(composed, checkpoint)


def _grown(composed: Composed, checkpoint: Checkpoint | None) -> Checkpoint | None:
    if checkpoint is None:
        return None
    return with_places(
        checkpoint, composed.population.clients, composed.experiment.name("algorithm")
    )


def refuse_rounds(config: Experiment, rounds: int, done: int, option: str = "--rounds") -> None:
    """Refuse another number of rounds for a run, of which so many are ``done``, where it cannot be
    had; ``option`` sets that number."""
    before = config.train.rounds
    # Rows and models of those rounds are there, and a run is never cut.
    if rounds < done:
        expected = f"at least the {done} that are complete"
        what = "fewer rounds than are complete"
        raise ConfigError("out-of-range", option, what, got=rounds, allowed=expected)
    # With `over` the course is the same whatever the number of rounds.
    schedule = config.local.round_schedule
    if schedule is not None and schedule.kind == "cosine" and schedule.over is None:
        what = f"the learning rate follows a cosine over the {counted(before, 'round')} of the run"
        expected = f"{before}, or a run with local.round_schedule.over"
        raise ConfigError("in-conflict", option, what, got=rounds, allowed=expected)
    if config.privacy is not None and config.privacy.noise is None:
        what = f"the noise was chosen so that {counted(before, 'round')} spend privacy.epsilon"
        expected = f"{before}, or a run with privacy.noise"
        raise ConfigError("in-conflict", option, what, got=rounds, allowed=expected)


@dataclass(frozen=True, eq=False, slots=True)
class JoiningClients:
    """Clients that are to join a run."""

    x: Tensor
    y: Tensor
    train: tuple[IntArray, ...]
    test: tuple[IntArray, ...]
    names: tuple[str, ...]


def join(folder: RunFolder, composed: Composed, joining: JoiningClients) -> None:
    """Write new clients into the folder of a run; those of the run do not change. They take part
    when it is composed the next time. To be called under the folder's lock."""
    _check_joins(composed)
    population = composed.population
    known = set(population.names)
    for name in joining.names:
        if name in known:
            what = "already in the run"
            got = f"the client {name!r}"
            raise DataError("in-use", "--data", what, found=got, allowed="only new clients")
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
        "[shift] determines which clients are present": config.shift is not None,
        "the noise of [privacy] was chosen for its clients": config.privacy is not None,
        "its attackers are a share of its clients": config.attack is not None,
        "some clients never train (evaluate.unseen)": config.evaluate.unseen is not None,
        "its true groups are known": population.planted is not None or bool(method.transform),
        "its clients are generated one by one": population.lazy,
        "its inputs are windows of series": bool(population.naive),
    }
    for reason, found in reasons.items():
        if found:
            what = f"new clients cannot join this run: {reason}"
            raise ConfigError("does-not-fit", "--data", what)


def _extended(parts: Partition, joining: JoiningClients, samples: int) -> Partition:
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
    """A checkpoint with a place for each client that has joined since, without a group: the method
    places it as any newcomer."""
    count = clients - len(checkpoint.groups.member)
    if count <= 0:
        return checkpoint
    grown = checkpoint.with_clients(clients)
    try:
        memory = grown.groups.memory.with_newcomers(count)
    except KeyError:
        what = f"{method} stores per-client values that cannot be extended"
        expected = "a method such as fedavg, fedgroup, flexcfl, ifca or fedclust"
        raise ConfigError(
            "does-not-fit", "algorithm.name", what, found=f"{count} new clients", allowed=expected
        ) from None
    return replace(grown, groups=replace(grown.groups, memory=memory))
