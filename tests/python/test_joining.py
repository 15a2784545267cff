"""New clients that join a run: old ones stay as they are, the method places the new ones."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import coterie as ct
from coterie.cli.main import invoke
from coterie.experiment import check
from coterie.export.joining import read_joining
from coterie.runs.compose import compose
from coterie.runs.data import read_newcomers, read_record
from coterie.runs.folder.store import RunFolder
from coterie.runs.resume import join
from coterie.runs.run import run_config
from tests.data.test_tables import write

OLD = 8
ROWS = 40
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedgroup": {"groups": 2, "alpha": 4},
    "flexcfl": {"groups": 2, "alpha": 4},
    "ifca": {"groups": 2, "init": "cold_start"},
    "fedclust": {"groups": 2},
}
GROWING = ("auxo", "cfl_gp", "cornflqs", "feddrift", "feroma", "k_fed", "stocfl")


def table(first: int, clients: int, seed: int = 0) -> dict[str, Any]:
    """Clients of two kinds that mean the opposite by the same value; some values are missing."""
    rng = np.random.default_rng(seed)
    value = 5 + rng.normal(size=clients * ROWS)
    owner = np.repeat(np.arange(first, first + clients), ROWS)
    ill = (value > 5) ^ (owner % 2 == 1)
    return {
        "value": [None if rng.random() < 0.05 else float(one) for one in value],
        "ward": rng.choice(["a", "b"], len(value)),
        "y": np.where(ill, "ill", "well"),
        "client": [f"h{one}" for one in owner],
    }


def tables(path: str, method: str = "fedavg") -> dict[str, Any]:
    return {
        "data": {
            "source": "file",
            "path": path,
            "features": "*",
            "partition": {"kind": "natural"},
        },
        "model": {"name": "mclr"},
        "local": {"epochs": 5, "lr": 0.2},
        "train": {"rounds": 3, "clients_per_round": 8},
        "algorithm": {"name": method, **METHODS.get(method, {})},
        "engine": {"name": "serial"},
    }


def groups_of(folder: Path) -> dict[str, int]:
    with (folder / "groups.csv").open(newline="") as file:
        return {row["client"]: int(row["group"]) for row in csv.DictReader(file)}


@pytest.mark.parametrize("method", METHODS)
def test_new_clients_join_and_old_ones_stay(method: str, tmp_path: Path) -> None:
    run_config(check(tables(write(tmp_path, table(0, OLD)), method)), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    before = compose(folder.config(), folder.partition)
    rows = folder.rows()
    placed = groups_of(folder.path)
    new = write(tmp_path, table(OLD, 4, seed=1), "new.csv")
    assert invoke(["resume", str(folder.path), "--data", new, "--rounds", "8"]) == 0

    # The rounds that were done, the samples and the inputs of the old clients are the same.
    assert folder.rows()[:3] == rows
    after = compose(folder.config(), folder.partition)
    assert after.population.names == (*before.population.names, "h8", "h9", "h10", "h11")
    for client in range(OLD):
        for split in ("train", "test"):
            mine = before.population.parts(split)[client]
            assert (after.population.parts(split)[client] == mine).all()
            assert torch.equal(after.population.x[mine], before.population.x[mine])
    # The new ones are in the group of their kind, which is that of old clients of the same kind.
    found = groups_of(folder.path)
    assert {name: found[name] for name in placed} == placed
    for client in range(OLD, OLD + 4):
        assert found[f"h{client}"] == placed[f"h{client % 2}"]
    assert invoke(["show", str(folder.path)]) == 0
    result = ct.Result.open(folder.path)
    assert result.report().is_file()
    assert len(result.groups) == OLD + 4


@pytest.mark.parametrize("method", GROWING)
def test_new_clients_join_where_the_memory_says_what_it_has_of_them(
    method: str, tmp_path: Path
) -> None:
    run_config(check(tables(write(tmp_path, table(0, OLD)), method)), tmp_path / "run")
    new = write(tmp_path, table(OLD, 4, seed=1), "new.csv")
    assert invoke(["resume", str(tmp_path / "run"), "--data", new, "--rounds", "8"]) == 0
    result = ct.Result.open(tmp_path / "run")
    assert len(result.rows) == 8
    assert max(result.groups[OLD:]) >= 0


def test_clients_join_twice_and_from_python(tmp_path: Path) -> None:
    """Interrupted in between, and by a table of pandas."""
    import pandas as pd

    run_config(check(tables(write(tmp_path, table(0, OLD)))), tmp_path / "run")
    first = pd.DataFrame(table(OLD, 2, seed=1))
    second = pd.DataFrame(table(OLD + 2, 1, seed=2))
    ct.resume(tmp_path / "run", data=first, rounds=4)
    result = ct.resume(tmp_path / "run", data=second, rounds=6)
    assert len(result.groups) == OLD + 3
    assert len(result.rows) == 6
    # As if both had come by themselves: their own rows, split in two.
    run = RunFolder(tmp_path / "run")
    population = compose(run.config(), run.partition).population
    assert population.sizes("train")[OLD:].tolist() == [36, 36, 36]
    joined = read_newcomers(run.path)
    assert joined is not None
    assert (joined.first_client, len(joined.x)) == (OLD, 3 * ROWS)


def test_a_kill_right_after_clients_joined_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    """The newest checkpoint then has no places for them, and every command makes them."""
    run_config(check(tables(write(tmp_path, table(0, OLD)), "fedgroup")), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    composed = compose(folder.config(), folder.partition)
    new = write(tmp_path, table(OLD, 1, seed=1), "new.csv")
    join(folder, composed, read_joining(new, composed, read_record(folder.path)))
    result = ct.Result.open(folder.path)
    assert result.groups[OLD] == -1
    assert len(result.export(tmp_path / "models").card.figures.groups) == 3
    assert result.report().is_file()
    assert ct.resume(folder.path, rounds=6).groups[OLD] == result.groups[0]


def test_who_cannot_join_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_config(check(tables(write(tmp_path, table(0, OLD)))), tmp_path / "run")
    run_config(check(tables(write(tmp_path, table(0, OLD)), "fedgwc")), tmp_path / "fedgwc")
    new = table(OLD, 2)
    bare = {name: values for name, values in new.items() if name != "client"}
    unlabelled = {**new, "y": [None, *new["y"][1:]]}
    for run, rows, rounds, line in (
        (
            "run",
            new,
            "3",
            "--data: new clients can join only after the first round and before the last (3 of 3",
        ),
        ("run", table(OLD - 1, 2), "5", "already in the run (the client 'h7'"),
        ("run", bare, "5", "--data: rows without a client"),
        ("run", unlabelled, "5", "--data: a row without a label (row 0"),
        ("fedgwc", new, "5", "algorithm.name: fedgwc stores per-client values"),
    ):
        before = (tmp_path / run / "partition.npz").read_bytes()
        path = write(tmp_path, rows, "new.parquet")
        code = invoke(["resume", str(tmp_path / run), "--data", path, "--rounds", rounds])
        assert code in (2, 3)
        assert line in capsys.readouterr().err
        assert (tmp_path / run / "partition.npz").read_bytes() == before
