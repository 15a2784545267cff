"""A run: its rounds, its folder, and how it is resumed after it was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from coterie.clients.clients import Clients
from coterie.clients.round import Round
from coterie.config.trust import remember
from coterie.core.arrays import EMPTY, IntArray
from coterie.core.groups import Groups
from coterie.core.target_scaling import scaling_of
from coterie.core.task import Sums, headline_of
from coterie.data.partitions import partition_bytes
from coterie.data.population import Split
from coterie.data.shifts import FederationSnapshot
from coterie.errors import ConfigError, CoterieError, QuorumError
from coterie.experiment import Experiment
from coterie.experiment.live import weights_bytes
from coterie.measures.scoring import each_client
from coterie.methods.placing import place_unlabelled
from coterie.models import Network, initial_models
from coterie.runs.columns import record_description
from coterie.runs.compose import Composed, compose
from coterie.runs.finish import write_client_scores, write_results
from coterie.runs.folder.checkpoints import Checkpoint
from coterie.runs.folder.digests import (
    AVAILABILITY,
    COLUMNS,
    NOISE_KEY,
    PARTITION,
    TARGETS,
    WEIGHTS,
)
from coterie.runs.folder.store import RunFolder
from coterie.runs.guards import DivergenceWatch
from coterie.runs.loop import RoundResult, StartingPoint, simulate
from coterie.runs.noise_key import check_noise_key, key_bytes
from coterie.runs.progress import Progress, kept_arrays, make_progress, restore_kept
from coterie.runs.spec import RunSpec
from coterie.runs.stored import record_bytes, rows_record
from coterie.runs.target_scaling import scaling_bytes
from coterie.runs.tracking import check_installed, tracked

OnRound = Callable[[RoundResult], None]


class Stopped(CoterieError):
    """The run was asked to stop by a signal; its state is saved."""

    def __init__(self, signal: int, message: str) -> None:
        super().__init__(message)
        # As shells have it: 130 for SIGINT, 143 for SIGTERM.
        self.code = 128 + signal


@dataclass(slots=True)
class Run:
    """The rounds of a spec over its clients, stored in a folder if there is one; ``annotate``
    changes a row before that. ``simulated``: what clients report of their data before the first
    round is counted here, and not where it is received."""

    spec: RunSpec
    clients: Clients
    progress: Progress
    folder: RunFolder | None = None
    annotate: OnRound | None = None
    simulated: bool = True

    @classmethod
    def start(cls, spec: RunSpec, clients: Clients) -> Run:
        """A run from its first round that stores nothing."""
        return cls(spec, clients, Progress.start(spec.population.clients))

    def rounds(self) -> Iterator[RoundResult]:
        """Run the rounds that are left, and yield after each, when its row is stored."""
        # What attackers send may be anything, and says nothing about the learning rate.
        watch = DivergenceWatch(self.spec.local.lr, honest=self.spec.attack is None)
        for result in self._simulate():
            watch.warn_of(result.row, result.groups.models)
            if self.annotate is not None:
                self.annotate(result)
            # The row first: a checkpoint whose rows are missing could not be resumed.
            if self.folder is not None:
                self.folder.append_round(result.row)
            self.progress.advance(result)
            yield result
            # After the yield, when the caller has seen the row and may have saved.
            longest = self.spec.schedule.quorum.max_wait
            waited = self.progress.waited
            if longest is not None and waited > longest:
                what = f"waited through {self.progress.skipped} skipped rounds"
                got = f"{waited:.1f} s"
                expected = f"at most {longest:g} s"
                raise QuorumError("too-few", "quorum.max_wait", what, found=got, allowed=expected)
        self.place_unlabelled(np.array(self.spec.schedule.evaluation.unlabelled, np.int64))

    def place_unlabelled(self, ids: IntArray) -> None:
        """Place clients without labels, which have no part in the rounds."""
        if len(ids) and self.progress.groups is not None:
            spec = self.spec
            last = spec.schedule.rounds - 1
            key = spec.key.at(last).of("unlabelled")
            round = Round(last, key, ids, self.clients, spec.local)
            placed = place_unlabelled(spec.algorithm, self.progress.groups, round)
            self.progress.place(placed)

    def _simulate(self) -> Iterator[RoundResult]:
        spec = self.spec
        progress = self.progress
        if self.simulated and progress.round == 0:
            record_description(self.clients, spec.population, scaling_of(spec.task))
        start = StartingPoint(progress.round, progress.groups, progress.snapshot, progress.skipped)
        return simulate(
            spec.algorithm,
            self.clients,
            spec.population,
            initial_models(spec.network.module, spec.key, spec.network.own),
            spec.schedule,
            solver=spec.local,
            start=start,
        )

    @property
    def groups(self) -> Groups:
        """The state after the last round."""
        if self.progress.groups is None:
            where = "run" if self.folder is None else self.folder.path
            raise ConfigError("does-not-fit", where, "no round was run; run at least one first")
        return self.progress.groups

    @property
    def last_snapshot(self) -> FederationSnapshot:
        """The federation as it is after the last round."""
        schedule = self.spec.schedule
        return self.progress.snapshot or schedule.first_snapshot(self.spec.population)

    def save(self, keep: int, *, with_snapshot: bool = True) -> None:
        """Write a checkpoint, unless the newest one is of this round; `Progress.checkpoint`."""
        progress = self.progress
        # Called once more when a run ends for whatever reason, often right after a checkpoint.
        if self.folder is None or progress.groups is None or progress.round == progress.saved:
            return
        kept = kept_arrays(self.clients)
        checkpoint = progress.checkpoint(self.spec, kept, with_snapshot=with_snapshot)
        self.folder.checkpoints.save(checkpoint, keep)
        progress.saved = progress.round

    def score_clients(self, split: Split = "test") -> Sums:
        """What the model that serves each client makes of its samples: the sums of the task's metrics,
        and ``size``, how many there are, ``[N, *shape]`` each; zero for attackers."""
        schedule = self.spec.schedule
        snapshot = self.last_snapshot
        served = self.spec.algorithm.serve(self.groups)
        honest = schedule.honest(self.spec.population.clients)
        able = snapshot.trainable
        if split == "test":
            able = snapshot.testable
        # The key of the last round's evaluation, so that a resumed run of no rounds scores alike.
        key = schedule.key.at(schedule.rounds - 1).of("evaluate")
        ids = np.flatnonzero(able & honest)
        clients = self.clients
        if snapshot.population is not self.spec.population:
            clients = clients.holding(snapshot.population)
        return each_client(clients, ids, served, key, self.spec.task, split)


# --- the run of a configuration -------------------------------------------------------------------


def run_config(
    config: Experiment, out: Path | str | None = None, on_round: OnRound | None = None
) -> dict[str, Any]:
    """Run a configuration, and return the content of ``summary.json``.

    Args:
        config: the configuration.
        out: a new folder for the run; default ``runs/<algorithm>-<dataset>-<seed>-<n>``.
        on_round: called after each round, when its row is stored.

    Raises:
        CoterieError: for any expected failure; the state, if there is one, is saved first.

    Example:
        >>> import tempfile
        >>> from coterie.experiment import check
        >>> tables = {"data": {"source": "digits", "partition": {"kind": "iid", "clients": 4}},
        ...           "model": {"name": "mclr"}, "local": {"epochs": 1}, "engine": {"name": "serial"},
        ...           "train": {"rounds": 2, "clients_per_round": 4}, "algorithm": {"name": "fedavg"}}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     summary = run_config(check(tables), f"{folder}/run")
        >>> summary["rounds"], summary["clients"], summary["accuracy"]["final"] > 0.1
        (2, 4, True)
    """
    # Before the data are read, which may take minutes.
    if out is not None:
        RunFolder.check_free(Path(out))
    # And the folder after it: a run whose data cannot be read leaves none behind.
    composed = compose(config)
    folder = make_folder(composed, out)
    with folder.locked():
        return execute(composed, folder, on_round)


def make_folder(
    composed: Composed, out: Path | str | None = None, files: Mapping[str, bytes] = EMPTY
) -> RunFolder:
    """The folder of a new run, by default a new one in ``runs``, with its configuration and its
    partition."""
    check_installed(composed.experiment.log.to)
    resolved = composed.experiment.resolved()
    # In the folder from the beginning: a full disk or a kill leaves none without it.
    files = {PARTITION: partition_bytes(composed.partition), **files}
    if composed.spans_text is not None:
        files[AVAILABILITY] = composed.spans_text.encode()
    if composed.noise is not None:
        files[NOISE_KEY] = key_bytes(composed.noise)
    network = composed.experiment.model
    if isinstance(network, nn.Module | Network):
        files[WEIGHTS] = weights_bytes(network)
    record = rows_record(composed)
    if record is not None:
        files[COLUMNS] = record_bytes(record)
    scaling = scaling_of(composed.spec.task)
    if scaling is not None:
        files[TARGETS] = scaling_bytes(scaling)
    if out is None:
        folder = RunFolder.create_next("runs", composed.stem, resolved, files)
    else:
        folder = RunFolder.create(out, resolved, files)
    # The configuration is the user's own, and so is the code that it names.
    remember(folder.path, resolved)
    folder.write_headline(headline_of(composed.spec.task))
    return folder


def execute(
    composed: Composed,
    folder: RunFolder,
    on_round: OnRound | None = None,
    *,
    checkpoint: Checkpoint | None = None,
    resume: bool = False,
    stop: Callable[[], int] | None = None,
) -> dict[str, Any]:
    """Run the rounds that are left and store what comes of them; returns the summary. With
    ``resume``, rows after the checkpoint are forgotten.

    A new folder is taken away again where the run is refused before its first round is stored.

    Raises:
        Stopped: if ``stop``, called after each round, returned a signal; the state is saved.
        QuorumError: the state is saved, too.
    """
    config = composed.experiment
    names = composed.population.names
    check_installed(config.log.to)
    check_noise_key(folder.path, composed.noise)
    # Once more, since a kill may have come between the folder and this file of it.
    headline = headline_of(composed.spec.task)
    folder.write_headline(headline)
    progress = make_progress(composed.spec, folder, checkpoint, resume=resume)
    with (
        folder.taken_away_if_refused(is_new=checkpoint is None and not resume),
        tracked(config.log, config.resolved(), folder.path, progress.round, headline) as log,
    ):

        def stored(result: RoundResult) -> None:
            log(result.row)
            if on_round is not None:
                on_round(result)

        # Inside the trackers, so that these hear how the run ended, whatever ends it.
        with composed.clients() as clients:
            run = Run(composed.spec, clients, progress, folder)
            if checkpoint is not None:
                restore_kept(clients, checkpoint.extra)
            try:
                _run_and_save(run, config, stored, stop)
                # Where a sample is scored because there are too many clients, all of them
                # are not scored here.
                if config.train.evaluate_clients is None and progress.groups is not None:
                    splits = run.spec.schedule.evaluation.splits
                    scored = {split: run.score_clients(split) for split in splits}
                    population = run.last_snapshot.population
                    write_client_scores(
                        folder, names, run.groups.member, scored, run.spec.task, population
                    )
            # Also after an error of an engine or of a quorum, since the rounds so far are good.
            finally:
                run.save(config.checkpoint.keep)
        # The engine has ended: nothing of the clients is needed for these files.
        return write_results(folder, run.spec, run.groups, progress.since, config, names)


def _run_and_save(
    run: Run, config: Experiment, on_round: OnRound, stop: Callable[[], int] | None
) -> None:
    # Monotonic: a clock that is set back would put off the checkpoints.
    saved_at = time.monotonic()
    for result in run.rounds():
        on_round(result)
        if time.monotonic() - saved_at >= config.checkpoint.seconds:
            run.save(config.checkpoint.keep)
            saved_at = time.monotonic()
        signal = 0
        if stop is not None:
            signal = stop()
        done = run.progress.round
        # After the last round there is nothing left to stop, so the run ends as it should.
        if signal and done < run.spec.schedule.rounds and run.folder is not None:
            what = f"stopped after {done} of {run.spec.schedule.rounds} rounds"
            raise Stopped(signal, f"{what}; `coterie resume {run.folder.path}` continues")
