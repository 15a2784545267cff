"""The folder of a run in a Flower app: rows, checkpoints and results, as every run has them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from coterie.core import FloatArray, Groups, Layout
from coterie.core.task import Metric, mean_metric
from coterie.data import Population
from coterie.data.partitions import partition_bytes
from coterie.experiment import check
from coterie.experiment.live import described
from coterie.experiment.naming import method_tables
from coterie.flower.server.attendance import NodesFile, names_only
from coterie.flower.settings import NODES_SOURCE
from coterie.headline import ACCURACY, Headline
from coterie.measures.figures import number, scored_figures
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.digests import PARTITION
from coterie.runs.folder.store import RunFolder, check_folder
from coterie.runs.loop import RoundResult
from coterie.runs.progress import Progress
from coterie.runs.summary import summarise

KEPT = 2  # checkpoints
LOSS = Headline("loss", "lower", "")


@dataclass(frozen=True, slots=True)
class NodeScores:
    """What nodes reported of the models that serve them in one evaluation.

    Args:
        headline: accuracy where nodes report one, else the loss.
        ids: int64 ``[n]``, the numbers of the nodes.
        value: float64 ``[n]``, the mean over the samples of each.
        size: float64 ``[n]``, how many these are.
    """

    headline: Headline
    ids: np.ndarray
    value: FloatArray
    size: FloatArray

    @property
    def metric(self) -> Metric:
        return mean_metric(self.headline, lambda sums: sums["total"])

    def columns(self, groups: Groups) -> dict[str, Any]:
        """What the row of a round says of its models."""
        keys = self.headline.keys
        member = groups.member[self.ids]
        sums = {"total": self.value * self.size, "size": self.size}
        known = {name: values[member >= 0] for name, values in sums.items()}
        by_group = {
            name: np.bincount(member[member >= 0], values, groups.k).astype(np.float64)
            for name, values in known.items()
        }
        every = {name: np.array(values.sum()) for name, values in sums.items()}
        return {
            **scored_figures(self.metric, known, keys),
            keys.all: number(self.metric.value(every)),
            keys.groups: [number(one) for one in self.metric.value(by_group)],
        }


@dataclass(slots=True)
class Store:
    """The folder of a run, which is written while it goes on.

    Args:
        resolved: the configuration, as far as the server knows it: not what nodes do.
        progress: how far the run is, and since when each node has its group.
    """

    folder: RunFolder
    resolved: Mapping[str, Any]
    progress: Progress | None = None
    scores: NodeScores | None = None

    @classmethod
    def open(cls, out: str | Path, method: Any, rounds: int, seed: int) -> Store:
        """The folder of a run, new or to go on with.

        Raises:
            ConfigError: for a folder with another method, seed or number of rounds.
        """
        tables = method_tables(method) or {"algorithm": described(method, "name")}
        # Of data and training, which are the nodes' own, the least that a configuration may say.
        natural = {"kind": "natural"}
        data = {"source": NODES_SOURCE, "shape": [1], "classes": [], "partition": natural}
        model = {"name": "(ArrayRecord)", "type": "flwr.app.ArrayRecord"}
        fixed = {"data": data, "model": model, "train": {"rounds": rounds, "sampler": "uniform"}}
        resolved = check({**tables, **fixed, "seed": seed}, "").resolved()
        if not (Path(out) / "config.toml").exists():
            return cls(RunFolder.create(out, resolved), resolved)
        folder = RunFolder.open(out)
        check_folder(folder, resumed=True)
        return cls(folder, resolved)

    def locked(self) -> AbstractContextManager[None]:
        """No other process writes the folder meanwhile."""
        return self.folder.locked()

    def nodes(self) -> list[int]:
        """The node ids of a run that began before, by their numbers."""
        return [int(name) for name in NodesFile(self.folder, (1,), ()).read()[1]]

    def write_nodes(self, ids: list[int], places: int) -> None:
        """Write the numbers of nodes, before one is used."""
        names = tuple(map(str, ids))
        NodesFile(self.folder, (1,), ()).write("", names)
        self.folder.write({PARTITION: partition_bytes(names_only(names, places))})

    def checkpoint(self) -> Checkpoint | None:
        """The newest state; ``None`` where no round is done. Later rows are taken back."""
        found = self.folder.checkpoints.latest(self.resolved)
        self.folder.rewind(0 if found is None else found.round)
        return found

    def begin(self, population: Population, checkpoint: Checkpoint | None) -> None:
        """The run begins, or goes on from a checkpoint."""
        self.progress = Progress.start(population.clients)
        if checkpoint is not None:
            self.progress = Progress.resume(population, checkpoint, self.folder.rows())

    def add(self, result: RoundResult, scores: NodeScores | None) -> None:
        """Store a round: its row first, since a checkpoint without its rows could not be resumed."""
        assert self.progress is not None, "the run has begun"
        if scores is not None:
            if self.scores is None:
                self.folder.write_headline(scores.headline)
            self.scores = scores
        self.folder.append_round(result.row)
        self.progress.advance(result)
        extra = {"since": self.progress.since}
        self.folder.checkpoints.save(Checkpoint(result.round + 1, result.groups, extra), KEPT)

    def finish(self, layout: Layout, ids: list[int], models: Tensor, groups: Groups) -> None:
        """Write models, groups, what each node reached, and the summary."""
        assert self.progress is not None, "the run has begun"
        names = tuple(map(str, ids))
        known = len(names)
        files = self.folder.results
        files.write_models(layout, models)
        files.write_groups(names, groups.member[:known], self.progress.since[:known])
        if self.scores is not None:
            files.write_clients(names, groups.member[:known], _table(self.scores, known))
        # Of a run that was done before, the folder has it alone.
        summary = summarise(self.resolved, self.folder.rows(), known, self.folder.headline)
        files.write_summary(summary)


def _table(scores: NodeScores, clients: int) -> dict[str, np.ndarray]:
    """The columns of ``clients.csv``; a node that was not asked in the last round has no samples."""
    size = np.zeros(clients, np.int64)
    size[scores.ids] = np.round(scores.size)
    value = np.full(clients, np.nan)
    value[scores.ids] = scores.value
    if scores.headline == ACCURACY:
        return {"test_samples": size, "correct": np.round(np.nan_to_num(value) * size)}
    return {"test_samples": size, scores.headline.name: value}
