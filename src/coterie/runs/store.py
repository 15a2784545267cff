"""Run folders: what a run writes, checkpoints that survive a kill at any moment, and what a resumed
run starts from.

A checkpoint is a folder written under a temporary name, its files and itself fsynced, then renamed
into place. Its manifest holds the size and SHA-256 of every file and of itself, so a damaged one is
never taken for a whole one.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import platform
import re
import shutil
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import tomli_w
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from coterie.config.run_config import config_hash, differing, read
from coterie.core.arrays import IntArray
from coterie.core.groups import Groups
from coterie.core.vectors import Layout, state_dict
from coterie.errors import CheckpointError, ConfigError

SCHEMA = 1
STATE = "state.safetensors"
MANIFEST = "manifest.json"
NODES = "nodes.json"  # of a run of real clients: who they are and what they work on
FOLDER = re.compile(r"round-(\d{6,})\Z")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a resumed run starts from.

    Args:
        round: rounds done, so the next round to run.
        groups: the state after them.
        extra: what else was saved with it.
        scene: the tensors of a shifted federation, see ``coterie.data.shifts``.
        warnings: one line for each newer checkpoint that was damaged and passed over.
    """

    round: int
    groups: Groups
    extra: Mapping[str, Any]
    scene: Mapping[str, Tensor] = field(default_factory=dict)
    warnings: tuple[str, ...] = field(default=())


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
        hidden = target.parent / f".{target.name}.tmp-{os.getpid()}"
        try:
            (hidden / "checkpoints").mkdir(parents=True)
            _write(hidden / "config.toml", tomli_w.dumps(resolved).encode())
            hidden.rename(target)
        except OSError as error:
            shutil.rmtree(hidden, ignore_errors=True)
            _refuse(
                f"out: cannot be written ({error.strerror}), got {target}; expected a folder that can be made"
            )
        return cls(target)

    @staticmethod
    def check_free(path: Path) -> None:
        """Refuse a path where a new run cannot go.

        Raises:
            ConfigError: if there is something at ``path`` already.
        """
        if (path / "config.toml").exists():
            _refuse(
                f"out: holds a run already, got {path}; expected a new folder, or `coterie resume {path}`"
            )
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            _refuse(f"out: not empty, got {path}; expected a new folder")

    @classmethod
    def create_next(cls, parent: Path | str, stem: str, resolved: Mapping[str, Any]) -> RunFolder:
        """Make ``<parent>/<stem>-<n>`` with the first free number ``n``."""
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
            _refuse(
                f"run: no run, got {str(path)!r}; expected the folder of a run, {_runs_near(Path(path))}"
            )
        return cls(Path(path))

    @property
    def resolved(self) -> dict[str, Any]:
        """The configuration that the folder holds now.

        Raises:
            ConfigError: if it is no TOML.
        """
        return read(self.path / "config.toml")

    # --- rounds -----------------------------------------------------------------------------------

    def append_round(self, row: Mapping[str, Any]) -> None:
        """Add one row to ``rounds.jsonl``, at once. What is not finite becomes ``null``."""
        with (self.path / "rounds.jsonl").open("ab") as file:
            file.write(_line(plain(row)))

    def rows(self) -> list[dict[str, Any]]:
        """The rows so far; a last line that a kill tore is left out.

        Raises:
            CheckpointError: if a line before the last is damaged.
        """
        file = self.path / "rounds.jsonl"
        lines = file.read_bytes().split(b"\n") if file.exists() else []
        found = []
        for number, line in enumerate(
            lines[:-1], 1
        ):  # after the last newline: nothing, or a torn line
            try:
                row = json.loads(line)
                found.append({**row, "round": int(row["round"])})
            except (ValueError, TypeError, KeyError, RecursionError):
                if number < len(lines) - 1:
                    message = f"{file}: line {number}: damaged, got {line[:40]!r}; expected one JSON object a line"
                    raise CheckpointError(message) from None
        return found

    def rewind(self, round: int) -> list[dict[str, Any]]:
        """Forget the rows and the (damaged) checkpoints after a round; returns the rows that are
        left.

        Raises:
            CheckpointError: if rows before that round are missing.
        """
        rows = [row for row in self.rows() if row["round"] < round]
        if [row["round"] for row in rows] != list(range(round)):
            message = f"{self.path / 'rounds.jsonl'}: rows are missing, got {len(rows)}; expected {round}, as many as rounds"
            raise CheckpointError(message)
        _replace(self.path / "rounds.jsonl", b"".join(_line(row) for row in rows))
        for at, folder in self._checkpoints():
            if at > round:
                _remove(folder)
        return rows

    # --- results ----------------------------------------------------------------------------------

    def write_groups(self, names: Sequence[str], member: IntArray, since: IntArray) -> None:
        """``groups.csv``: client, group (-1: none), the round since which it has been there (-1:
        never)."""
        hidden = self.path / ".groups.csv.tmp"
        with hidden.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            out = csv.writer(file)
            out.writerow(["client", "group", "since_round"])
            out.writerows(zip(names, member.tolist(), since.tolist(), strict=True))
        hidden.replace(self.path / "groups.csv")

    def write_clients(
        self, names: Sequence[str], member: IntArray, correct: IntArray, size: IntArray
    ) -> None:
        """``clients.csv``: client, group, its test samples, and how many of them its model
        classifies correctly."""
        hidden = self.path / ".clients.csv.tmp"
        with hidden.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            out = csv.writer(file)
            out.writerow(["client", "group", "test_samples", "correct"])
            out.writerows(zip(names, member.tolist(), size.tolist(), correct.tolist(), strict=True))
        hidden.replace(self.path / "clients.csv")

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
            tensors = {name: t.contiguous() for name, t in state_dict(layout, vector).items()}
            _replace(self.path / "models" / f"group-{j}.safetensors", save_tensors(tensors))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """``summary.json``."""
        text = json.dumps(plain(summary), indent=2, allow_nan=False, ensure_ascii=False)
        _replace(self.path / "summary.json", text.encode("utf-8", "backslashreplace") + b"\n")

    def summary(self) -> dict[str, Any] | None:
        """What ``summary.json`` holds, ``None`` before the end of the run.

        Raises:
            CheckpointError: if it is damaged.
        """
        file = self.path / "summary.json"
        try:
            if file.exists():
                return json.loads(file.read_bytes())
            return None
        except (ValueError, RecursionError, OSError) as error:
            raise damaged(file, error) from None

    # --- checkpoints ------------------------------------------------------------------------------

    def save_checkpoint(
        self,
        groups: Groups,
        round: int,
        extra: Mapping[str, Any],
        keep: int = 2,
        scene: Mapping[str, Tensor] | None = None,
    ) -> Path:
        """Save the state after ``round`` rounds; the last ``keep`` checkpoints stay.

        Args:
            groups: all of it is saved.
            round: rounds done.
            extra: anything JSON; arrays go beside the state.
            keep: how many checkpoints stay, this one among them.
            scene: tensors of a shifted federation.
        """
        place = self.path / "checkpoints" / f"round-{round:06d}"
        hidden = place.with_name(f".{place.name}.tmp-{os.getpid()}")
        for left in place.parent.glob(".round-*.tmp-*"):
            shutil.rmtree(left, ignore_errors=True)
        hidden.mkdir(parents=True)
        arrays = {
            name: np.ascontiguousarray(value)
            for name, value in extra.items()
            if isinstance(value, np.ndarray)
        }
        named = {f"scene.{name}": t for name, t in (scene or {}).items()}
        named |= {f"extra.{name}": torch.from_numpy(array) for name, array in arrays.items()}
        state = save_tensors(_tensors(groups) | named)
        _write(hidden / STATE, state)
        rest = plain({name: value for name, value in extra.items() if name not in arrays})
        _write(hidden / MANIFEST, _manifest(self.resolved, round, rest, {STATE: state}))
        _sync(hidden)
        self._sync_rows()
        if place.exists():
            _remove(place)
        hidden.rename(place)
        _sync(place.parent)
        for _, old in self._checkpoints()[: -max(1, keep)]:
            _remove(old)
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
        for round, folder in reversed(self._checkpoints()):
            try:
                manifest, groups, scene, extra = _read(folder, round)
            except (CheckpointError, OSError) as error:
                broken.append(f"{folder}: damaged ({error}); the one before it is used")
                continue
            self._check_config(manifest, resolved or self.resolved)
            return Checkpoint(round, groups, extra, scene, tuple(broken))
        if broken:
            names = ", ".join(line.removesuffix("; the one before it is used") for line in broken)
            raise CheckpointError(
                f"{self.path}: no valid checkpoint, got {names}; expected one that is whole"
            )
        return None

    def _check_config(self, manifest: Mapping[str, Any], resolved: Mapping[str, Any]) -> None:
        if manifest["config_hash"] != config_hash(resolved):
            keys = ", ".join(differing(manifest["config"], resolved))
            raise CheckpointError(
                f"{self.path}: the configuration was changed, got other values of {keys}; "
                "expected those that the run was started with"
            )

    def _checkpoints(self) -> list[tuple[int, Path]]:
        folder = self.path / "checkpoints"
        entries = folder.iterdir() if folder.is_dir() else ()
        return sorted(
            (int(match[1]), entry) for entry in entries if (match := FOLDER.match(entry.name))
        )

    def _sync_rows(self) -> None:
        if (self.path / "rounds.jsonl").exists():
            with (self.path / "rounds.jsonl").open("ab") as file:
                os.fsync(file.fileno())


# --- the files of a checkpoint --------------------------------------------------------------------


def _tensors(groups: Groups) -> dict[str, Tensor]:
    """All of a state as named tensors."""
    named = {
        "models": groups.models,
        "member": torch.from_numpy(np.ascontiguousarray(groups.member)),
    }
    named |= {f"optimiser.{name}": t for name, t in groups.optimiser.items()}
    named |= {f"memory.{name}": t for name, t in groups.memory.items()}
    return {name: t.detach().clone().contiguous() for name, t in named.items()}


def _groups(tensors: Mapping[str, Tensor]) -> Groups:
    """The state again."""
    return Groups(
        tensors["models"],
        tensors["member"].numpy(),
        _under("optimiser.", tensors),
        _under("memory.", tensors),
    )


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    return MappingProxyType(
        {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    )


def _manifest(
    resolved: Mapping[str, Any], round: int, extra: Any, files: Mapping[str, bytes]
) -> bytes:
    listed = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        for name, data in files.items()
    }
    body = {
        "schema": SCHEMA,
        "round": round,
        "config": dict(resolved),
        "config_hash": config_hash(resolved),
        "files": listed,
        "extra": extra,
    }
    return _sealed(body)


def _sealed(body: Mapping[str, Any]) -> bytes:
    """JSON that holds the SHA-256 of the rest of itself."""
    return _json({**body, "sha256": hashlib.sha256(_json(body)).hexdigest()}) + b"\n"


def _read(
    folder: Path, round: int
) -> tuple[dict[str, Any], Groups, Mapping[str, Tensor], dict[str, Any]]:
    """Manifest, state, scene and extra of a checkpoint, every byte of which was checked."""
    data = (folder / MANIFEST).read_bytes()
    try:
        manifest = json.loads(data)
        body = {key: value for key, value in manifest.items() if key != "sha256"}
        whole = _sealed(body) == data
    except (ValueError, TypeError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise CheckpointError(f"{MANIFEST} does not match its checksum")
    if manifest["schema"] != SCHEMA or manifest["round"] != round:
        raise CheckpointError(
            f"{MANIFEST} is of schema {manifest['schema']}, round {manifest['round']}"
        )
    state = (folder / STATE).read_bytes()
    if {STATE: {"sha256": hashlib.sha256(state).hexdigest(), "size": len(state)}} != manifest[
        "files"
    ]:
        raise CheckpointError(f"{STATE} does not match its checksum")
    try:
        tensors = load_tensors(state)
        arrays = {name: array.numpy() for name, array in _under("extra.", tensors).items()}
        return (
            manifest,
            _groups(tensors),
            _under("scene.", tensors),
            {**manifest["extra"], **arrays},
        )
    except (SafetensorError, KeyError) as error:
        raise CheckpointError(f"{STATE} cannot be read: {error}") from None


# --- writing --------------------------------------------------------------------------------------


def _json(value: Any) -> bytes:
    """Canonical JSON of plain values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def plain(value: Any) -> Any:
    """A value as JSON can hold it: arrays as lists, what is not finite as ``None``.

    Example:
        >>> plain({"loss": float("nan"), 1: np.int64(2), "sizes": np.arange(2)})
        {'loss': None, '1': 2, 'sizes': [0, 1]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | Tensor):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that it is the old one or the new one, whole, at any moment."""
    hidden = path.with_name(f".{path.name}.tmp")
    _write(hidden, data)
    hidden.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove a checkpoint so that a kill half-way leaves none that looks whole."""
    hidden = folder.with_name(f".{folder.name}.tmp-old-{os.getpid()}")
    folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def damaged(file: Path, error: Exception) -> CheckpointError:
    """The one line for a file of a run that is not what was written."""
    what = f"{type(error).__name__} ({(str(error).splitlines() or [''])[0]})"
    return CheckpointError(f"{file}: damaged, got {what}; expected the file as the run wrote it")


def _runs_near(path: Path, most: int = 4) -> str:
    """What runs there are, in a folder that is none itself or in ``runs``, or how to make one."""
    found: list[Path] = []
    for folder in (path, Path("runs")):
        if not found and folder.is_dir():
            found = sorted(file.parent for file in folder.glob("*/config.toml"))
    if not found:
        return "which `coterie run CONFIG.toml` makes"
    return f"as {', '.join(str(p) for p in found[:most])}{', ...' if len(found) > most else ''}"


def _refuse(message: str) -> NoReturn:
    raise ConfigError(message)


# --- the summary ----------------------------------------------------------------------------------


def summarise(
    resolved: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], clients: int
) -> dict[str, Any]:
    """What ``summary.json`` holds. Accuracies are fractions; ``None`` where nothing was evaluated.

    ``accuracy.max`` is over the rounds in which as many clients had a group as ever will, since
    earlier ones score only some of the clients (FlexCFL, section 5.1); over all rounds where none
    of those was evaluated. ``accuracy.final`` is that of the last evaluated round,
    ``accuracy.last10_mean`` the mean of the last ten.

    Args:
        resolved: the configuration.
        rows: the rows of ``rounds.jsonl``.
        clients: number of clients ``N``.
    """
    accuracies = [row["accuracy"] for row in rows if row.get("accuracy") is not None]
    sizes = list(rows[-1].get("sizes", [])) if rows else []
    return {
        "algorithm": resolved["algorithm"]["name"],
        "dataset": resolved["data"]["source"],
        "partition": resolved["data"]["partition"]["kind"],
        "model": resolved["model"]["name"],
        "seed": resolved["seed"],
        "clients": clients,
        "rounds": len(rows),
        "complete": len(rows) == resolved["train"]["rounds"],
        "skipped": sum(bool(row.get("skipped")) for row in rows),
        "groups": len(sizes),
        "sizes": sizes,
        "agreement": rows[-1].get("agreement") if rows else None,
        "accuracy": {
            "max": max([row["accuracy"] for row in covered(rows)] or accuracies, default=None),
            "final": accuracies[-1] if accuracies else None,
            "last10_mean": statistics.fmean(accuracies[-10:]) if accuracies else None,
        },
        "seconds": _seconds([row.get("seconds", {}) for row in rows]),
        "transfers": _total(
            (row.get("transfers", {}) for row in rows), ("models", "down_bytes", "up_bytes")
        ),
        "refused": _total(row.get("refused", {}) for row in rows),
        "versions": _versions(),
    }


def covered(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The evaluated rounds in which all clients that ever have a group have one.

    Example:
        >>> rows = [{"accuracy": 0.9, "clients_assigned": 3}, {"accuracy": 0.8, "clients_assigned": 6}]
        >>> covered(rows)
        [{'accuracy': 0.8, 'clients_assigned': 6}]
    """
    most = max((row.get("clients_assigned", 0) for row in rows), default=0)
    return [
        row
        for row in rows
        if row.get("clients_assigned", 0) == most and row.get("accuracy") is not None
    ]


def _total(tables: Iterable[Mapping[str, Any]], names: Sequence[str] = ()) -> dict[str, Any]:
    total: Counter[str] = Counter(dict.fromkeys(names, 0))
    for one in tables:
        total.update(one)
    return dict(total)


def _seconds(tables: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    rounds = [one["total"] for one in tables if "total" in one]
    split = _total(tables, ("total", "training", "grouping", "aggregation", "evaluation"))
    return {**split, "per_round_median": statistics.median(rounds) if rounds else None}


def _versions() -> dict[str, str]:
    found: Callable[[str], str] = version
    try:
        own = found("coterie")
    except PackageNotFoundError:
        own = "0"
    return {
        "coterie": own,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
