"""Run folders: what a run writes, and what a resumed run starts from."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from safetensors.torch import save as save_tensors
from torch import Tensor

from coterie.config.identity import differing
from coterie.config.reading import load_config
from coterie.config.tables import RunConfig
from coterie.config.trust import require_trust
from coterie.core.arrays import EMPTY, FloatArray, IntArray
from coterie.core.csv_text import csv_text
from coterie.core.groups import Groups
from coterie.core.vectors import Layout, state_dict
from coterie.errors import CheckpointError, ConfigError
from coterie.headline import ACCURACY, Headline
from coterie.runs import digests as record
from coterie.runs.checkpoint import (
    FORMAT,
    Checkpoint,
    find_checkpoints,
    read_checkpoint,
    write_checkpoint,
)
from coterie.runs.digests import CLIENTS, CONFIG, GROUPS, HEADLINE, PARTITION, SUMMARY, Digests
from coterie.runs.files import (
    MALFORMED,
    canonical_json,
    damaged,
    plain,
    refuse_unwritable,
    remove_folder,
    write_synced,
)
from coterie.runs.lock import locked
from coterie.runs.row_file import RowFile
from coterie.runs.rows import Row
from coterie.terminal import warn


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run. Names of clients and of anything else that was read are never names of
    files.

    Args:
        path: the folder; make one with `RunFolder.create`, or `RunFolder.open` one.
    """

    path: Path

    # --- making and opening -----------------------------------------------------------------------

    @classmethod
    def create(
        cls, path: Path | str, resolved: Mapping[str, Any], partition: bytes | None = None
    ) -> RunFolder:
        """Make the folder of a new run; it appears whole or not at all.

        Args:
            path: where there is nothing yet.
            resolved: the configuration.
            partition: the bytes of ``partition.npz``; a run of real clients writes it later.

        Raises:
            ConfigError: if there is something at ``path`` already.
        """
        target = Path(path)
        cls.check_free(target)
        # Under another name until the configuration is in it: no other command takes half a
        # folder for a run.
        hidden = target.parent / f".{target.name}.tmp-{os.getpid()}"
        try:
            (hidden / "checkpoints").mkdir(parents=True)
            write_synced(hidden / CONFIG, tomli_w.dumps(resolved).encode())
            files = {} if partition is None else {PARTITION: partition}
            record.new_digests(hidden, resolved, files)
            hidden.rename(target)
        except OSError as error:
            shutil.rmtree(hidden, ignore_errors=True)
            what = f"cannot be written ({error.strerror}), got {target}"
            raise ConfigError(f"out: {what}; expected a folder that can be made") from None
        return cls(target)

    @staticmethod
    def check_free(path: Path) -> None:
        """Refuse a path where a new run cannot go.

        Raises:
            ConfigError: if there is something at ``path`` already.
        """
        if (path / CONFIG).exists():
            expected = f"a new folder, or `coterie resume {path}`"
            raise ConfigError(f"out: holds a run already, got {path}; expected {expected}")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(f"out: not empty, got {path}; expected a new folder")

    @classmethod
    def create_next(
        cls,
        parent: Path | str,
        stem: str,
        resolved: Mapping[str, Any],
        partition: bytes | None = None,
    ) -> RunFolder:
        """Make ``<parent>/<stem>-<n>`` with the first free number ``n``."""
        # An algorithm may be called `module:factory`, and a name is never part of a path.
        safe = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-") or "run"
        number = 1
        while (Path(parent) / f"{safe}-{number}").exists():
            number += 1
        return cls.create(Path(parent) / f"{safe}-{number}", resolved, partition)

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """The folder of a run that is there.

        Raises:
            ConfigError: if it holds no run.
        """
        if not (Path(path) / CONFIG).is_file():
            expected = f"the folder of a run, {_runs_near(Path(path))}"
            raise ConfigError(f"run: no run, got {str(path)!r}; expected {expected}")
        return cls(Path(path))

    @property
    def resolved(self) -> dict[str, Any]:
        """The configuration that the folder holds now.

        Raises:
            ConfigError: if it is no TOML.
        """
        return record.read_config(self.path)

    def config(self, values: Mapping[str, Any] = EMPTY, *, trust: bool = False) -> RunConfig:
        """The configuration of the run, checked, which imports the code that it names.

        Args:
            values: key path -> value, in place of those of the folder; ``None`` sets nothing.
            trust: run that code though it is not known to be the user's own.

        Raises:
            ConfigError: if it is not valid, or names code that is not trusted.
        """
        require_trust(self.path, self.resolved, trusted=trust)
        return load_config(self.path / CONFIG, (), values)

    @property
    def digests(self) -> Digests | None:
        """What the run recorded of its files; ``None`` in a folder of an earlier version.

        Raises:
            CheckpointError: if the record is damaged.
        """
        return record.read_digests(self.path)

    def write_headline(self, headline: Headline) -> None:
        """``headline.json``: what the run is measured by, where that is not accuracy."""
        if headline != ACCURACY:
            self.write({HEADLINE: canonical_json(headline.record()) + b"\n"})

    @property
    def headline(self) -> Headline:
        """What the run is measured by.

        Raises:
            CheckpointError: if its file is damaged.
        """
        data = self.file(HEADLINE)
        if data is None:
            return ACCURACY
        try:
            return Headline.of(json.loads(data))
        except (*MALFORMED, RecursionError) as error:
            raise damaged(self.path / HEADLINE, error) from None

    def locked(self) -> AbstractContextManager[None]:
        """The right to write the folder, held inside; one process has it at a time.

        Raises:
            InUseError: if another process has it; it says which.
            CheckpointError: if the folder cannot be written.
        """
        return locked(self.path)

    # --- rounds -----------------------------------------------------------------------------------

    @property
    def row_file(self) -> RowFile:
        """The file ``rounds.jsonl``."""
        return RowFile(self.path)

    def append_round(self, row: Mapping[str, Any]) -> None:
        """Add one row to ``rounds.jsonl``, at once. What is not finite becomes ``null``.

        Raises:
            CheckpointError: if it cannot be written.
        """
        with refuse_unwritable(self.path):
            self.row_file.append(plain(row))

    def rows(self) -> list[Row]:
        """The rows so far; a last line that a kill tore is left out.

        Raises:
            CheckpointError: if a line is damaged, missing, or of another run.
        """
        return self.row_file.read()

    def rewind(self, round: int) -> list[Row]:
        """Forget the rows and the checkpoints after a round; returns the rows that are left.

        Raises:
            CheckpointError: if rows before that round are missing, or cannot be written.
        """
        with refuse_unwritable(self.path):
            rows = self.row_file.rewind(round)
            # They are of rounds that are run once more, and could be taken for newer than what
            # comes.
            for at, folder in self._checkpoints():
                if at > round:
                    remove_folder(folder)
        return rows

    # --- other files ------------------------------------------------------------------------------

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write files of the run, whole at any moment, and record their digests.

        Raises:
            CheckpointError: if they cannot be written.
        """
        with refuse_unwritable(self.path):
            record.store(self.path, files)

    def file(self, name: str) -> bytes | None:
        """The bytes of a file of the run; ``None`` where the run wrote none.

        Raises:
            CheckpointError: if the file is missing or damaged.
        """
        return record.checked(self.path, name)

    @property
    def partition(self) -> Path:
        """The file that says who holds which samples, checked; it may be missing.

        Raises:
            CheckpointError: if it is damaged, or of another run.
        """
        self.file(PARTITION)
        return self.path / PARTITION

    def write_groups(self, names: Sequence[str], member: IntArray, since: IntArray) -> None:
        """``groups.csv``: client, group (-1: none), the round since which it has been there (-1:
        never)."""
        rows = zip(names, member.tolist(), since.tolist(), strict=True)
        self.write({GROUPS: _csv(["client", "group", "since_round"], rows)})

    def write_clients(
        self,
        names: Sequence[str],
        member: IntArray,
        size: IntArray,
        column: str,
        values: FloatArray,
    ) -> None:
        """``clients.csv``: client, group, its test samples, and what its model makes of them.

        Args:
            names: of the clients.
            member: int64 ``[N]``, their groups.
            size: int64 ``[N]``, their test samples.
            column: ``correct``, or the name of the task's headline.
            values: ``[N]``, correct predictions, or the headline of each client.
        """
        header = ["client", "group", "test_samples", column]
        shown: list[object] = values.tolist()
        if column == "correct":
            shown = values.astype(np.int64).tolist()
        rows = zip(names, member.tolist(), size.tolist(), shown, strict=True)
        self.write({CLIENTS: _csv(header, rows)})

    def clients(self, column: str = "correct") -> tuple[FloatArray, IntArray] | None:
        """What each client's model reached at the end, and its test samples: ``[N]`` both.

        ``None`` for a run that is not done, or was done by a version that did not write it.

        Args:
            column: ``correct`` for correct predictions, or the name of the task's headline.

        Raises:
            CheckpointError: if the file is damaged.
        """
        data = self.file(CLIENTS)
        if data is None:
            return None
        try:
            lines = io.StringIO(data.decode("utf-8"), newline="")
            rows = list(csv.DictReader(lines))
            values = np.array([float(row[column]) for row in rows], np.float64)
            # Not by way of a float: a number of 20 digits must be refused and not wrapped.
            samples = np.array([int(row["test_samples"]) for row in rows], np.int64)
        except (*MALFORMED, csv.Error) as error:
            raise damaged(self.path / CLIENTS, error) from None
        return values, samples

    def write_models(self, layout: Layout, models: Tensor) -> None:
        """``models/group-<j>.safetensors``: the named tensors of each group's model."""
        files = {}
        for j, vector in enumerate(models):
            # Views of one vector; safetensors takes whole tensors only.
            tensors = {name: t.contiguous() for name, t in state_dict(layout, vector).items()}
            files[f"models/group-{j}.safetensors"] = save_tensors(tensors)
        self.write(files)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """``summary.json``."""
        text = json.dumps(plain(summary), indent=2, allow_nan=False, ensure_ascii=False)
        # Names that were read may hold halves of surrogate pairs, which UTF-8 cannot.
        self.write({SUMMARY: text.encode("utf-8", "backslashreplace") + b"\n"})

    def summary(self) -> dict[str, Any] | None:
        """What ``summary.json`` holds, ``None`` before the end of the run.

        Raises:
            CheckpointError: if it is damaged.
        """
        data = self.file(SUMMARY)
        if data is None:
            return None
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise damaged(self.path / SUMMARY, error) from None

    # --- checkpoints ------------------------------------------------------------------------------

    def save_checkpoint(
        self,
        groups: Groups,
        round: int,
        extra: Mapping[str, Any],
        keep: int = 2,
        snapshot: Mapping[str, Tensor] | None = None,
    ) -> Path:
        """Save the state after ``round`` rounds; the last ``keep`` checkpoints stay.

        Args:
            groups: all of it is saved.
            round: rounds done.
            extra: anything JSON; arrays go beside the state.
            keep: how many checkpoints stay, this one among them.
            snapshot: tensors of a shifted federation.
        """
        checkpoint = Checkpoint(round, groups, extra, snapshot or {})
        with refuse_unwritable(self.path):
            # Rows are synced first: a checkpoint whose rows are lost could not be resumed.
            self.row_file.sync()
            settings = record.settings(self.path)
            place = write_checkpoint(self.path / "checkpoints", checkpoint, settings)
            record.record_progress(self.path, self.row_file.end(), round)
            # Removed last: until the new one is whole, the old ones stay.
            for _, old in self._checkpoints()[: -max(1, keep)]:
                remove_folder(old)
        return place

    def latest_checkpoint(self, resolved: Mapping[str, Any] | None = None) -> Checkpoint | None:
        """The newest valid checkpoint; ``None`` if none was ever written.

        An older one is used where the newest is damaged or gone, and a warning says so.

        Args:
            resolved: the configuration to go on with, default the folder's own.

        Raises:
            CheckpointError: if every checkpoint is damaged, or the newest valid one is of another
                configuration.
        """
        broken = self._missing_checkpoint()
        most = None
        if resolved is not None:
            most = self.row_file.mendable()
        for round, folder in reversed(self._checkpoints()):
            if most is not None and round > most:
                broken.append(f"{folder}: only the rows of {most} rounds can be mended")
                continue
            try:
                checkpoint, manifest = read_checkpoint(folder, round)
            except (CheckpointError, OSError) as error:
                broken.append(f"{folder}: damaged ({error})")
                continue
            # Only a run that goes on; version 0.1's may still be shown, reported and exported.
            if resolved is not None:
                self._check_format(manifest)
            self._check_config(manifest, resolved or self.resolved)
            warnings = tuple(f"{line}; the one before it is used" for line in broken)
            for line in warnings:
                warn(line)
            return replace(checkpoint, warnings=warnings)
        if most is not None:
            warn(f"{self.path}: no checkpoint whose rows are there; the run begins anew")
            return None
        if broken:
            got = ", ".join(broken)
            raise CheckpointError(
                f"{self.path}: no valid checkpoint, got {got}; expected one that is whole"
            )
        return None

    def _missing_checkpoint(self) -> list[str]:
        """A line where the newest checkpoint that the run recorded is gone."""
        digests = self.digests
        if digests is None or not digests.checkpoint:
            return []
        newest = max((round for round, _ in self._checkpoints()), default=0)
        if newest >= digests.checkpoint:
            return []
        return [f"{self.path / 'checkpoints'}: the one of round {digests.checkpoint} is missing"]

    def _check_format(self, manifest: Mapping[str, Any]) -> None:
        """A run does not go on from a state that an older version wrote in another form."""
        if manifest["schema"] != FORMAT:
            raise CheckpointError(
                f"{self.path}: a run of version 0.1, got a checkpoint of format "
                f"{manifest['schema']}; expected format {FORMAT}: run it anew, or resume it with "
                "version 0.1"
            )

    def _check_config(self, manifest: Mapping[str, Any], resolved: Mapping[str, Any]) -> None:
        # Not by the hash: version 0.1 had the options for migration in another table.
        keys = ", ".join(differing(manifest["config"], resolved))
        if keys:
            raise CheckpointError(
                f"{self.path}: the configuration was changed, got other values of {keys}; "
                "expected those that the run was started with"
            )

    def _checkpoints(self) -> list[tuple[int, Path]]:
        return find_checkpoints(self.path / "checkpoints")


def _csv(header: Sequence[object], rows: Iterable[Sequence[object]]) -> bytes:
    """A table as CSV."""
    # Names of clients come from the data: what is no UTF-8 in them is written with a backslash.
    return csv_text(header, rows).encode("utf-8", "backslashreplace")


def _runs_near(path: Path, most: int = 4) -> str:
    """What runs there are, in a folder that is none itself or in ``runs``, or how to make one."""
    found: list[Path] = []
    for folder in (path, Path("runs")):
        if not found and folder.is_dir():
            found = sorted(file.parent for file in folder.glob("*/config.toml"))
    if not found:
        return "which `coterie run CONFIG.toml` makes"
    names = [str(run) for run in found[:most]]
    if len(found) > most:
        names.append("...")
    return f"as {', '.join(names)}"
