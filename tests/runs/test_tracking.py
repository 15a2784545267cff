"""MLflow and TensorBoard: what they get, and that no failure of theirs reaches the run."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from coterie.cli.main import invoke
from coterie.config.identity import config_hash
from coterie.errors import ConfigError
from coterie.experiment import Log, check, load_config
from coterie.runs import tracking
from coterie.runs.compose import compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import Stopped, execute, make_folder, run_config
from coterie.runs.tracking import LoggedRound, LoggedRun, TrackerThread, metrics, tracked
from tests.cli.conftest import CONFIG as BASE
from tests.refusals import refuses

CONFIG = (
    BASE
    + """
[log]
to = {to}
uri = "{uri}"
"""
)


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    # Where nothing hangs, a busy machine is waited for, however long it takes.
    monkeypatch.setattr(tracking, "WAIT", 600.0)

    def write(*to: str, uri: str = "sqlite:///tracks.db") -> str:
        Path("c.toml").write_text(CONFIG.format(to=json.dumps(to), uri=uri))
        return "c.toml"

    return write


def stopped_after_two(config: str, out: str) -> RunFolder:
    composed = compose(load_config(config))
    seen = []
    folder = make_folder(composed, out)
    with pytest.raises(Stopped):
        execute(composed, folder, seen.append, stop=lambda: 15 * (len(seen) == 2))
    return folder


def test_tensorboard_gets_every_round_and_those_of_a_resumed_run(configured) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = stopped_after_two(configured("tensorboard"), "r")
    assert invoke(["resume", "r"]) == 0
    files = EventAccumulator("r/tensorboard")
    files.Reload()
    logged = [(event.step, event.value) for event in files.Scalars("accuracy")]
    assert logged == [(row["round"] + 1, pytest.approx(row["accuracy"])) for row in folder.rows()]
    assert len(logged) == 3
    assert "seconds/total" in files.Tags()["scalars"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of SQLAlchemy, about MLflow's own tables
def test_mlflow_gets_every_round_and_a_resumed_run_goes_on_with_its_run(configured) -> None:
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    folder = stopped_after_two(configured("mlflow"), "r")
    client = MlflowClient("sqlite:///tracks.db")
    run = client.get_run(json.loads(Path("r/mlflow.json").read_text())["run_id"])
    assert run.info.status == "KILLED"
    assert run.data.params["algorithm.name"] == "fedavg"
    assert not any(name.startswith(("engine.name", "log")) for name in run.data.params)
    assert invoke(["resume", "r"]) == 0
    logged = sorted(
        (m.step, m.value) for m in client.get_metric_history(run.info.run_id, "accuracy")
    )
    assert logged == [(row["round"] + 1, row["accuracy"]) for row in folder.rows()]
    assert len(logged) == 3
    assert client.get_run(run.info.run_id).info.status == "FINISHED"
    assert len(client.search_runs([run.info.experiment_id])) == 1


def test_weights_and_biases_gets_every_round_and_a_resumed_run_goes_on(
    configured, monkeypatch
) -> None:
    wandb = pytest.importorskip("wandb", reason="the extra 'wandb' is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    logged = []
    ended = []
    log = wandb.Run.log
    finish = wandb.Run.finish
    monkeypatch.setattr(
        wandb.Run,
        "log",
        lambda run, row, step: (logged.append((run.id, step, row)), log(run, row, step=step)),
    )
    monkeypatch.setattr(
        wandb.Run,
        "finish",
        lambda run, exit_code: (ended.append(exit_code), finish(run, exit_code)),
    )
    folder = stopped_after_two(configured("wandb"), "r")
    known = json.loads(Path("r/wandb.json").read_text())
    assert invoke(["resume", "r"]) == 0
    assert [(step, row["accuracy"]) for _, step, row in logged] == [
        (row["round"] + 1, row["accuracy"]) for row in folder.rows()
    ]
    assert {identifier for identifier, *_ in logged} == {known["run_id"]}
    assert ended == [1, 0]
    assert list(Path("r/wandb").glob("offline-run-*"))


OWN = """
class ToFile:
    def __init__(self, run):
        self.file = run.folder / "mine.txt"

    def log(self, rounds):
        with self.file.open("a") as file:
            for one in rounds:
                print(one.number, one.metrics["accuracy"], file=file)

    def close(self, status):
        with self.file.open("a") as file:
            print(status, file=file)


def to_file(run):
    return ToFile(run)
"""


def test_a_tracker_of_ones_own_gets_every_round(configured) -> None:
    Path("own_tracks.py").write_text(OWN)
    folder = stopped_after_two(configured("own_tracks:to_file"), "r")
    assert invoke(["resume", "r"]) == 0
    expected = [f"{row['round']} {row['accuracy']}" for row in folder.rows()]
    lines = Path("r/mine.txt").read_text().splitlines()
    assert lines == [*expected[:2], "KILLED", *expected[2:], "FINISHED"]


def test_a_strangers_folder_with_a_tracker_is_not_trusted(configured, monkeypatch) -> None:
    Path("own_tracks.py").write_text(OWN)
    assert invoke(["run", configured("own_tracks:to_file"), "--out", "r"]) == 0
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("elsewhere").absolute()))
    Path("r").rename("other")
    with refuses(ConfigError, "not-trusted", "other"):
        RunFolder.open("other").config()


@pytest.mark.parametrize("name", ["own_tracks:nothing", "no_such_module:factory"])
def test_a_tracker_that_is_not_there_is_refused_before_the_run(configured, name: str) -> None:
    Path("own_tracks.py").write_text(OWN)
    with refuses(ConfigError, "cannot-be-used", "log.to"):
        run_config(load_config(configured(name)), "r")
    assert not Path("r").exists()


def test_a_failing_tracker_never_ends_a_run(configured, monkeypatch, capsys) -> None:
    class Failing:
        def log(self, rounds: list[LoggedRound]) -> None:
            raise RuntimeError("the disk\nis full")

        def close(self, status: str) -> None: ...

    monkeypatch.setitem(tracking.TRACKERS, "tensorboard", lambda run: Failing())
    monkeypatch.setitem(tracking.TRACKERS, "mlflow", lambda run: 1 / 0)
    assert invoke(["run", configured("mlflow", "tensorboard"), "--out", "r"]) == 0
    lines = sorted(capsys.readouterr().err.splitlines())
    assert [line.split("; ")[0] for line in lines] == [
        "warning: log: mlflow: ZeroDivisionError: division by zero",
        "warning: log: tensorboard: RuntimeError: the disk",
    ]
    assert len(RunFolder.open("r").rows()) == 3


def test_a_tracker_that_hangs_is_waited_for_only_so_long(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    answers = threading.Event()

    class Hanging:
        def log(self, rounds: list[LoggedRound]) -> None:
            answers.wait()

        def close(self, status: str) -> None: ...

    monkeypatch.setitem(tracking.TRACKERS, "mlflow", lambda run: Hanging())
    thread = TrackerThread("mlflow", LoggedRun(Log(), {}, tmp_path))
    for t in range(5):
        thread.log({"round": t, "accuracy": 0.5})
    thread.close("FINISHED", time.monotonic() + 0.3)
    assert "no reply for" in capsys.readouterr().err
    answers.set()


def test_rounds_are_logged_in_order_and_then_the_status(tmp_path: Path, monkeypatch) -> None:
    logged: list[object] = []

    class Listing:
        def log(self, rounds: list[LoggedRound]) -> None:
            logged.extend(one.number for one in rounds)

        def close(self, status: str) -> None:
            logged.append(status)

    monkeypatch.setitem(tracking.TRACKERS, "mlflow", lambda run: Listing())
    settings = check(tables(to=["mlflow"])).log
    with tracked(settings, {}, tmp_path) as log:
        for t in range(20):
            log({"round": t})
    assert logged == [*range(20), "FINISHED"]
    for error, status in (
        (KeyError(), "FAILED"),
        (KeyboardInterrupt(), "KILLED"),
        (Stopped(15, ""), "KILLED"),
    ):
        with (
            suppress(KeyError, KeyboardInterrupt, Stopped),
            tracked(settings, {}, tmp_path) as log,
        ):
            log({"round": 0})
            raise error
        assert logged[-2:] == [0, status]


def tables(**log: object) -> dict[str, object]:
    return {
        "data": {"source": "digits", "partition": {"kind": "iid", "clients": 4}},
        "model": {"name": "mclr"},
        "local": {"epochs": 1},
        "train": {"rounds": 2, "clients_per_round": 2},
        "algorithm": {"name": "fedavg"},
        "engine": {"name": "serial"},
        **({"log": log} if log else {}),
    }


def test_a_missing_package_is_one_line_before_anything_runs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with refuses(ConfigError, "not-installed", "log.to"):
        run_config(check(tables(to=["mlflow"])), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run_config(check(tables()), tmp_path / "run")


def test_logging_is_no_part_of_a_runs_identity() -> None:
    assert config_hash(check(tables()).resolved()) == config_hash(
        check(tables(to=["mlflow"])).resolved()
    )
    with refuses(ConfigError, "unknown-choice", "log.to.0"):
        check(tables(to=["nowhere"]))


def test_metrics_are_numbers() -> None:
    row = {
        "round": 1,
        "accuracy": None,
        "notes": {"grouping": "text"},
        "moves": [[0, 1]],
        "sizes": [3],
        "a": {"b": 2},
    }
    assert metrics(row) == {"sizes.0": 3.0, "a.b": 2.0}
