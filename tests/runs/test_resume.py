"""Runs that go on to another number of rounds: the same bits as a run of this number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import coterie as ct
from coterie.cli.main import invoke
from coterie.experiment import check
from coterie.runs.compose import compose
from coterie.runs.folder import digests
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import Stopped, execute, make_folder, run_config
from tests.refusals import refuses

METHODS = {
    "fedavg": {},
    "fedadam": {},
    "flexcfl": {"groups": 2, "alpha": 3},
    "ifca": {"groups": 2},
    "fedclust": {},
    "fedgsp": {},
    # Clients store something; the server remembers a vector, or a prior of labels.
    "apfl": {},
    "scaffold": {},
    "fedrc": {"groups": 2},
}


def tables(method: str = "fedavg", rounds: int = 5, **more: Any) -> dict[str, Any]:
    partition = {"kind": "planted", "clients": 8, "groups": 2, "how": "swap"}
    return {
        "data": {"source": "digits", "partition": partition},
        "model": {"name": "mclr"},
        "local": {"epochs": 1, "lr": 0.05, "round_schedule": {"kind": "step", "every": 2}},
        "train": {"rounds": rounds, "clients_per_round": 3},
        "algorithm": {"name": method, **METHODS[method]},
        "engine": {"name": "serial"},
        **more,
    }


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in RunFolder(folder).rows()]


def assert_equal_runs(one: Path, other: Path) -> None:
    assert RunFolder(one).resolved == RunFolder(other).resolved
    assert rows_of(one) == rows_of(other)
    for name in ("groups.csv", "clients.csv"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    models = sorted(path.name for path in (one / "models").iterdir())
    for model in models:
        mine = load_file(one / "models" / model)
        theirs = load_file(other / "models" / model)
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("method", METHODS)
def test_more_rounds_are_those_of_a_longer_run(method: str, tmp_path: Path) -> None:
    """A finished run goes on twice, once from Python."""
    run_config(check(tables(method, 5)), tmp_path / "straight")
    run_config(check(tables(method, 2)), tmp_path / "grown")
    assert invoke(["resume", str(tmp_path / "grown"), "--rounds", "3"]) == 0
    assert len(ct.resume(tmp_path / "grown", rounds=5).rows) == 5
    assert_equal_runs(tmp_path / "straight", tmp_path / "grown")
    assert invoke(["show", str(tmp_path / "grown")]) == 0


def test_an_interrupted_run_may_end_earlier(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    composed = compose(check(tables("flexcfl", 9)))
    folder = make_folder(composed, tmp_path / "run")
    with pytest.raises(Stopped), folder.locked():
        execute(composed, folder, stop=lambda: 15)
    assert invoke(["resume", str(folder.path), "--rounds", "3"]) == 0
    run_config(check(tables("flexcfl", 3)), tmp_path / "straight")
    assert_equal_runs(tmp_path / "straight", folder.path)
    assert invoke(["resume", str(folder.path), "--rounds", "2"]) == 2
    line = (
        "--rounds: fewer rounds than are complete, got 2; expected at least the 3 that are complete"
    )
    assert line in capsys.readouterr().err
    assert len(rows_of(folder.path)) == 3


def test_what_follows_from_the_number_of_rounds_is_refused(tmp_path: Path) -> None:
    cosine = {"epochs": 1, "round_schedule": {"kind": "cosine"}}
    run_config(check(tables(rounds=2, local=cosine)), tmp_path / "cosine")
    with refuses(ct.ConfigError, "in-conflict", "--rounds"):
        ct.resume(tmp_path / "cosine", rounds=3)
    assert RunFolder(tmp_path / "cosine").resolved["train"]["rounds"] == 2


@pytest.mark.parametrize("killed_after", [1, 2])
def test_a_kill_while_the_number_changes_leaves_a_run_that_goes_on(
    killed_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_config(check(tables(rounds=2)), tmp_path / "run")
    written = 0
    real = digests.replace_file

    def die(path: Path, data: bytes) -> None:
        nonlocal written
        if written == killed_after:
            raise KeyboardInterrupt
        written += 1
        real(path, data)

    monkeypatch.setattr(digests, "replace_file", die)
    with pytest.raises(KeyboardInterrupt):
        RunFolder(tmp_path / "run").plan_rounds(4)
    monkeypatch.setattr(digests, "replace_file", real)
    ct.resume(tmp_path / "run", rounds=4)
    run_config(check(tables(rounds=4)), tmp_path / "straight")
    assert_equal_runs(tmp_path / "straight", tmp_path / "run")


def test_a_number_that_nobody_planned_is_refused(tmp_path: Path) -> None:
    """A changed file is damage, and not a longer run."""
    run_config(check(tables(rounds=2)), tmp_path / "run")
    file = tmp_path / "run" / "config.toml"
    file.write_text(file.read_text().replace("rounds = 2", "rounds = 3"))
    with refuses(ct.CheckpointError, "differs", "run"):
        ct.resume(tmp_path / "run")
