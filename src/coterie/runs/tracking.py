"""Rounds told to MLflow or TensorBoard, beside the run: whatever happens to them, the run goes
on."""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from coterie.config.run_config import relevant
from coterie.errors import ConfigError, install_command

NEEDS = {"mlflow": "mlflow", "tensorboard": "tensorboard"}  # packages
LISTED = ("accuracy_groups", "sizes")  # lists with one number for each group
WAIT = 20.0  # seconds that the end of a run waits for a tracker
BATCH = 100  # parameters in one request to MLflow


class Settings(Protocol):
    """The table ``[log]``: which trackers, and for MLflow its server and its experiment."""

    to: Sequence[str]
    uri: str | None
    experiment: str


class Round(NamedTuple):
    """What a tracker is told of a round."""

    number: int
    metrics: Mapping[str, float]
    time: float


class Tracker(Protocol):
    """Somebody who is told of the rounds; made, called and closed in a thread of its own."""

    def tell(self, rounds: Sequence[Round]) -> None: ...

    def close(self, status: str) -> None: ...


def check_installed(names: Sequence[str]) -> None:
    """Refuse at once, before anything is trained, if what is asked for is not there.

    Raises:
        ConfigError: for a tracker whose package is not installed.
    """
    for name in names:
        if find_spec(NEEDS[name]) is None:
            what = f"the package {NEEDS[name]!r} is not installed, got {name!r}"
            raise ConfigError(f"log.to: {what}; expected {install_command(name)}, or no {name!r}")


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
        elif isinstance(value, list) and name in LISTED:
            yield from (
                (f"{name}.{j}", v) for j, v in enumerate(value) if isinstance(v, int | float)
            )


@contextmanager
def tracked(
    settings: Settings, resolved: Mapping[str, Any], folder: Path, start: int = 0
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """What to call with the row of each round; does nothing where nothing is asked for.

    Args:
        settings: the table ``[log]``.
        resolved: the configuration, whose values become parameters.
        folder: of the run; TensorBoard's files go to ``tensorboard`` in it.
        start: the first round; a resumed run goes on where it was.

    Raises:
        ConfigError: for a tracker whose package is not installed.
    """
    check_installed(settings.to)
    makers: dict[str, Callable[[], Tracker]] = {
        "mlflow": lambda: MLflow(settings, resolved, folder, start),
        "tensorboard": lambda: TensorBoard(folder, start),
    }
    threads = [Teller(name, makers[name]) for name in dict.fromkeys(settings.to)]

    def tell(row: Mapping[str, Any]) -> None:
        for thread in threads:
            thread.tell(row)

    status = "FAILED"
    try:
        yield tell
        status = "FINISHED"
    except BaseException as error:
        code = getattr(
            error, "code", 0
        )  # above 128: by a signal; of others' errors it may be anything
        asked = isinstance(error, KeyboardInterrupt | SystemExit) or (
            isinstance(code, int) and code > 128
        )  # by a signal
        status = "KILLED" if asked else "FAILED"
        raise
    finally:
        until = time.monotonic() + WAIT
        for thread in threads:
            thread.close(status, until)


class Teller:
    """Passes rounds on to a tracker, in a thread; after its first failure it is left alone, with
    one line.

    Args:
        name: of the tracker.
        make: makes it; called in the thread, which starts with the first round, after the engine's
            processes.
    """

    def __init__(self, name: str, make: Callable[[], Tracker]) -> None:
        self.name = name
        self._make = make
        self._failed = False
        self._queue: queue.SimpleQueue[Round | str] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def tell(self, row: Mapping[str, Any]) -> None:
        """A round is done."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._go, name=f"coterie-{self.name}", daemon=True
            )
            self._thread.start()
        if not self._failed:
            self._queue.put(Round(int(row["round"]), metrics(row), time.time()))

    def close(self, status: str, until: float) -> None:
        """The run is over; what is still to be told has until then."""
        if self._thread is None:
            return
        self._queue.put(status)
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._warn(f"no answer for {WAIT:.0f} s, the last rounds may be missing there")

    def _go(self) -> None:
        try:
            tracker = self._make()
            while True:
                rounds, status = self._take()
                if rounds:
                    tracker.tell(rounds)
                if status is not None:
                    tracker.close(status)
                    return
        except BaseException as error:  # noqa: BLE001 - a tracker's client may raise anything
            self._failed = True
            line = (str(error).splitlines() or [""])[0]
            self._warn(f"{type(error).__name__}: {line}; no more is told to it, the run goes on")

    def _take(self) -> tuple[list[Round], str | None]:
        """All that waits, and the end if it is among it."""
        rounds: list[Round] = []
        while True:
            item = self._queue.get()
            if isinstance(item, str):
                return rounds, item
            rounds.append(item)
            if self._queue.empty():
                return rounds, None

    def _warn(self, what: str) -> None:
        print(f"warning: log: {self.name}: {what}", file=sys.stderr, flush=True)


# --- the trackers ---------------------------------------------------------------------------------


class MLflow:
    """A run of an MLflow experiment; its number is kept in ``mlflow.json``, so that a resumed run
    goes on with it.

    Args:
        settings: server and experiment.
        resolved: the configuration.
        folder: of the run.
        start: the first round.
    """

    def __init__(
        self, settings: Settings, resolved: Mapping[str, Any], folder: Path, start: int
    ) -> None:
        import logging

        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        logging.getLogger("mlflow").setLevel(logging.ERROR)
        logging.getLogger("alembic").setLevel(logging.ERROR)
        self._metric = Metric
        self._client = MlflowClient(tracking_uri=settings.uri)
        note = folder / "mlflow.json"
        if start and note.is_file():
            self._id = str(json.loads(note.read_bytes())["run_id"])
            self._client.update_run(self._id, status="RUNNING")
            return
        experiment = self._client.get_experiment_by_name(settings.experiment)
        number = (
            experiment.experiment_id
            if experiment
            else self._client.create_experiment(settings.experiment)
        )
        self._id = self._client.create_run(number, run_name=folder.name).info.run_id
        note.write_text(
            json.dumps({"run_id": self._id, "experiment": settings.experiment}) + "\n",
            encoding="utf-8",
        )
        parameters = [Param(name, _shown(value)) for name, value in relevant(resolved).items()]
        for at in range(0, len(parameters), BATCH):
            self._client.log_batch(self._id, params=parameters[at : at + BATCH])

    def tell(self, rounds: Sequence[Round]) -> None:
        for one in rounds:
            at = int(1000 * one.time)
            named = list(one.metrics.items())
            for i in range(0, len(named), 1000):
                some = [
                    self._metric(name, value, at, one.number + 1)
                    for name, value in named[i : i + 1000]
                ]
                self._client.log_batch(self._id, metrics=some)

    def close(self, status: str) -> None:
        self._client.set_terminated(self._id, status)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) <= 500:
        return text
    return text[:497] + "..."


class TensorBoard:
    """Event files in ``tensorboard`` of the run's folder, a scalar for each metric.

    Args:
        folder: of the run.
        start: the first round; later steps of an earlier process are forgotten.
    """

    def __init__(self, folder: Path, start: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(
            str(folder / "tensorboard"), purge_step=start + 1 if start else None
        )

    def tell(self, rounds: Sequence[Round]) -> None:
        for one in rounds:
            for name, value in one.metrics.items():
                self._writer.add_scalar(
                    name.replace(".", "/", 1), value, one.number + 1, walltime=one.time
                )
        self._writer.flush()

    def close(self, status: str) -> None:
        self._writer.close()
