"""Checkpoints that survive a kill at any moment, and the newest that a run can go on from.

A checkpoint is a folder written under a temporary name, its files and itself fsynced, then renamed
into place. Its manifest holds the size and SHA-256 of every file and of itself, so a damaged one is
never taken for a whole one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from coterie.config.identity import config_hash, differing
from coterie.core.groups import Groups, Memory
from coterie.errors import CheckpointError
from coterie.runs.folder.digests import read_config, read_digests, record_progress, settings
from coterie.runs.folder.files import (
    plain,
    read_sealed,
    refuse_unwritable,
    remove_folder,
    sealed,
    sync_folder,
    write_synced,
)
from coterie.runs.folder.rows import RowFile
from coterie.terminal import warn

FORMAT = 2  # of the files; goes up whenever another version could not read them
STATE = "state.safetensors"
MANIFEST = "manifest.json"
NAME = re.compile(r"round-(\d{6,})\Z")


class OtherFormatError(CheckpointError):
    """A whole checkpoint that another version of Coterie wrote."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a resumed run starts from.

    Args:
        round: rounds done, so the next round to run.
        snapshot: the tensors of a shifted federation, see ``coterie.data.shifts``.
        warnings: one line for each newer checkpoint that was damaged and passed over.
    """

    round: int
    groups: Groups
    extra: Mapping[str, Any]
    snapshot: Mapping[str, Tensor] = field(default_factory=dict)
    warnings: tuple[str, ...] = field(default=())


def find_checkpoints(parent: Path) -> list[tuple[int, Path]]:
    """The checkpoints in a folder with the rounds that they are of, oldest first."""
    if not parent.is_dir():
        return []
    found = []
    for entry in parent.iterdir():
        match = NAME.match(entry.name)
        if match:
            found.append((int(match[1]), entry))
    return sorted(found)


def write_checkpoint(parent: Path, checkpoint: Checkpoint, resolved: Mapping[str, Any]) -> Path:
    """Write a checkpoint into a folder; it appears whole or not at all.

    Args:
        checkpoint: arrays of its ``extra`` go beside the state, the rest into the manifest.
    """
    place = parent / f"round-{checkpoint.round:06d}"
    # Beside its place, since a rename is atomic within one file system only.
    hidden = place.with_name(f".{place.name}.tmp-{os.getpid()}")
    for left_by_a_kill in parent.glob(".round-*.tmp-*"):
        shutil.rmtree(left_by_a_kill, ignore_errors=True)
    hidden.mkdir(parents=True)
    # Bytes first: the digest in the manifest is of what is written, not of what is read back.
    state = save_tensors(_tensors(checkpoint))
    try:
        write_synced(hidden / STATE, state)
        write_synced(hidden / MANIFEST, _manifest(checkpoint, resolved, state))
        # Files before the name. Otherwise a power cut may leave a folder of the right name whose
        # files are empty; of 20 runs killed while they wrote in place, 16 left a file that nobody
        # could read.
        sync_folder(hidden)
    except OSError:
        # A full disk: what was written of this one is room for something else.
        shutil.rmtree(hidden, ignore_errors=True)
        raise
    # Of an earlier attempt, after which the run went back to an older checkpoint. No folder can be
    # renamed onto one that is not empty.
    if place.exists():
        remove_folder(place)
    hidden.rename(place)
    sync_folder(parent)
    return place


def read_checkpoint(folder: Path, round: int) -> tuple[Checkpoint, dict[str, Any]]:
    """A checkpoint and its manifest; every byte of both was checked.

    Raises:
        OtherFormatError: if another version wrote it.
        CheckpointError: if it is damaged, or not of this round.
        OSError: if a file of it cannot be read.
    """
    manifest = _read_manifest(folder / MANIFEST, round)
    # Read once. The tensors are taken from the very bytes that were checked: safetensors has no
    # checksum and loads many damaged files without a word.
    state = (folder / STATE).read_bytes()
    if manifest["files"] != {STATE: _digest(state)}:
        raise CheckpointError(f"{STATE} does not match its checksum")
    try:
        tensors = load_tensors(state)
        groups = Groups(
            tensors["models"],
            tensors["member"].numpy(),
            _below("optimiser.", tensors),
            Memory.from_tensors(_below("memory.", tensors)),
            # Not every method has these two.
            tensors.get("start"),
            tensors["trained"].numpy() if "trained" in tensors else None,
        )
    except (SafetensorError, KeyError) as error:
        raise CheckpointError(f"{STATE} cannot be read: {error}") from None
    # Arrays stand beside the state, since numbers of JSON would lose their type.
    arrays = {name: array.numpy() for name, array in _below("extra.", tensors).items()}
    extra = {**manifest["extra"], **arrays}
    return Checkpoint(round, groups, extra, _below("scene.", tensors)), manifest


def _tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    groups = checkpoint.groups
    named = {
        "models": groups.models,
        "member": torch.from_numpy(np.ascontiguousarray(groups.member)),
    }
    named |= _named("optimiser.", groups.optimiser)
    named |= _named("memory.", groups.memory.tensors())
    if groups.start is not None:
        named["start"] = groups.start
    if groups.trained is not None:
        named["trained"] = torch.from_numpy(np.ascontiguousarray(groups.trained))
    named |= _named("scene.", checkpoint.snapshot)
    for name, value in checkpoint.extra.items():
        if isinstance(value, np.ndarray):
            named[f"extra.{name}"] = torch.from_numpy(np.ascontiguousarray(value))
    # Clones: safetensors refuses tensors that share memory, as views of one model do.
    return {name: tensor.detach().clone().contiguous() for name, tensor in named.items()}


def _named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    found = {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
    return MappingProxyType(found)


def _manifest(checkpoint: Checkpoint, resolved: Mapping[str, Any], state: bytes) -> bytes:
    extra = {
        name: value for name, value in checkpoint.extra.items() if not isinstance(value, np.ndarray)
    }
    body = {
        "schema": FORMAT,
        "round": checkpoint.round,
        # The whole of it, so that a changed configuration is refused by the keys that differ.
        "config": dict(resolved),
        "config_hash": config_hash(resolved),
        "files": {STATE: _digest(state)},
        "extra": plain(extra),
    }
    return sealed(body)


def _read_manifest(file: Path, round: int) -> dict[str, Any]:
    manifest = read_sealed(file.read_bytes())
    if manifest is None:
        raise CheckpointError(f"{MANIFEST} does not match its checksum")
    if manifest["schema"] != FORMAT:
        found = f"another format, got {manifest['schema']!r}"
        raise OtherFormatError(f"{file}: {found}; expected {FORMAT}, that of this version")
    if manifest["round"] != round:
        raise CheckpointError(f"{MANIFEST} is of round {manifest['round']}")
    return manifest


def _digest(data: bytes) -> dict[str, str | int]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The checkpoints of a run."""

    folder: Path

    @property
    def place(self) -> Path:
        """The folder that holds them."""
        return self.folder / "checkpoints"

    @property
    def _rows(self) -> RowFile:
        return RowFile(self.folder)

    def all(self) -> list[tuple[int, Path]]:
        """The rounds done and the folder of each, in their order; none of them is checked."""
        return find_checkpoints(self.place)

    def forget_after(self, round: int) -> None:
        """Remove the checkpoints after a round."""
        # They are of rounds that are run once more, and could be taken for newer than what comes.
        for at, folder in self.all():
            if at > round:
                remove_folder(folder)

    def save(
        self,
        groups: Groups,
        round: int,
        extra: Mapping[str, Any],
        keep: int = 2,
        snapshot: Mapping[str, Tensor] | None = None,
    ) -> Path:
        """Save the state after ``round`` rounds; the last ``keep`` checkpoints stay.

        Args:
            extra: anything JSON; arrays go beside the state.
        """
        checkpoint = Checkpoint(round, groups, extra, snapshot or {})
        with refuse_unwritable(self.folder):
            # Rows are synced first: a checkpoint whose rows are lost could not be resumed.
            self._rows.sync()
            resolved = settings(self.folder)
            place = write_checkpoint(self.place, checkpoint, resolved)
            record_progress(self.folder, self._rows.end(), round)
            # Removed last: until the new one is whole, the old ones stay.
            for _, old in self.all()[: -max(1, keep)]:
                remove_folder(old)
        return place

    def latest(self, resolved: Mapping[str, Any] | None = None) -> Checkpoint | None:
        """The newest valid checkpoint; ``None`` if none was ever written.

        An older one is used where the newest is damaged or gone, and a warning says so.

        Args:
            resolved: the configuration to go on with, default the folder's own.

        Raises:
            CheckpointError: if every checkpoint is damaged, or the newest valid one is of another
                configuration or format.
        """
        broken = self._missing_checkpoint()
        for round, folder in reversed(self.all()):
            try:
                checkpoint, manifest = read_checkpoint(folder, round)
            except OtherFormatError:
                raise
            except (CheckpointError, OSError) as error:
                broken.append(f"{folder}: damaged ({error})")
                continue
            self._check_config(manifest, resolved or read_config(self.folder))
            warnings = tuple(f"{line}; the one before it is used" for line in broken)
            for line in warnings:
                warn(line)
            return replace(checkpoint, warnings=warnings)
        if broken:
            got = ", ".join(broken)
            raise CheckpointError(
                f"{self.folder}: no valid checkpoint, got {got}; expected one that is whole"
            )
        return None

    def _missing_checkpoint(self) -> list[str]:
        """A line where the newest checkpoint that the run recorded is gone."""
        digests = read_digests(self.folder)
        if digests is None or not digests.checkpoint:
            return []
        newest = max((round for round, _ in self.all()), default=0)
        if newest >= digests.checkpoint:
            return []
        return [f"{self.folder / 'checkpoints'}: the one of round {digests.checkpoint} is missing"]

    def _check_config(self, manifest: Mapping[str, Any], resolved: Mapping[str, Any]) -> None:
        # Not by the hash, which cannot say which settings differ.
        digests = read_digests(self.folder)
        if digests is not None:
            resolved = digests.as_started(resolved)
        keys = ", ".join(differing(manifest["config"], resolved))
        if keys:
            raise CheckpointError(
                f"{self.folder}: the configuration was changed, got other values of {keys}; "
                "expected those that the run was started with"
            )
