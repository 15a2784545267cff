"""Checkpoints that survive a kill at any moment, and the newest that a run can resume from.

A checkpoint is a file of tensors that appears whole or not at all. The record of the run has its
SHA-256, and how many rows were written before it. So a damaged one is never taken for a whole one,
and by its seal not even in a folder that lost its record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, from_numpy

from coterie.config.identity import differing
from coterie.core.arrays import IntArray
from coterie.core.groups import NO_GROUP, Groups, Memory
from coterie.errors import CheckpointError, ConfigError
from coterie.runs.folder.digests import (
    Digests,
    changed_settings,
    consistent,
    read_checked,
    read_config,
    read_digests,
    read_seal,
    store_files,
    with_seal,
)
from coterie.runs.folder.rows import RowFile
from coterie.terminal import warn

PLACE = "checkpoints"
# Arrays with a value for each client, and the value of a client that has just joined.
PER_CLIENT: Mapping[str, int] = MappingProxyType({"since": -1})


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a resumed run starts from.

    Args:
        round: rounds done, so the next round to run.
        extra: further arrays by name, such as what clients keep.
        warnings: one line for each newer checkpoint that was damaged and passed over.
    """

    round: int
    groups: Groups
    extra: Mapping[str, Any]
    snapshot: Mapping[str, Tensor] = field(default_factory=dict)
    warnings: tuple[str, ...] = field(default=())

    @property
    def since(self) -> IntArray:
        """The round since which each client has had its group, int64 ``[N]``; -1 without one."""
        return np.asarray(self.extra["since"], np.int64)

    def with_clients(self, count: int) -> Checkpoint:
        """The same for the first ``count`` clients; those that it does not know have no group."""
        member = _resized(self.groups.member, count, NO_GROUP)
        known = {name: fill for name, fill in PER_CLIENT.items() if name in self.extra}
        resized = {name: _resized(self.extra[name], count, fill) for name, fill in known.items()}
        groups = replace(self.groups, member=member)
        return replace(self, groups=groups, extra={**self.extra, **resized})

    def data(self, config: Mapping[str, Any]) -> bytes:
        """The bytes of its file, with the configuration that the run was started with."""
        groups = self.groups
        named = {"models": groups.models, "member": _tensor(groups.member)}
        named |= _named("optimiser.", groups.optimiser)
        named |= _named("memory.", groups.memory.tensors())
        # Not every method has these two.
        if groups.start is not None:
            named["start"] = groups.start
        if groups.trained is not None:
            named["trained"] = _tensor(groups.trained)
        named |= _named("scene.", self.snapshot)
        named |= _named("extra.", {name: _tensor(array) for name, array in self.extra.items()})
        # Clones: safetensors refuses tensors that share memory, as views of one model do.
        data = save_tensors(
            {name: tensor.detach().clone().contiguous() for name, tensor in named.items()}
        )
        return with_seal(data, config, self.round)

    @classmethod
    def of_data(cls, round: int, data: bytes) -> Checkpoint:
        """The checkpoint of a file."""
        tensors = load_tensors(data)
        trained = None
        if "trained" in tensors:
            trained = tensors["trained"].numpy()
        groups = Groups(
            tensors["models"],
            tensors["member"].numpy(),
            _below("optimiser.", tensors),
            Memory(saved=_below("memory.", tensors)),
            tensors.get("start"),
            trained,
        )
        extra = {name: tensor.numpy() for name, tensor in _below("extra.", tensors).items()}
        return cls(round, groups, extra, _below("scene.", tensors))


def _tensor(array: Any) -> Tensor:
    # Not `numpy.ascontiguousarray`, which gives a number a dimension.
    return from_numpy(np.asarray(array, order="C"))


def _resized(values: IntArray, count: int, fill: int) -> IntArray:
    new = np.full(max(0, count - len(values)), fill)
    return np.append(values[:count], new)


def _named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    found = {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
    return MappingProxyType(found)


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The checkpoints of a run."""

    folder: Path

    def all(self) -> list[int]:
        """The rounds done at each, in their order; none of them is checked."""
        return [round for round, _ in read_digests(self.folder).checkpoints()]

    def save(self, checkpoint: Checkpoint, keep: int = 2) -> Path:
        """Save a checkpoint; the last ``keep`` stay."""
        data = checkpoint.data(read_digests(self.folder).config)
        name = f"{PLACE}/round-{checkpoint.round:06d}.safetensors"
        rows = RowFile(self.folder)

        def finish(digests: Digests) -> Digests:
            # Rows are synced first: a checkpoint whose rows are lost could not be resumed.
            count, chain = rows.sync()
            old = [name for _, name in digests.checkpoints()[: -max(1, keep)]]
            return replace(digests.without(old), rows=count, chain=chain)

        store_files(self.folder, {name: data}, finish)
        self.clear()
        return self.folder / name

    def clear(self) -> None:
        """Remove the files that the record does not know: older ones, and what a kill left."""
        known = {name for _, name in read_digests(self.folder).checkpoints()}
        for file in (self.folder / PLACE).iterdir():
            if f"{PLACE}/{file.name}" not in known:
                file.unlink()

    def latest(self, resolved: Mapping[str, Any] | None = None) -> Checkpoint | None:
        """The newest valid checkpoint, with a warning if a newer one is damaged; ``None`` if none
        was ever written.

        Raises:
            CheckpointError: if all are damaged, or the run has another format or configuration
                than ``resolved``, by default the folder's own.
        """
        found = consistent(self.folder, self._latest)
        if found is None:
            return None
        # Not by a hash, which cannot say which settings differ.
        digests = read_digests(self.folder)
        keys = differing(digests.config, digests.as_started(resolved or read_config(self.folder)))
        if keys:
            raise changed_settings(self.folder, keys)
        for line in found.warnings:
            warn(line)
        return found

    def saved(self) -> Checkpoint:
        """The `latest` one of a run that has to have one.

        Raises:
            ConfigError: if none was ever written.
        """
        found = self.latest()
        if found is None:
            expected = "a run that has saved a checkpoint"
            raise ConfigError("not-found", self.folder, "no model yet", allowed=expected)
        return found

    def _latest(self) -> Checkpoint | None:
        digests = read_digests(self.folder)
        broken: list[str] = []
        for round, name in reversed(digests.checkpoints()):
            try:
                found = self._read(round, name, digests)
            except CheckpointError as error:
                broken.append(str(error))
                continue
            warnings = tuple(f"{line}; the previous one is used" for line in broken)
            return replace(found, warnings=warnings)
        if broken:
            got = ", ".join(broken)
            raise CheckpointError("damaged", self.folder, "no valid checkpoint", found=got)
        return None

    def _read(self, round: int, name: str, digests: Digests) -> Checkpoint:
        # Read once. The tensors are taken from the bytes that were checked: safetensors has no
        # checksum and loads many damaged files without a word.
        data = read_checked(self.folder, name, digests)
        assert data is not None, "the record has it"
        # A record that was rebuilt has the digest of whatever the folder had.
        if read_seal(data, round) is None:
            got = f"bytes that are not those of round {round}"
            expected = "the file of the run"
            raise CheckpointError("damaged", self.folder / name, found=got, allowed=expected)
        return Checkpoint.of_data(round, data)
