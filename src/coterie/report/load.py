"""A run folder as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.config import RunConfig, load
from coterie.data import Population, load_parts
from coterie.data.shifts import Scene
from coterie.experiment import load_data
from coterie.report.view import RunView
from coterie.store import Checkpoint, RunFolder, damaged
from coterie.types import DataError, IntArray


def view_of(path: Path | str, root: str | None = None) -> RunView:
    """Read a run, finished or not: rows, newest valid checkpoint, partition, and the data where they are at hand.

    Args:
        path: the folder of the run.
        root: folder of the datasets; default that of the run.

    Raises:
        ConfigError: if there is no run.
        CheckpointError: if a file of the run is damaged.

    Example:
        >>> import tempfile
        >>> from coterie.config import check
        >>> from coterie.experiment import run_config
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
    rows, checkpoint = folder.rows(), folder.latest_checkpoint()
    parts = load_parts(folder.path / "partition.npz")
    data, labels = _data(config, folder.path / "partition.npz", checkpoint)
    try:
        return RunView(
            folder.path.name or str(folder.path.absolute().name),
            rows,
            np.full(parts.clients, -1) if checkpoint is None else checkpoint.groups.member,
            parts.names or [str(i) for i in range(parts.clients)],
            histograms=None if data is None else data.histograms(),
            planted=parts.planted if data is None else data.planted,
            joined=None if checkpoint is None else np.asarray(checkpoint.extra["since"], np.int64),
            newcomers=_late(rows, parts.clients),
            labels=labels,
            memory={} if checkpoint is None else checkpoint.groups.memory,
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise damaged(folder.path / "rounds.jsonl", error) from None


def intro_of(paths: Sequence[Path | str]) -> str:
    """What some runs were, in a sentence each, as their configurations say."""
    every = (RunFolder.open(path).resolved for path in paths)
    lines = (
        f"{c['algorithm']['name']} on {c['data']['source']} ({c['data']['partition']['kind']}), {c['model']['name']}, "
        f"seed {c['seed']}"
        for c in every
    )
    return "; ".join(dict.fromkeys(lines)) + "."


def _data(config: RunConfig, saved: Path, checkpoint: Checkpoint | None) -> tuple[Population | None, Sequence[str]]:
    """The clients' data at the end of the run, ``None`` where they cannot be read here."""
    try:
        samples, _, population = load_data(config, saved)
    except DataError:
        return None, ()
    if checkpoint is not None and checkpoint.scene:
        population = Scene.restore(population, checkpoint.scene).population
    return population, samples.label_names


def _late(rows: Sequence[Mapping[str, Any]], clients: int) -> np.ndarray | None:
    """The clients that a shift kept back at the start; ``None`` if there were none."""
    awaited: list[IntArray] = [
        np.asarray(event["clients"], np.int64)
        for row in rows
        for event in row.get("shift", ())
        if event["shift"] == "awaited"
    ]
    return np.isin(np.arange(clients), np.concatenate(awaited)) if awaited else None
