"""What a run carries from round to round, and starts from when it is resumed: the state, and what
the clients of a simulation keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from torch import Tensor

from coterie.clients.clients import Clients
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.keep import ClientStore, KeptState
from coterie.data.population import Population
from coterie.data.shifts import FederationSnapshot
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.store import RunFolder
from coterie.runs.loop import RoundResult
from coterie.runs.spec import RunSpec

# The names in a checkpoint: a field that is renamed is no longer found in older ones.
KEPT = tuple(field.name for field in fields(KeptState))
OWN_MODELS = "own_models."


@dataclass(slots=True)
class Progress:
    """How far a run is.

    Args:
        since: int64 ``[N]``, the round since which each client has had its group, -1 without one.
        skipped: rounds skipped in a row.
        waited: seconds that those took.
        saved: rounds of the newest checkpoint, -1 without one.
    """

    round: int
    groups: Groups | None
    since: IntArray
    skipped: int = 0
    waited: float = 0.0
    saved: int = -1
    snapshot: FederationSnapshot | None = None

    @classmethod
    def start(cls, clients: int) -> Progress:
        """That of a run of so many clients before its first round."""
        return cls(0, None, np.full(clients, -1))

    @classmethod
    def resume(
        cls, population: Population, checkpoint: Checkpoint, rows: Sequence[Mapping[str, Any]]
    ) -> Progress:
        """That of a checkpoint, and of the rows before it."""
        done = checkpoint.round
        snapshot = None
        if checkpoint.snapshot:
            snapshot = FederationSnapshot.restore(population, checkpoint.snapshot)
        groups = checkpoint.groups
        progress = cls(done, groups, checkpoint.since, saved=done, snapshot=snapshot)
        # From the rows, not from a clock: time in which the run was stopped is no time of waiting.
        for row in rows:
            progress._count_skipped(row)
        return progress

    def checkpoint(
        self, spec: RunSpec, kept: Mapping[str, Any], *, with_snapshot: bool = True
    ) -> Checkpoint:
        """What `resume` continues from. Who holds which data is in it where data move.

        Args:
            kept: what clients keep, `kept_arrays`.
            with_snapshot: ``False`` for real clients, which know by themselves what they hold.
        """
        assert self.groups is not None, "a run has one round at least"
        extra = {"since": self.since, **kept}
        snapshot: Mapping[str, Tensor] = {}
        if with_snapshot and spec.schedule.shift is not None and self.snapshot is not None:
            snapshot = self.snapshot.tensors(spec.population)
        return Checkpoint(self.round, self.groups, extra, snapshot)

    def advance(self, result: RoundResult) -> None:
        """A round is done and its row is stored."""
        self.since = self._since(result)
        self.round = result.round + 1
        self.groups = result.groups
        self.snapshot = result.snapshot
        self._count_skipped(result.row)

    def place(self, groups: Groups) -> None:
        """Clients without labels have found their groups after the last round."""
        assert self.groups is not None, "clients are placed after a round"
        moved = groups.member != self.groups.member
        self.since = np.where(moved, self.round - 1, self.since)
        self.groups = groups
        # The checkpoint of the last round, where there is one, does not have them yet.
        self.saved = -1

    def _since(self, result: RoundResult) -> IntArray:
        """The round since which each client has had its group after this round."""
        member = result.groups.member
        if self.groups is None:
            return np.where(member < 0, -1, result.round)
        before = self.groups.member
        if member is before:
            return self.since
        # A client that comes back to a group is counted again from then.
        moved = np.flatnonzero(member != before)
        since = self.since.copy()
        since[moved] = np.where(member[moved] < 0, -1, result.round)
        return since

    def _count_skipped(self, row: Mapping[str, Any]) -> None:
        if row.get("skipped"):
            self.skipped += 1
            self.waited += (row.get("seconds") or {}).get("total", 0.0)
        else:
            self.skipped = 0
            self.waited = 0.0


def make_progress(
    spec: RunSpec, folder: RunFolder, checkpoint: Checkpoint | None, *, resume: bool
) -> Progress:
    """Where a run starts. If it is resumed, rows after the checkpoint are forgotten."""
    rows = []
    if resume:
        rows = folder.rewind(checkpoint.round if checkpoint else 0)
    if checkpoint is None:
        return Progress.start(spec.population.clients)
    return Progress.resume(spec.population, checkpoint, rows)


def kept_arrays(clients: Clients) -> dict[str, Any]:
    """The arrays of what clients keep, by their names in a checkpoint; empty if they keep nothing."""
    found: dict[str, Any] = {}
    for prefix, store in _stores(clients).items():
        kept = store.state()
        # Most methods keep nothing, and their checkpoints need no empty arrays.
        if len(kept.ids):
            found |= {f"{prefix}{name}": getattr(kept, name) for name in KEPT}
    return found


def restore_kept(clients: Clients, extra: Mapping[str, Any]) -> None:
    """Give clients back what they kept."""
    for prefix, store in _stores(clients).items():
        kept = kept_state(extra, prefix)
        if len(kept.ids):
            store.restore(kept)


def kept_state(extra: Mapping[str, Any], prefix: str = "") -> KeptState:
    """What clients keep of their models, or with the prefix `OWN_MODELS` for a model of their own,
    from a checkpoint; nothing for most methods."""
    names = [f"{prefix}{name}" for name in KEPT]
    if all(name in extra for name in names):
        return KeptState(*(extra[name] for name in names))
    return KeptState(
        np.empty(0, np.int64), np.empty((0, 0), np.float32), np.empty((0, 2), np.int64)
    )


def _stores(clients: Clients) -> dict[str, ClientStore]:
    """What the clients of a simulation store, by the beginning of its names in a checkpoint."""
    stores = {"": clients.stores.parts, OWN_MODELS: clients.stores.own_models}
    if clients.stores.networks is not None:
        stores["local_networks."] = clients.stores.networks
    return stores
