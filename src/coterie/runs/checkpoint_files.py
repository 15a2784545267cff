"""The checkpoints of a run folder: saved, forgotten, and the newest that a run can go on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from coterie.config.identity import differing
from coterie.core.groups import Groups
from coterie.errors import CheckpointError
from coterie.runs.checkpoint import (
    Checkpoint,
    OtherFormatError,
    find_checkpoints,
    read_checkpoint,
    write_checkpoint,
)
from coterie.runs.digests import read_config, read_digests, record_progress, settings
from coterie.runs.files import refuse_unwritable, remove_folder
from coterie.runs.row_file import RowFile
from coterie.terminal import warn


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
