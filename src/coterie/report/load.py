"""Run folders read into `RunView`, which the charts and tables of a report are made of.

Used by the commands ``coterie report`` and ``coterie plot``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.config.choice_tables import Absent
from coterie.config.identity import config_hash
from coterie.core.arrays import IntArray
from coterie.core.groups import NO_GROUP
from coterie.data import Population, load_partition
from coterie.data.partitions import Partition
from coterie.data.shifts import FederationSnapshot
from coterie.data.tabular.encoder import Encoder
from coterie.data.tabular.text_columns import TextColumn, text_columns
from coterie.errors import ConfigError, DataError
from coterie.experiment import Experiment
from coterie.files import refuse_malformed
from coterie.measures.client_table import ScoredClients
from coterie.measures.seeds import Split, split_of
from coterie.report.embedding import (
    Embedding,
    Setup,
    from_directions,
    from_labels,
    from_losses,
    from_memory,
)
from coterie.report.tree import Tree
from coterie.report.view import RunView, stays_of
from coterie.rules.signatures import SignatureMemory
from coterie.runs.data import load_data, read_record
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.digests import ROWS
from coterie.runs.folder.store import RunFolder, check_folder
from coterie.runs.published import is_private, read_published
from coterie.runs.resume import with_places
from coterie.runs.state import RunState
from coterie.runs.summary import without_model
from coterie.sweep.data_hash import hash_partition


def views_of(
    paths: Sequence[Path | str], root: str | None = None, *, trust: bool = False
) -> list[RunView]:
    """Read runs and the runs of sweeps. The data are read for the lowest seed of each
    configuration, the only one whose maps and label mixes are shown. ``trust``: import code that is
    not known to be the user's own."""
    folders = run_folders(paths)
    resolved = [RunFolder.open(folder).resolved for folder in folders]
    by_seed = sorted(range(len(folders)), key=lambda i: (resolved[i].get("seed", 0), i))
    read = set()
    views: dict[int, RunView] = {}
    for i in by_seed:
        # Without the seed: runs of a series have the rest in common, and the user's own code.
        code = sorted(RunFolder(folders[i]).code.values())
        configuration = " ".join([config_hash({**resolved[i], "seed": 0}), *code])
        view = view_of(folders[i], root, light=configuration in read, trust=trust)
        views[i] = replace(view, identity=configuration)
        read.add(configuration)
    if any(view.private for view in views.values()):
        # Numbers stand for the seeds, which stay secret: runs of the same seed are compared.
        seeds = [tables.get("seed", 0) for tables in resolved]
        known = sorted(set(seeds))
        for i, view in views.items():
            views[i] = replace(view, repeat=known.index(seeds[i]))
    headlines = {view.headline.name for view in views.values()}
    if len(headlines) > 1:
        what = "the runs have different headline metrics"
        got = ", ".join(sorted(headlines))
        raise ConfigError("differs", "report", what, found=got, allowed="runs of one task")
    return [views[i] for i in range(len(folders))]


def view_of(
    path: Path | str, root: str | None = None, *, light: bool = False, trust: bool = False
) -> RunView:
    """Read a run, finished or not: its rows, newest valid checkpoint, partition, and, unless
    ``light``, its data where they are on this machine."""
    folder = RunFolder.open(path)
    check_folder(folder)
    saved = folder.partition
    config = folder.config({"data.root": root}, trust=trust)
    state = read_published(folder)
    # A run in progress has written rows after its newest checkpoint; groups are as of that one.
    checkpoint = folder.checkpoints.latest()
    # The partition of the run itself: the data may lie elsewhere or be gone, the folder has this.
    parts = load_partition(saved)
    split = split_of(parts, state.config)
    if is_private(state.config):
        return replace(_private_view(state, parts, folder), split=split)
    data = FinalData() if light else _final_data(config, saved, checkpoint)
    summary = state.summary or {}
    # Rows that are JSON but not what a run writes are found wherever they are first used.
    with refuse_malformed(folder.path / ROWS):
        view = RunView(
            name=folder.path.name or str(folder.path.absolute().name),
            rounds=state.rows,
            groups=np.full(parts.clients, NO_GROUP),
            names=parts.names or [str(i) for i in range(parts.clients)],
            histograms=data.histograms,
            planted=parts.planted if data.population is None else data.population.planted,
            newcomers=_newcomers(state.rows, parts.clients),
            labels=data.labels,
            split=split,
            client_table=_client_table(folder, parts, split),
            tables=state.config,
            versions=dict(summary.get("versions", {})),
            data_id=_data_id(state.config, parts),
            headline=state.headline,
            without_model=without_model(summary),
            text_columns=_text_columns(folder),
        )
        if checkpoint is None:
            return view.of_first(_taken(parts))
        # Of clients that joined after it was saved it has no places yet.
        checkpoint = with_places(checkpoint, parts.clients, config.name("algorithm"))
        embedding = None if light else _embedding(config, data, checkpoint)
        return _with_checkpoint(view, checkpoint, embedding).of_first(_taken(parts))


def _taken(parts: Partition) -> int:
    """The number of places that clients have taken: the last ones of a federation may be free."""
    taken = parts.clients
    # A client with samples may have an empty name.
    while taken and parts.names and not parts.names[taken - 1] and not len(parts.train[taken - 1]):
        taken -= 1
    return taken


def _text_columns(folder: RunFolder) -> list[TextColumn]:
    """The columns of the run's table that are read as text; none of other data."""
    record = read_record(folder.path)
    if record is None or record["rules"] is None:
        return []
    return text_columns(Encoder.read(record["rules"]), record["training"].get("why_text", {}))


def _client_table(folder: RunFolder, parts: Partition, split: Split | None) -> ScoredClients | None:
    """The run's ``clients.csv`` with the names as the data have them: in the file some are changed for
    spreadsheets. A federation has places after these that no client has taken."""
    found = folder.results.clients(split)
    if found is None or not parts.names:
        return found
    return replace(found, names=parts.names[: len(found.names)])


def _private_view(state: RunState, parts: Partition, folder: RunFolder) -> RunView:
    """A run of which no single client is shown: numbers stand for clients, in the order of groups."""
    groups = np.full(parts.clients, NO_GROUP)
    with refuse_malformed(folder.path / ROWS):
        sizes = [] if not state.rows else state.rows[-1]["sizes"]
        found = np.repeat(np.arange(len(sizes)), sizes)
        groups[: len(found)] = found
        return RunView(
            name="private run",
            rounds=state.rows,
            groups=groups,
            names=[str(number) for number in range(parts.clients)],
            tables=state.config,
            versions=dict((state.summary or {}).get("versions", {})),
            data_id=_data_id(folder.resolved, parts),
            headline=state.headline,
        )


def _with_checkpoint(view: RunView, checkpoint: Checkpoint, embedding: Embedding | None) -> RunView:
    known = replace(
        view,
        groups=checkpoint.groups.member,
        joined=_joined(view, checkpoint.since),
        tree=Tree.of(checkpoint.groups.memory.get(SignatureMemory)),
    )
    if embedding is None:
        return known
    return replace(known, embedding=embedding.points, placed_by=embedding.placed_by)


def _joined(view: RunView, since: IntArray) -> IntArray:
    """The round in which each client first had a group. A client that has migrated joined before
    ``since``; the moves in the rows tell when, if they were kept."""
    stays = stays_of(view)
    if stays is None:
        return since
    joined = since.copy()
    # From the last to the first, so that the earliest stay of a client is written last.
    for stay in reversed(stays):
        joined[stay.client] = stay.start
    return joined


@dataclass(frozen=True, slots=True)
class FinalData:
    """The clients' data at the end of a run."""

    population: Population | None = None
    labels: Sequence[str] = ()

    @property
    def whole(self) -> Population | None:
        """The data where they are all in memory; a lazily made federation is too large to ask."""
        if self.population is None or self.population.lazy:
            return None
        return self.population

    @property
    def histograms(self) -> IntArray | None:
        """Label counts of the clients, where they are all in memory."""
        if self.whole is None or not self.whole.classes:
            return None
        return self.whole.histograms()


def _final_data(config: Experiment, saved: Path, checkpoint: Checkpoint | None) -> FinalData:
    """The data at the end of a run; empty where they cannot be read on this machine."""
    # It says how labels are read.
    if isinstance(config.task, Absent):
        return FinalData()
    try:
        samples, _, population = load_data(config, saved)
    except DataError:
        return FinalData()
    if checkpoint is not None and checkpoint.snapshot:
        # Shifts have changed who holds what since the partition was saved.
        population = FederationSnapshot.restore(population, checkpoint.snapshot).population
    return FinalData(population, samples.label_names)


def _embedding(config: Experiment, data: FinalData, checkpoint: Checkpoint) -> Embedding | None:
    """The map of a run that ended with several groups, by the first source that it has."""
    member = checkpoint.groups.member
    if len(np.unique(member[member >= 0])) < 2:
        return None
    # First what the method itself compared. The rest takes training, and only approximates it.
    found = from_memory(checkpoint.groups.memory, len(member))
    # What the run was given as a Python object is not at hand.
    if config.objects and found is None:
        return None
    if found is None and data.whole is not None:
        setup = Setup(config, data.whole)
        found = from_directions(setup, checkpoint.groups)
        if found is None:
            found = from_losses(setup, checkpoint.groups.models)
        if found is None and data.histograms is not None:
            found = from_labels(data.histograms)
    if found is None or not np.isfinite(found.points).any():
        return None
    return found


def _data_id(resolved: Mapping[str, Any], parts: Partition) -> str:
    """The same text for runs whose clients hold the same samples in every round."""
    # Where the data lie is no part of what they are.
    source = {
        key: value for key, value in resolved["data"].items() if key not in ("partition", "root")
    }
    settings = json.dumps([source, resolved.get("shift")], sort_keys=True, default=str)
    return settings + hash_partition(parts)


def _newcomers(rows: Sequence[Mapping[str, Any]], clients: int) -> NDArray[np.bool_] | None:
    """The clients that a shift kept back at the start; ``None`` if there were none."""
    awaited: list[IntArray] = [
        np.asarray(event["clients"], np.int64)
        for row in rows
        for event in row.get("shift", ())
        if event["shift"] == "awaited"
    ]
    if not awaited:
        return None
    return np.isin(np.arange(clients), np.concatenate(awaited))


def run_folders(paths: Sequence[Path | str]) -> list[Path]:
    """The folders of runs, and the runs of folders of sweeps, each once."""
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        is_run = (path / "config.toml").is_file()
        inside = [path] if is_run else _runs_of_sweep(path)
        if not inside:
            RunFolder.open(path)  # raises: it says what the folder lacks
        for folder in inside:
            # Each once, however it is spelled: `report sweep sweep/run-1` would count a seed twice.
            found.setdefault(folder.resolve(), folder)
    return list(found.values())


def _runs_of_sweep(sweep: Path) -> list[Path]:
    """The runs of a sweep, in the order of its table where it has one."""
    # A folder whose name begins with a dot is being written by another process.
    runs = [
        file.parent
        for file in sorted(sweep.glob("*/config.toml"))
        if not file.parent.name.startswith(".")
    ]
    try:
        with (sweep / "runs.csv").open(newline="", encoding="utf-8-sig") as file:
            listed = [row.get("run") for row in csv.DictReader(file)]
    except (OSError, ValueError, csv.Error):
        return runs

    def place(run: Path) -> int:
        if run.name in listed:
            return listed.index(run.name)
        return len(listed)

    return sorted(runs, key=place)
