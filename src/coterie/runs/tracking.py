"""Rounds logged to MLflow, TensorBoard, Weights & Biases or code of the user's own, in addition to
the run: whatever happens to them, the run goes on.

Used by `coterie.runs.run`. A new tracker is named in ``TRACKERS`` and in ``NEEDS``.
"""

from __future__ import annotations

import json
import queue
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from coterie.config import registry
from coterie.config.identity import relevant
from coterie.errors import ConfigError, install_command
from coterie.experiment import Log
from coterie.files import read_json, refuse_malformed
from coterie.headline import ACCURACY, Headline
from coterie.runs.published import is_private, published_config, published_row

# Tracker -> the package that it needs.
NEEDS = {"mlflow": "mlflow", "tensorboard": "tensorboard", "wandb": "wandb"}
LISTED = re.compile(r"sizes|\w+_groups(\.\w+)?")  # lists with one number for each group
WAIT = 20.0  # seconds that the end of a run waits for a tracker

LogRow = Callable[[Mapping[str, Any]], None]
PARAMETERS = 100  # the most parameters that a request to MLflow may hold
METRICS = 1000  # the most metrics


class LoggedRound(NamedTuple):
    """What a tracker gets of a round, counted from 0: the numbers of its row by their path, and when
    it ended, in seconds since 1970."""

    number: int
    metrics: Mapping[str, float]
    time: float


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """The run that a tracker logs, from its first round ``start``; a resumed run continues."""

    settings: Log
    resolved: Mapping[str, Any]
    folder: Path
    start: int = 0

    @property
    def name(self) -> str:
        """The name of its folder, which in a sweep follows from its seed, too."""
        if is_private(self.resolved):
            return f"{self.resolved['algorithm']['name']} on {self.resolved['data']['source']}"
        return self.folder.name


class Tracker(Protocol):
    """Where rounds are logged; made, called and closed in a thread of its own."""

    def log(self, rounds: Sequence[LoggedRound]) -> None: ...

    def close(self, status: str) -> None: ...


def check_installed(names: Sequence[str]) -> None:
    """Refuse a tracker that cannot be used, before anything is trained."""
    for name in names:
        if name not in NEEDS:
            _find_tracker(name)
        elif find_spec(NEEDS[name]) is None:
            what = f"the package {NEEDS[name]!r} is not installed"
            do = f"install it with {install_command(name)}, or remove {name!r} from log.to"
            raise ConfigError("not-installed", "log.to", what, do=do)


def _find_tracker(name: str) -> Callable[[LoggedRun], Tracker]:
    try:
        return registry.find("tracker", name)
    except ConfigError as error:
        raise ConfigError.of(replace(one, path="log.to") for one in error.problems) from None


def metrics(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row by their path; of lists those with one number for each group.

    Example:
        >>> metrics({"round": 3, "accuracy": 0.5, "loss": None, "sizes": [2, 1], "refused": {"nan": 1}})
        {'accuracy': 0.5, 'sizes.0': 2.0, 'sizes.1': 1.0, 'refused.nan': 1.0}
    """
    return {name: float(value) for name, value in _leaves(row) if name != "round"}


def _leaves(row: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    for key, value in row.items():
        name = f"{path}{key}"
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{name}.")
        elif isinstance(value, int | float):
            yield name, value
        elif isinstance(value, list) and LISTED.fullmatch(name):
            yield from (
                (f"{name}.{j}", v) for j, v in enumerate(value) if isinstance(v, int | float)
            )


@contextmanager
def tracked(
    settings: Log,
    resolved: Mapping[str, Any],
    folder: Path,
    start: int = 0,
    headline: Headline = ACCURACY,
) -> Iterator[LogRow]:
    """What to call with the row of each round; it does nothing without a tracker."""
    check_installed(settings.to)
    run = LoggedRun(settings, published_config(resolved), folder, start)
    # A thread each, so that a tracker that hangs holds up neither the run nor the other.
    threads = [TrackerThread(name, run) for name in dict.fromkeys(settings.to)]

    def log(row: Mapping[str, Any]) -> None:
        shown = published_row(row, headline)
        for thread in threads:
            thread.log(shown)

    status = "FAILED"
    try:
        yield log
        status = "FINISHED"
    except BaseException as error:
        if _stopped_by_the_user(error):
            status = "KILLED"
        raise
    finally:
        # One limit for all of them together.
        until = time.monotonic() + WAIT
        for thread in threads:
            thread.close(status, until)


def _stopped_by_the_user(error: BaseException) -> bool:
    """Whether a run ended by a signal; our errors then have a code above 128."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return True
    code = getattr(error, "code", 0)  # of errors of other packages it may be anything
    return isinstance(code, int) and code > 128


class TrackerThread:
    """Passes rounds on to a tracker, in a thread; after the tracker's first failure it gets no
    more, with one line.

    The thread starts with the first round, after the engine's processes: forking a process that has
    threads can leave locks held for ever.
    """

    def __init__(self, name: str, run: LoggedRun) -> None:
        self.name = name
        self._run = run
        self._failed = False
        self._queue: queue.SimpleQueue[LoggedRound | str] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def log(self, row: Mapping[str, Any]) -> None:
        if self._thread is None:
            # A daemon, since a server that never answers must not keep the process alive.
            self._thread = threading.Thread(
                target=self._work, name=f"coterie-{self.name}", daemon=True
            )
            self._thread.start()
        if not self._failed:
            # With the time of the round: what waits for a slow server is sent later.
            self._queue.put(LoggedRound(int(row["round"]), metrics(row), time.time()))

    def close(self, status: str, until: float) -> None:
        """The run is over; what still waits has until then."""
        if self._thread is None:
            return
        self._queue.put(status)
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._warn(f"no reply for {WAIT:.0f} s; the last rounds may be missing there")

    def _work(self) -> None:
        try:
            # Made here and not in the constructor: to reach a server may fail, or take long.
            tracker: Tracker = _find_tracker(self.name)(self._run)
            status = None
            while status is None:
                rounds, status = self._take()
                if rounds:
                    tracker.log(rounds)
            tracker.close(status)
        except BaseException as error:  # noqa: BLE001 - a tracker's client may raise anything
            self._failed = True
            line = (str(error).splitlines() or [""])[0]
            self._warn(f"{type(error).__name__}: {line}; logging to it stops, the run continues")

    def _take(self) -> tuple[list[LoggedRound], str | None]:
        """All rounds that wait, in one request, and the status where the run is over."""
        rounds: list[LoggedRound] = []
        while True:
            item = self._queue.get()
            if isinstance(item, str):
                return rounds, item
            rounds.append(item)
            # What gathered during the last request goes into one, so a slow server falls
            # behind no further.
            if self._queue.empty():
                return rounds, None

    def _warn(self, what: str) -> None:
        print(f"warning: log: {self.name}: {what}", file=sys.stderr, flush=True)


class MLflow:
    """A run of an MLflow experiment; its number is stored in ``mlflow.json``, so that a resumed run
    continues it."""

    def __init__(self, run: LoggedRun) -> None:
        # Optional packages are imported where they are used.
        import logging

        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        # Both write lines of progress into the run's own output.
        logging.getLogger("mlflow").setLevel(logging.ERROR)
        logging.getLogger("alembic").setLevel(logging.ERROR)
        self._metric = Metric
        self._client = MlflowClient(tracking_uri=run.settings.uri)
        note = run.folder / "mlflow.json"
        if run.start and note.is_file():
            with refuse_malformed(note):
                self._id = str(read_json(note)["run_id"])
            self._client.update_run(self._id, status="RUNNING")
            return
        self._id = self._client.create_run(
            self._experiment(run.settings.experiment), run_name=run.name
        ).info.run_id
        known = {"run_id": self._id, "experiment": run.settings.experiment}
        # Written at once: a kill right after it does not make a second MLflow run of the same run.
        note.write_text(json.dumps(known) + "\n", encoding="utf-8")
        values = relevant(run.resolved)
        parameters = [Param(name, _parameter(value)) for name, value in values.items()]
        for at in range(0, len(parameters), PARAMETERS):
            self._client.log_batch(self._id, params=parameters[at : at + PARAMETERS])

    def _experiment(self, name: str) -> str:
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            return str(self._client.create_experiment(name))
        return str(experiment.experiment_id)

    def log(self, rounds: Sequence[LoggedRound]) -> None:
        for one in rounds:
            milliseconds = int(1000 * one.time)
            step = one.number + 1  # rounds are counted from 1 wherever people read them
            found = [
                self._metric(name, value, milliseconds, step) for name, value in one.metrics.items()
            ]
            for at in range(0, len(found), METRICS):
                self._client.log_batch(self._id, metrics=found[at : at + METRICS])

    def close(self, status: str) -> None:
        self._client.set_terminated(self._id, status)


def _parameter(value: Any) -> str:
    """A value as MLflow can hold it: 500 letters at most."""
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) <= 500:
        return text
    return text[:497] + "..."


class TensorBoard:
    """Event files in the folder ``tensorboard`` of the run folder, with a scalar for each metric."""

    def __init__(self, run: LoggedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Later steps, of a process that was killed, are hidden: they are run once more.
        purge = None
        if run.start:
            purge = run.start + 1
        self._writer = SummaryWriter(str(run.folder / "tensorboard"), purge_step=purge)

    def log(self, rounds: Sequence[LoggedRound]) -> None:
        for one in rounds:
            step = one.number + 1
            for name, value in one.metrics.items():
                scalar = name.replace(".", "/", 1)  # a page of its own for each table
                self._writer.add_scalar(scalar, value, step, walltime=one.time)
        # So that a page that is open shows the round now, not after the writer's two minutes.
        self._writer.flush()

    def close(self, status: str) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of a project of Weights & Biases; its id is stored in ``wandb.json``, so that a resumed
    run continues it."""

    def __init__(self, run: LoggedRun) -> None:
        import wandb

        note = run.folder / "wandb.json"
        identifier = secrets.token_hex(4)
        if run.start and note.is_file():
            with refuse_malformed(note):
                identifier = str(read_json(note)["run_id"])
        # Written at once: a kill right after it does not make a second one of the same run.
        known = {"run_id": identifier, "project": run.settings.experiment}
        note.write_text(json.dumps(known) + "\n", encoding="utf-8")
        # Of the machine, the command and the code nothing is sent: `published` says what may be.
        settings = wandb.Settings(
            silent=True,
            console="off",
            disable_code=True,
            disable_git=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
        )
        self._run = wandb.init(
            project=run.settings.experiment,
            name=run.name,
            id=identifier,
            resume="allow",
            dir=str(run.folder),
            config=dict(relevant(run.resolved)),
            settings=settings,
        )

    def log(self, rounds: Sequence[LoggedRound]) -> None:
        for one in rounds:
            # Of a round that was done before a kill it keeps the first values, which are the same.
            self._run.log({**one.metrics, "_timestamp": one.time}, step=one.number + 1)

    def close(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "FINISHED" else 1)


TRACKERS: dict[str, Callable[[LoggedRun], Tracker]] = {
    "mlflow": MLflow,
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}
