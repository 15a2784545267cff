"""A run folder as the page shows it."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.config import RunConfig, load
from coterie.config.identity import config_hash
from coterie.core.arrays import FloatArray, IntArray
from coterie.core.solver import Solver
from coterie.data import Population, load_partition
from coterie.data.partitions import Partition
from coterie.data.shifts import FederationSnapshot
from coterie.errors import DataError
from coterie.report.places import Placed, along, by_labels, by_losses, remembered
from coterie.report.view import RunView
from coterie.runs.checkpoint import Checkpoint
from coterie.runs.files import damaged
from coterie.runs.run import load_data
from coterie.runs.store import RunFolder
from coterie.sweep.data_hash import hash_partition

SENTENCES = 6


def run_folders(paths: Sequence[Path | str]) -> list[Path]:
    """The folders of the runs that are named, and of those in the sweeps that are, each once.

    Raises:
        ConfigError: for a folder that holds neither.
    """
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        inside = [path] if (path / "config.toml").is_file() else _inside(path)
        if not inside:
            RunFolder.open(path)
        found |= {one.resolve(): one for one in inside if one.resolve() not in found}
    return list(found.values())


def _inside(sweep: Path) -> list[Path]:
    """The runs of a sweep, in the order of its table where it has one."""
    runs = [
        file.parent
        for file in sorted(sweep.glob("*/config.toml"))
        if not file.parent.name.startswith(".")
    ]
    try:
        with (sweep / "runs.csv").open(newline="", encoding="utf-8") as file:
            listed = [row.get("run") for row in csv.DictReader(file)]
    except (OSError, ValueError, csv.Error):
        return runs
    return sorted(
        runs, key=lambda run: listed.index(run.name) if run.name in listed else len(listed)
    )


def views_of(paths: Sequence[Path | str], root: str | None = None) -> list[RunView]:
    """Read runs and the runs of sweeps. Data are read for one run of each configuration, that of
    the lowest seed.

    Raises:
        ConfigError: for a folder that holds neither a run nor runs.
        CheckpointError: if a file of a run is damaged.
    """
    folders = run_folders(paths)
    seen = set()
    order = sorted(
        range(len(folders)),
        key=lambda at: (RunFolder.open(folders[at]).resolved.get("seed", 0), at),
    )
    views: dict[int, RunView] = {}
    for at in order:
        alike = config_hash({**RunFolder.open(folders[at]).resolved, "seed": 0})
        views[at] = view_of(folders[at], root, light=alike in seen)
        seen.add(alike)
    return [views[at] for at in range(len(folders))]


def view_of(path: Path | str, root: str | None = None, *, light: bool = False) -> RunView:
    """Read a run, finished or not: rows, newest valid checkpoint, partition, and the data where
    they are at hand.

    Args:
        path: the folder of the run.
        root: folder of the datasets; default that of the run.
        light: leave the data.

    Raises:
        ConfigError: if there is no run.
        CheckpointError: if a file of the run is damaged.

    Example:
        >>> import tempfile
        >>> from coterie.config import check
        >>> from coterie.runs.run import run_config
        >>> tables = {"data": {"source": "digits", "partition": {"kind": "iid", "clients": 4}},
        ...           "model": {"name": "mclr"}, "local": {"epochs": 1}, "engine": {"name": "serial"},
        ...           "train": {"rounds": 2, "clients_per_round": 4}, "algorithm": {"name": "fedavg"}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run_config(check(tables), f"{folder}/run")
        ...     view = view_of(f"{folder}/run")
        >>> view.name, view.clients, len(view.rounds)
        ('run', 4, 2)
    """
    folder = RunFolder.open(path)
    config = load(folder.path / "config.toml", (), {"data.root": root})
    rows = folder.rows()
    checkpoint = folder.latest_checkpoint()
    parts = load_partition(folder.path / "partition.npz")
    data, labels = (None, ()) if light else _data(config, folder.path / "partition.npz", checkpoint)
    resolved = folder.resolved
    scored = folder.clients()
    summary = folder.summary() or {}
    try:
        where = None if light else _places(config, data, checkpoint)
        return RunView(
            folder.path.name or str(folder.path.absolute().name),
            rows,
            np.full(parts.clients, -1) if checkpoint is None else checkpoint.groups.member,
            parts.names or [str(i) for i in range(parts.clients)],
            histograms=None if data is None or getattr(data, "drawn", False) else data.histograms(),
            planted=parts.planted if data is None else data.planted,
            joined=None if checkpoint is None else np.asarray(checkpoint.extra["since"], np.int64),
            newcomers=_late(rows, parts.clients),
            labels=labels,
            memory={} if checkpoint is None else checkpoint.groups.memory,
            embedding=None if where is None else where[0],
            placed_by="" if where is None else where[1],
            each=None if scored is None else _shares(*scored),
            tests=None if scored is None else scored[1],
            tables=resolved,
            versions=dict(summary.get("versions", {})),
            dealt=_dealt(resolved, parts),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise damaged(folder.path / "rounds.jsonl", error) from None


def title_of(paths: Sequence[Path | str]) -> str:
    """The title of a page: the names of the folders that were given.

    Example:
        >>> title_of(["runs/a", "runs/b"])
        'Coterie: a, b'
    """
    return "Coterie: " + ", ".join(Path(path).name or Path(path).absolute().name for path in paths)


def intro_of(views: Sequence[RunView]) -> str:
    """What some runs were, a few words each, as their configurations say; of many, the first
    ones."""
    lines: dict[str, list[int]] = {}
    for view in views:
        c = view.tables
        data = f"{c['data']['source']} ({c['data']['partition']['kind']}{_vectors(c['data'])})"
        said = f"{c['algorithm']['name']} on {data}, {c['model']['name']}"
        lines.setdefault(said, []).append(view.seed)
    every = [f"{said}, {_seeds(seeds)}" for said, seeds in lines.items()]
    return "; ".join(every[:SENTENCES]) + (
        f"; {len(every) - SENTENCES} more." if len(every) > SENTENCES else "."
    )


def _vectors(data: Mapping[str, Any]) -> str:
    """Where the word vectors of a text come from, which the papers' figures depend on."""
    if data["source"] != "sent140":
        return ""
    file = data.get("embeddings")
    return ", word vectors " + (
        f"from {Path(file).name}" if file else "learned from other users' tweets"
    )


def _seeds(seeds: Sequence[int]) -> str:
    every = sorted(set(seeds))
    if len(every) == 1:
        return f"seed {every[0]}"
    run = every == list(range(every[0], every[-1] + 1)) and len(every) > 2
    if run:
        return f"seeds {every[0]} to {every[-1]}"
    return f"seeds {', '.join(map(str, every))}"


def _data(
    config: RunConfig, saved: Path, checkpoint: Checkpoint | None
) -> tuple[Population | None, Sequence[str]]:
    """The clients' data at the end of the run, ``None`` where they cannot be read here."""
    try:
        samples, _, population = load_data(config, saved)
    except DataError:
        return None, ()
    if checkpoint is not None and checkpoint.snapshot:
        population = FederationSnapshot.restore(population, checkpoint.snapshot).population
    return population, samples.label_names


def _places(
    config: RunConfig, data: Population | None, checkpoint: Checkpoint | None
) -> Placed | None:
    """The map of a run that ended with several groups, by the best of what there is."""
    if (
        checkpoint is None
        or len(np.unique(checkpoint.groups.member[checkpoint.groups.member >= 0])) < 2
    ):
        return None
    memory = checkpoint.groups.memory
    clients = len(checkpoint.groups.member)
    whole = data is not None and not getattr(data, "drawn", False)
    found = remembered(memory, clients)
    if found is None and whole and data is not None:
        found = along(
            config.model.name, Solver(**config.local.model_dump()), data, memory, config.seed
        )
    if found is None and whole and data is not None:
        found = by_losses(
            config.model.name, config.options("model"), data, checkpoint.groups.models, config.seed
        )
    if found is None and whole and data is not None:
        found = by_labels(data.histograms())
    if found is not None and np.isfinite(found[0]).any():
        return found
    return None


def _shares(correct: IntArray, size: IntArray) -> FloatArray:
    return np.where(size > 0, correct / np.maximum(size, 1), np.nan)


def _dealt(resolved: Mapping[str, Any], parts: Partition) -> str:
    """The same text for runs whose clients hold the same samples in every round."""
    source = {
        key: value for key, value in resolved["data"].items() if key not in ("partition", "root")
    }
    return json.dumps(
        [source, resolved.get("shift")], sort_keys=True, default=str
    ) + hash_partition(parts)


def _late(rows: Sequence[Mapping[str, Any]], clients: int) -> np.ndarray | None:
    """The clients that a shift kept back at the start; ``None`` if there were none."""
    awaited: list[IntArray] = [
        np.asarray(event["clients"], np.int64)
        for row in rows
        for event in row.get("shift", ())
        if event["shift"] == "awaited"
    ]
    if awaited:
        return np.isin(np.arange(clients), np.concatenate(awaited))
    return None
