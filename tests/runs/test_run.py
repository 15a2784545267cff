"""Runs from a configuration: what they leave, and that a stopped one goes on as if it never had
been."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from torch import nn

from coterie.cli.main import invoke
from coterie.errors import CheckpointError, ConfigError, DataError, QuorumError
from coterie.experiment import Experiment, check
from coterie.models import decay_for
from coterie.runs.compose import compose
from coterie.runs.folder.store import RunFolder
from coterie.runs.loop import RoundResult
from coterie.runs.run import Stopped, execute, make_folder, run_config
from tests.conftest import SHIFT_OPTIONS
from tests.forks import command
from tests.refusals import refuses


def tables(**train: Any) -> dict[str, Any]:
    return {
        "seed": 3,
        "data": {
            "source": "digits",
            "partition": {"kind": "planted", "clients": 12, "groups": 2, "how": "swap"},
        },
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "lr": 0.1},
        "train": {"rounds": 6, "clients_per_round": 4, **train},
        "algorithm": {"name": "fedgroup", "groups": 2, "alpha": 3, "pretrain_steps": 5},
        "engine": {"name": "serial"},
        "checkpoint": {"seconds": 0},
    }


def config(**train: Any) -> Experiment:
    return check(tables(**train))


def left(folder: Path) -> dict[str, Any]:
    """All that a run leaves, but for wall-clock times."""
    rows = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for row in rows:
        row["seconds"] = sorted(row["seconds"])
        row["notes"].pop("seconds", None)
        del row["chain"]  # a digest of the times, too
    models = {p.name: p.read_bytes() for p in (folder / "models").iterdir()}
    last = max((folder / "checkpoints").iterdir())
    return {
        "rows": rows,
        "models": models,
        "groups": (folder / "groups.csv").read_text(),
        last.name: last.read_bytes(),
    }


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("runs") / "straight"
    run_config(config(), folder)
    return left(folder)


def stop_after(rounds: int, done: Sequence[object]) -> int:
    """Asks a run to stop once so many rounds are done."""
    return signal.SIGTERM if len(done) == rounds else 0


def test_a_run_leaves_what_the_readme_says(tmp_path: Path) -> None:
    seen: list[RoundResult] = []
    summary = run_config(config(evaluate_every=4), tmp_path / "run", seen.append)
    assert [result.round for result in seen] == list(range(6))
    assert [result.row["accuracy"] is None for result in seen] == [
        True,
        True,
        True,
        False,
        True,
        False,
    ]
    assert summary["rounds"] == 6
    assert summary["groups"] == 2
    assert summary == json.loads((tmp_path / "run" / "summary.json").read_text())
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert names == {
        "config.toml",
        "partition.npz",
        "rounds.jsonl",
        "summary.json",
        "groups.csv",
        "clients.csv",
        "models",
        "checkpoints",
        "digests.json",
        ".lock",
    }


def test_since_when_a_client_is_where_it_is(straight: dict[str, Any]) -> None:
    rows = [line.split(",") for line in straight["groups"].splitlines()[1:]]
    assert [r[0] for r in rows] == [str(i) for i in range(12)]
    since = np.array([int(r[2]) for r in rows])
    assert since.min() == 0
    assert (since <= 2).all()  # cover_then_uniform meets the twelve clients in three rounds


@pytest.mark.parametrize("after", [1, 3, 5])
def test_stopped_and_resumed_is_the_same_to_the_bit(
    tmp_path: Path, straight: dict[str, Any], after: int
) -> None:
    composed = compose(config())
    done = []
    folder = make_folder(composed, tmp_path / "run")
    with pytest.raises(Stopped) as caught:
        execute(composed, folder, done.append, stop=partial(stop_after, after, done))
    assert caught.value.code == 143
    with (folder.path / "rounds.jsonl").open("a") as file:
        file.write('{"round": 99, "torn')
    checkpoint = folder.checkpoints.latest()
    assert checkpoint is not None
    assert checkpoint.round == after
    again = compose(config(), folder.path / "partition.npz")
    execute(again, RunFolder.open(folder.path), checkpoint=checkpoint, resume=True)
    assert left(folder.path) == straight


@pytest.mark.parametrize(
    "algorithm", [{"name": "flexcfl", "groups": 2, "alpha": 3}, {"name": "fedavg"}]
)
def test_a_run_under_every_shift_is_resumed_to_the_bit(
    tmp_path: Path, algorithm: dict[str, Any]
) -> None:
    kinds = ["incremental", *(kind for kind in SHIFT_OPTIONS if kind != "incremental")]
    under = check(
        tables()
        | {
            "algorithm": algorithm,
            "shift": [{"kind": kind, **SHIFT_OPTIONS[kind]} for kind in kinds],
        }
    )
    run_config(under, tmp_path / "straight")
    for after in (2, 4):
        composed = compose(under)
        done = []
        folder = make_folder(composed, tmp_path / f"after{after}")
        stop = partial(stop_after, after, done)
        with pytest.raises(Stopped):
            execute(composed, folder, done.append, stop=stop)
        again = compose(under, folder.path / "partition.npz")
        execute(
            again, RunFolder.open(folder.path), checkpoint=folder.checkpoints.latest(), resume=True
        )
        assert left(folder.path) == left(tmp_path / "straight")
    events = {
        event["shift"] for row in left(tmp_path / "straight")["rows"] for event in row["shift"]
    }
    assert events >= set(SHIFT_OPTIONS) - {"swap_part"}, "there all clients hold all labels"


def test_killed_and_resumed_is_the_same_to_the_bit(
    tmp_path: Path, straight: dict[str, Any]
) -> None:
    file = tmp_path / "c.toml"
    run = tmp_path / "run"
    file.write_text(tomli_w.dumps(tables() | {"engine": {"name": "pool", "workers": 2}}))
    resume = ["resume", str(run)]
    for rows, words in ((1, ["run", str(file), "--out", str(run)]), (3, resume)):
        process = command(*words)
        while process.poll() is None and _rows(run) < rows:
            time.sleep(0.005)
        process.kill()
        process.ended()
    assert invoke(resume) == 0
    resumed = left(run)
    for ours, theirs in zip(resumed["rows"], straight["rows"], strict=True):
        assert ours == theirs  # says which field, where all of them at once would be cut
    assert resumed == straight


def _rows(run: Path) -> int:
    file = run / "rounds.jsonl"
    if file.exists():
        return file.read_bytes().count(b"\n")
    return 0


def test_resuming_without_a_checkpoint_starts_anew(
    tmp_path: Path, straight: dict[str, Any]
) -> None:
    composed = compose(config())
    folder = make_folder(composed, tmp_path / "run")
    folder.append_round({"round": 0})
    (folder.path / "partition.npz").unlink()
    execute(composed, folder, checkpoint=folder.checkpoints.latest(), resume=True)
    assert left(folder.path) == straight


def test_a_finished_run_resumes_to_itself(tmp_path: Path, straight: dict[str, Any]) -> None:
    composed = compose(config())
    folder = make_folder(composed, tmp_path / "run")
    execute(composed, folder)
    execute(composed, folder, checkpoint=folder.checkpoints.latest(), resume=True)
    assert left(folder.path) == straight


LATE: dict[str, Any] = {
    "algorithm": {"name": "fedavg"},
    "engine": {"name": "serial", "round_timeout": 1e-9},
}


def test_too_few_replies_stop_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    wanting = check(tables() | LATE | {"quorum": {"min_replies": 4, "max_skipped_rounds": 1}})
    with pytest.raises(QuorumError):
        run_config(wanting, tmp_path / "run")
    checkpoint = RunFolder.open(tmp_path / "run").checkpoints.latest()
    assert checkpoint is not None
    assert checkpoint.round == 2


def test_skipped_rounds_may_not_take_for_ever(tmp_path: Path) -> None:
    wanting = check(tables() | LATE | {"quorum": {"min_replies": 4, "max_wait": 1e-9}})
    with refuses(QuorumError, "too-few", "quorum.max_wait"):
        run_config(wanting, tmp_path / "run")


def test_what_the_data_do_not_hold_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    natural = check(
        tables()
        | {"data": {"source": "digits", "partition": {"kind": "natural", "column": "writer"}}}
    )
    with refuses(DataError, "does-not-fit", "data.partition.column"):
        run_config(natural, tmp_path / "run")
    synthetic = {
        "source": "synthetic",
        "clients": 3,
        "partition": {"kind": "natural", "column": "client"},
    }
    with refuses(ConfigError, "out-of-range", "train.clients_per_round"):
        run_config(check(tables() | {"data": synthetic}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "refused",
    [
        {"attack": {"kind": "sign_flip", "clients": [99]}},
        {"algorithm": {"name": "fedclust", "layer": "none"}},
    ],
    ids=["attackers", "layer"],
)
def test_what_is_refused_when_it_is_used_leaves_no_folder(
    tmp_path: Path, refused: dict[str, Any]
) -> None:
    """The same command was refused the second time for the folder that the first had left."""
    with pytest.raises(ConfigError):
        run_config(check({**tables(rounds=1), **refused}), tmp_path / "run")
    assert not any(tmp_path.iterdir())
    run_config(config(rounds=1), tmp_path / "run")


def test_what_is_refused_after_a_round_keeps_the_round(tmp_path: Path) -> None:
    def refuse(result: RoundResult) -> None:
        raise ConfigError("failed", "on_round")

    with refuses(ConfigError, "failed", "on_round"):
        run_config(config(rounds=2), tmp_path / "run", refuse)
    assert len(RunFolder.open(tmp_path / "run").rows()) == 1


def test_l2_that_nothing_carries_is_refused() -> None:
    model = nn.Sequential(nn.ReLU())
    with refuses(ConfigError, "does-not-fit", "local.l2"):
        decay_for("cnn_mnist", model, 0.1)
    with refuses(ConfigError, "does-not-fit", "local.l2"):
        decay_for(None, model, 0.1)
    assert decay_for("cnn_mnist", model, 0.0) == ()
    assert compose(check(tables() | {"local": {"l2": 0.1}})).spec.network.decay == ("1.weight",)


def test_a_custom_algorithm_that_fails_is_a_configuration_error() -> None:
    failing = {"algorithm": {"name": "math:sqrt", "x": -1.0}}
    with refuses(ConfigError, "failed", "algorithm.name") as caught:
        compose(check(tables() | failing))
    assert "\n" not in str(caught.value)


def test_what_each_client_reached_adds_up_to_the_last_row(tmp_path: Path) -> None:
    summary = run_config(config(evaluate_every=4), tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    found = folder.results.clients()
    assert found is not None
    correct = found.columns["correct"]
    size = found.samples
    assert correct.sum() / size.sum() == pytest.approx(summary["accuracy"]["final"], abs=1e-12)
    assert (correct <= size).all()
    (folder.path / "clients.csv").write_text("client,group,test_samples,correct\na,0,1\n")
    with refuses(CheckpointError, "damaged", "clients.csv"):
        folder.results.clients()


def test_the_moves_of_all_rounds_lead_to_the_last_groups(straight: dict[str, Any]) -> None:
    member = np.full(12, -1)
    for row in straight["rows"]:
        for client, group in row["moves"]:
            assert member[client] != group
            member[client] = group
    assert [line.split(",")[1] for line in straight["groups"].splitlines()[1:]] == [
        str(g) for g in member
    ]
