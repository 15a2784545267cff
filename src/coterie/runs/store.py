"""Run folders: what a run writes, and what a resumed run starts from."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from safetensors.torch import save as save_tensors
from torch import Tensor

from coterie.config.identity import differing
from coterie.config.reading import read
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.vectors import Layout, state_dict
from coterie.errors import CheckpointError, ConfigError
from coterie.runs.checkpoint import (
    FORMAT,
    Checkpoint,
    find_checkpoints,
    read_checkpoint,
    write_checkpoint,
)
from coterie.runs.files import (
    damaged,
    json_line,
    plain,
    remove_folder,
    replace_csv,
    replace_file,
    sync_file,
    write_synced,
)

NODES = "nodes.json"  # of a run of real clients: who they are and what they work on


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
    def create(cls, path: Path | str, resolved: Mapping[str, Any]) -> RunFolder:
        """Make the folder of a new run, with its ``config.toml``; it appears whole or not at all.

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
            write_synced(hidden / "config.toml", tomli_w.dumps(resolved).encode())
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
        if (path / "config.toml").exists():
            expected = f"a new folder, or `coterie resume {path}`"
            raise ConfigError(f"out: holds a run already, got {path}; expected {expected}")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(f"out: not empty, got {path}; expected a new folder")

    @classmethod
    def create_next(cls, parent: Path | str, stem: str, resolved: Mapping[str, Any]) -> RunFolder:
        """Make ``<parent>/<stem>-<n>`` with the first free number ``n``."""
        # An algorithm may be called `module:factory`, and a name is never part of a path.
        safe = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-") or "run"
        number = 1
        while (Path(parent) / f"{safe}-{number}").exists():
            number += 1
        return cls.create(Path(parent) / f"{safe}-{number}", resolved)

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """The folder of a run that is there.

        Raises:
            ConfigError: if it holds no run.
        """
        if not (Path(path) / "config.toml").is_file():
            expected = f"the folder of a run, {_runs_near(Path(path))}"
            raise ConfigError(f"run: no run, got {str(path)!r}; expected {expected}")
        return cls(Path(path))

    @property
    def resolved(self) -> dict[str, Any]:
        """The configuration that the folder holds now.

        Raises:
            ConfigError: if it is no TOML.
        """
        return read(self.path / "config.toml")

    # --- rounds -----------------------------------------------------------------------------------

    @property
    def _rows(self) -> Path:
        return self.path / "rounds.jsonl"

    def append_round(self, row: Mapping[str, Any]) -> None:
        """Add one row to ``rounds.jsonl``, at once. What is not finite becomes ``null``."""
        # Appended and not synced, which would cost more than a short round: a checkpoint syncs the
        # rows before it, and later ones are computed again.
        with self._rows.open("ab") as file:
            file.write(json_line(plain(row)))

    def rows(self) -> list[dict[str, Any]]:
        """The rows so far; a last line that a kill tore is left out.

        Raises:
            CheckpointError: if a line before the last is damaged.
        """
        if not self._rows.exists():
            return []
        # After the last newline stands nothing, or a line that a kill tore.
        lines = self._rows.read_bytes().split(b"\n")[:-1]
        found = []
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                found.append({**row, "round": int(row["round"])})
            except (ValueError, TypeError, KeyError, RecursionError):
                # A power cut may also tear the last line with its newline; only a hole
                # before it is damage.
                if number < len(lines):
                    what = f"line {number}: damaged, got {line[:40]!r}"
                    message = f"{self._rows}: {what}; expected one JSON object a line"
                    raise CheckpointError(message) from None
        return found

    def rewind(self, round: int) -> list[dict[str, Any]]:
        """Forget the rows and the (damaged) checkpoints after a round; returns the rows that are
        left.

        Raises:
            CheckpointError: if rows before that round are missing.
        """
        rows = [row for row in self.rows() if row["round"] < round]
        # A run with a gap in its rows would show a curve and totals that never were.
        if [row["round"] for row in rows] != list(range(round)):
            got = f"rows are missing, got {len(rows)}"
            raise CheckpointError(f"{self._rows}: {got}; expected {round}, as many as rounds")
        # Written anew and not cut: so `coterie watch` sees by the file's number that rows
        # went away.
        replace_file(self._rows, b"".join(json_line(row) for row in rows))
        # They are of rounds that are run once more, and could be taken for newer than what comes.
        for at, folder in self._checkpoints():
            if at > round:
                remove_folder(folder)
        return rows

    # --- results ----------------------------------------------------------------------------------

    def write_groups(self, names: Sequence[str], member: IntArray, since: IntArray) -> None:
        """``groups.csv``: client, group (-1: none), the round since which it has been there (-1:
        never)."""
        rows = zip(names, member.tolist(), since.tolist(), strict=True)
        replace_csv(self.path / "groups.csv", ["client", "group", "since_round"], rows)

    def write_clients(
        self, names: Sequence[str], member: IntArray, correct: IntArray, size: IntArray
    ) -> None:
        """``clients.csv``: client, group, its test samples, and how many of them its model
        classifies correctly."""
        header = ["client", "group", "test_samples", "correct"]
        rows = zip(names, member.tolist(), size.tolist(), correct.tolist(), strict=True)
        replace_csv(self.path / "clients.csv", header, rows)

    def clients(self) -> tuple[IntArray, IntArray] | None:
        """What each client's model classified correctly at the end, and its test samples: int64
        ``[N]`` both.

        ``None`` for a run that is not done, or was done by a version that did not write it.

        Raises:
            CheckpointError: if the file is damaged.
        """
        path = self.path / "clients.csv"
        if not path.exists():
            return None
        try:
            with path.open(newline="", encoding="utf-8") as file:
                rows = [
                    (int(row["correct"]), int(row["test_samples"])) for row in csv.DictReader(file)
                ]
        except (LookupError, TypeError, ValueError, csv.Error) as error:
            raise damaged(path, error) from None
        both = np.asarray(rows, np.int64).reshape(-1, 2)
        return both[:, 0], both[:, 1]

    def write_models(self, layout: Layout, models: Tensor) -> None:
        """``models/group-<j>.safetensors``: the named tensors of each group's model."""
        (self.path / "models").mkdir(exist_ok=True)
        for j, vector in enumerate(models):
            # Views of one vector; safetensors takes whole tensors only.
            tensors = {name: t.contiguous() for name, t in state_dict(layout, vector).items()}
            file = self.path / "models" / f"group-{j}.safetensors"
            replace_file(file, save_tensors(tensors))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """``summary.json``."""
        text = json.dumps(plain(summary), indent=2, allow_nan=False, ensure_ascii=False)
        # Names that were read may hold halves of surrogate pairs, which UTF-8 cannot.
        data = text.encode("utf-8", "backslashreplace") + b"\n"
        replace_file(self.path / "summary.json", data)

    def summary(self) -> dict[str, Any] | None:
        """What ``summary.json`` holds, ``None`` before the end of the run.

        Raises:
            CheckpointError: if it is damaged.
        """
        file = self.path / "summary.json"
        if not file.exists():
            return None
        try:
            return json.loads(file.read_bytes())
        except (ValueError, RecursionError, OSError) as error:
            raise damaged(file, error) from None

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
        # Rows are synced first: a checkpoint whose rows are lost could not be resumed.
        sync_file(self._rows)
        place = write_checkpoint(self.path / "checkpoints", checkpoint, self.resolved)
        # Removed last: until the new one is whole, the old ones stay.
        for _, old in self._checkpoints()[: -max(1, keep)]:
            remove_folder(old)
        return place

    def latest_checkpoint(self, resolved: Mapping[str, Any] | None = None) -> Checkpoint | None:
        """The newest valid checkpoint; ``None`` if none was ever written.

        Args:
            resolved: the configuration to go on with, default the folder's own.

        Raises:
            CheckpointError: if every checkpoint is damaged, or the newest valid one is of another
                configuration.
        """
        broken: list[str] = []
        # "Latest" is found and never written down: a file that names it could be damaged or stale.
        for round, folder in reversed(self._checkpoints()):
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
            return replace(checkpoint, warnings=warnings)
        if broken:
            got = ", ".join(broken)
            raise CheckpointError(
                f"{self.path}: no valid checkpoint, got {got}; expected one that is whole"
            )
        return None

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
