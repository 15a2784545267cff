"""Where rounds can be logged: MLflow and TensorBoard, `TRACKERS` by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from coterie.config.identity import relevant
from coterie.runs.tracking import LoggedRound, LoggedRun, Tracker

PARAMETERS = 100  # the most parameters that a request to MLflow may hold
METRICS = 1000  # the most metrics


class MLflow:
    """A run of an MLflow experiment; its number is kept in ``mlflow.json``, so that a resumed run
    goes on with it."""

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
            self._id = str(json.loads(note.read_bytes())["run_id"])
            self._client.update_run(self._id, status="RUNNING")
            return
        self._id = self._client.create_run(
            self._experiment(run.settings.experiment), run_name=run.folder.name
        ).info.run_id
        known = {"run_id": self._id, "experiment": run.settings.experiment}
        # Written at once: a kill right after it does not make a second MLflow run of the same run.
        note.write_text(json.dumps(known) + "\n", encoding="utf-8")
        values = relevant(run.resolved)
        parameters = [Param(name, _parameter(value)) for name, value in values.items()]
        for at in range(0, len(parameters), PARAMETERS):
            self._client.log_batch(self._id, params=parameters[at : at + PARAMETERS])

    def _experiment(self, name: str) -> str:
        """The number of an experiment, which is made where there is none of this name."""
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
    """Event files in ``tensorboard`` of the run's folder, a scalar for each metric."""

    def __init__(self, run: LoggedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Later steps, of a process that was killed, are hidden: they are run once more.
        purge = run.start + 1 if run.start else None
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


TRACKERS: dict[str, Callable[[LoggedRun], Tracker]] = {
    "mlflow": MLflow,
    "tensorboard": TensorBoard,
}
