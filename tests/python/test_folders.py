"""Run folders of Python: equal to those of the command line, saved later, moved, and refused."""

from __future__ import annotations

import csv
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import coterie as ct
from coterie.cli.main import invoke
from coterie.core.availability import Availability
from coterie.core.reply_times import ReplyTimes
from coterie.errors import Code
from coterie.experiment import check
from coterie.runs.folder.store import RunFolder
from coterie.runs.run import run_config
from tests.conftest import blobs, small_net
from tests.refusals import refuses

PARTITION = {"kind": "planted", "clients": 12, "groups": 2, "how": "swap"}
TABLES = {
    "seed": 3,
    "data": {"source": "digits", "partition": PARTITION},
    "model": {"name": "mlp", "hidden": 8},
    "local": {"epochs": 1, "lr": 0.1, "round_schedule": {"kind": "cosine"}},
    "train": {"rounds": 3, "clients_per_round": 6, "measures": ["theory"]},
    "algorithm": {"name": "flexcfl", "groups": 2, "alpha": 3},
    "engine": {"name": "serial"},
    "server": {"name": "fedavgm", "beta": 0.5},
    "shift": {"kind": "swap_all", "p": 0.3},
}


def called(**more: Any) -> ct.Result:
    """The same run as `TABLES`, from Python."""
    options: dict[str, Any] = {
        "method": ct.flexcfl(2, alpha=3),
        "data": ct.load("digits", partition=PARTITION, seed=3),
        "model": {"name": "mlp", "hidden": 8},
        "local": ct.Solver(epochs=1, lr=0.1, round_schedule=ct.LrSchedule("cosine")),
        "rounds": 3,
        "clients_per_round": 6,
        "seed": 3,
        "engine": "serial",
        "server": {"name": "fedavgm", "beta": 0.5},
        "shift": {"kind": "swap_all", "p": 0.3},
        "train": {"measures": ("theory",)},
    }
    return ct.run(**{**options, **more})


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows without times, and their chain, which is over the times."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in RunFolder(folder).rows()]


def equal_folders(one: Path, other: Path) -> None:
    assert RunFolder(one).resolved == RunFolder(other).resolved
    assert rows_of(one) == rows_of(other)
    for name in ("groups.csv", "clients.csv"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    for model in sorted((one / "models").iterdir()):
        mine = load_file(model)
        theirs = load_file(other / "models" / model.name)
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    with np.load(one / "partition.npz") as mine, np.load(other / "partition.npz") as theirs:
        assert mine.files == theirs.files
        assert all((mine[name] == theirs[name]).all() for name in mine.files)
    names = {path.name for path in one.iterdir()} - {".lock"}
    assert names == {path.name for path in other.iterdir()} - {".lock"}


def test_a_call_leaves_the_folder_of_the_command_line(tmp_path: Path) -> None:
    """Written during the run, and saved after it; and both results are those of the run in memory."""
    run_config(check(TABLES), tmp_path / "command")
    written = called(out=tmp_path / "written")
    in_memory = called()
    in_memory.save(tmp_path / "saved")
    equal_folders(tmp_path / "command", tmp_path / "written")
    equal_folders(tmp_path / "command", tmp_path / "saved")
    assert torch.equal(written.state.models, in_memory.state.models)
    assert written.scores == in_memory.scores
    for client in (0, 7):
        assert torch.equal(written.vector_for(client), in_memory.vector_for(client))


def test_a_call_says_who_can_be_reached_and_who_is_slow(tmp_path: Path) -> None:
    tables = {
        **TABLES,
        "train": {**TABLES["train"], "over_selection": 1.5},
        "availability": {"kind": "random", "share": 0.8},
        "reply_times": {"spread": 1.0, "deadline": 2.0},
    }
    run_config(check(tables), tmp_path / "command")
    options: dict[str, Any] = {
        "train": {"over_selection": 1.5, "measures": ("theory",)},
        "availability": Availability("random", share=0.8),
        "reply_times": ReplyTimes(spread=1.0, deadline=2.0),
    }
    called(out=tmp_path / "written", **options)
    called(**options).save(tmp_path / "saved")
    equal_folders(tmp_path / "command", tmp_path / "written")
    equal_folders(tmp_path / "command", tmp_path / "saved")
    assert sum(row["refused"].get("late", 0) for row in rows_of(tmp_path / "command")) > 0


def test_spans_are_of_a_run_in_memory_alone(tmp_path: Path) -> None:
    """A configuration names a file of them."""
    later = Availability("file", period=0, spans={"0": ((9, 10),)})
    result = called(availability=later, clients_per_round=12, rounds=1, method=ct.ifca(groups=2))
    assert {client for client, _ in result.rows[0]["moves"]} == {*range(1, 12)}
    with refuses(ct.ConfigError, "cannot-be-written", "availability.spans"):
        called(availability=later, out=tmp_path / "run")


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        ({"reply_times": ReplyTimes()}, ("in-conflict", "reply_times")),
        ({"train": {"over_selection": 0.5}}, ("out-of-range", "train.over_selection")),
        (
            {"method": ct.fedgsp(), "train": {"over_selection": 2.0}},
            ("in-conflict", "train.over_selection"),
        ),
        (
            {"train": {"over_selection": 2.0, "sampler": "poisson"}},
            ("in-conflict", "train.over_selection"),
        ),
        ({"availability": Availability(period=0)}, ("out-of-range", "availability.period")),
        ({"availability": "random"}, ("wrong-type", "availability")),
    ],
)
def test_what_does_not_go_with_slow_clients_is_one_line(
    more: dict[str, Any], refusal: tuple[Code, str]
) -> None:
    with refuses(ct.ConfigError, *refusal):
        called(**more)


def test_every_command_knows_a_folder_of_python(tmp_path: Path) -> None:
    result = ct.run(
        ct.fedgroup(2, alpha=3),
        data=blobs(),
        model="mclr",
        rounds=2,
        engine="serial",
        out=tmp_path / "run",
    )
    # Data of the user's own are in the folder, and move with it.
    shutil.move(tmp_path / "run", tmp_path / "moved")
    again = ct.Result.open(tmp_path / "moved")
    assert torch.equal(again.state.models, result.state.models)
    assert invoke(["show", str(tmp_path / "moved")]) == 0
    assert invoke(["resume", str(tmp_path / "moved")]) == 0
    page = again.report()
    assert page == tmp_path / "moved" / "report.html"
    assert (again.export().folder / "load.py").is_file()
    assert invoke(["show", str(again.save(tmp_path / "copy"))]) == 0


def test_a_damaged_population_is_refused(tmp_path: Path) -> None:
    ct.run(ct.fedavg(), data=blobs(), model="mclr", rounds=1, engine="serial", out=tmp_path / "run")
    # Its own split is the population's, of which no option of the partition says anything.
    assert RunFolder(tmp_path / "run").resolved["data"]["partition"] == {"kind": "given"}
    other = replace(blobs(), x=blobs().x + 1)
    ct.run(ct.fedavg(), data=other, model="mclr", rounds=1, engine="serial", out=tmp_path / "other")
    shutil.copy(tmp_path / "other" / "population.npz", tmp_path / "run" / "population.npz")
    with refuses(ct.CheckpointError, "damaged", "population.npz"):
        ct.Result.open(tmp_path / "run")


@pytest.mark.parametrize(
    ("more", "refusal"),
    [
        (
            {"train": {"sampler": lambda round: np.arange(3)}},
            ("cannot-be-written", "train.sampler"),
        ),
        ({"local": ct.Solver(steps=3)}, ("cannot-be-written", "local.steps")),
        ({"server": "nobody"}, ("unknown-choice", "server.name")),
    ],
)
def test_what_no_folder_can_name_is_one_line(
    more: dict[str, Any], refusal: tuple[Code, str], tmp_path: Path
) -> None:
    call = {"method": ct.fedavg(), "data": blobs(), "model": "mclr", "rounds": 1, **more}
    with refuses(ct.ConfigError, *refusal):
        ct.run(**call, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_in_memory_needs_a_place_for_its_page() -> None:
    result = ct.run(ct.fedavg(), data=blobs(), model=small_net(), rounds=1, engine="serial")
    with refuses(ct.ConfigError, "not-found", "page"):
        result.report()


def test_data_of_another_seed_are_saved_with_the_run(tmp_path: Path) -> None:
    """A configuration has one seed; it would divide the data otherwise."""
    data = ct.load("digits", partition={"kind": "iid", "clients": 4}, seed=5)
    call = {"data": data, "model": "mclr", "rounds": 1, "engine": "serial"}
    ct.run(ct.fedavg(), **call, out=tmp_path / "run")
    assert (tmp_path / "run" / "population.npz").is_file()
    with (tmp_path / "run" / "groups.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4


# --- data of the user's own, as module:factory ----------------------------------------------------

MODULE = """
import torch
import coterie as ct
from coterie.data import Samples


def population(root, *, clients: int = 4):
    x = torch.arange(clients * 6.0).reshape(-1, 2)
    y = torch.arange(clients * 3) % 2
    parts = [[3 * i, 3 * i + 1] for i in range(clients)]
    return ct.Population(x, y, parts, [[3 * i + 2] for i in range(clients)], classes=2)


def samples():
    return Samples(torch.zeros(12, 2), torch.arange(12) % 2, classes=2, train_rows=12)


def nothing():
    return 3
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "mydata.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return "mydata"


def tables(source: str, **partition: Any) -> dict[str, Any]:
    return {
        "data": {"source": source, "partition": partition},
        "model": {"name": "mclr"},
        "train": {"rounds": 1},
        "algorithm": {"name": "fedavg"},
        "engine": {"name": "serial"},
    }


def test_a_source_may_be_the_users_own(mine: str, tmp_path: Path) -> None:
    config = tables(f"{mine}:population", kind="given")
    config["data"]["clients"] = 5
    assert run_config(check(config), tmp_path / "run")["clients"] == 5
    data = ct.load(f"{mine}:population", clients=5, partition={"kind": "given"})
    ct.run(ct.fedavg(), data=data, model="mclr", rounds=1, engine="serial", out=tmp_path / "python")
    assert rows_of(tmp_path / "run") == rows_of(tmp_path / "python")
    assert isinstance(
        ct.load(f"{mine}:samples", partition={"kind": "iid", "clients": 2}).x, torch.Tensor
    )
    with refuses(ct.ConfigError, "wrong-type", "data.source"):
        ct.load(f"{mine}:nothing", partition={"kind": "given"})


def test_a_source_of_a_stranger_needs_trust(
    mine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_config(check(tables(f"{mine}:population", kind="given")), tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "strange")
    assert invoke(["export", str(tmp_path / "strange")]) == 2
    assert "data.source = 'mydata:population'" in capsys.readouterr().err
    with refuses(ct.ConfigError, "not-trusted", "strange"):
        ct.Result.open(tmp_path / "strange")
    assert len(ct.Result.open(tmp_path / "strange", trust=True).rows) == 1


def test_defaults_that_few_clients_lower_are_lowered_with_a_folder_too(tmp_path: Path) -> None:
    """Each option of the algorithm counted as set by the user once its table was written."""
    rows = [f"{i % 4},{i % 7},{i % 2}" for i in range(80)]
    (tmp_path / "rows.csv").write_text("\n".join(["client,x,y", *rows]))
    tables = {
        "data": {
            "source": "file",
            "path": str(tmp_path / "rows.csv"),
            "features": ["x"],
            "label": "y",
            "partition": {"kind": "natural", "column": "client"},
        },
        "model": {"name": "mclr"},
        "train": {"rounds": 1},
        "algorithm": {"name": "fedgroup", "groups": 2},
        "engine": {"name": "serial"},
    }
    experiment = ct.Experiment.from_tables(tables)
    stored = ct.run(experiment, out=tmp_path / "python")
    run_config(check(tables), tmp_path / "command")
    configs = [RunFolder(tmp_path / name).config() for name in ("python", "command")]
    assert [one.options("algorithm")["alpha"] for one in configs] == [2, 2]
    assert [one.train.clients_per_round for one in configs] == [4, 4]
    assert stored.accuracy == ct.run(experiment).accuracy
